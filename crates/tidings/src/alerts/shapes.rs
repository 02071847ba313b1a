//! From a request to audit events: bare, in lists, or in the envelopes of those who carry them (S000-76).
//!
//! Event Grid, CloudEvents, EventBridge and Splunk's collector each wrap an event in their own way; what is inside is
//! found by its own fields, never by what the carrier calls it.

use std::borrow::Cow;

use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::value::RawValue;
use tidings_core::json::{self, Fields};

use crate::http::{Problem, media_type};

const VALIDATION: &str = "Microsoft.EventGrid.SubscriptionValidationEvent";
/// What Event Grid says about itself is not about a process.
const OF_THE_CARRIER: &str = "Microsoft.EventGrid.";
/// Envelopes in envelopes; nobody means more.
const LEVELS: usize = 4;

/// One event of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<'a> {
    /// Its text as it came, and what its envelope calls it, for an event that has no id itself.
    Entry { text: Cow<'a, str>, id: Option<String> },
    /// Something that the carrier says about itself.
    Other { id: Option<String> },
}

/// What a request brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// Event Grid asks whether we want its events; the code is the answer.
    Handshake(String),
    /// Exactly one event, by its form.
    One(Found<'a>),
    /// A list, even if of one.
    Many(Vec<Found<'a>>),
}

/// Reads a request's body; at most `most` events.
pub fn read<'a>(headers: &HeaderMap, body: &'a [u8], most: usize) -> Result<Request<'a>, Problem> {
    check_media_type(&media_type(headers))?;
    let text = json::text(body)?;
    let values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let values: Vec<&RawValue> = values.collect::<Result<_, _>>().map_err(|why| {
        Problem::new(StatusCode::BAD_REQUEST, "bad-json", format!("the JSON is not acceptable: {why}"))
    })?;
    if let Some(code) = handshake(&values)? {
        return Ok(Request::Handshake(code));
    }
    // In binary mode a CloudEvent's attributes are headers, and its data is the body.
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let id = header("ce-id").map(|id| carried(id, header("ce-source")));
    let mut found = Unwrapped { found: Vec::new(), list: values.len() != 1 };
    for (place, value) in values.iter().enumerate() {
        let id = id.as_ref().map(|id| numbered(id, place, values.len()));
        found.unwrap(value, id, 0);
    }
    let Unwrapped { mut found, list } = found;
    if values.is_empty() || values.first().is_some_and(|value| is_empty_list(value)) {
        return Err(Problem::bad_request("there is no event in the body"));
    }
    if found.len() > most {
        let detail = format!("there are {} events in the body, at most {most} are allowed at once", found.len());
        return Err(Problem::too_large(detail));
    }
    if !list && found.len() == 1 {
        return Ok(found.pop().map_or(Request::Many(Vec::new()), Request::One));
    }
    Ok(Request::Many(found))
}

fn check_media_type(media_type: &str) -> Result<(), Problem> {
    let known = [
        "",
        "application/json",
        "text/json",
        "text/plain",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-www-form-urlencoded",
    ];
    if known.contains(&media_type) || media_type.ends_with("+json") {
        return Ok(());
    }
    let detail = format!(
        "Content-Type {media_type:?} is not accepted here; send application/json or application/cloudevents+json"
    );
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail))
}

fn is_empty_list(value: &RawValue) -> bool {
    serde_json::from_str::<Vec<&RawValue>>(value.get()).is_ok_and(|list| list.is_empty())
}

/// The code of Event Grid's question, if that is what came.
fn handshake(values: &[&RawValue]) -> Result<Option<String>, Problem> {
    let [value] = values else { return Ok(None) };
    let list = serde_json::from_str::<Vec<&RawValue>>(value.get()).unwrap_or_else(|_| vec![*value]);
    let [event] = list.as_slice() else { return Ok(None) };
    let Ok(event) = serde_json::from_str::<Fields<'_>>(event.get()) else { return Ok(None) };
    if text(&event, "eventType").as_deref() != Some(VALIDATION) {
        return Ok(None);
    }
    let data = field(&event, "data").and_then(|data| serde_json::from_str::<Fields<'_>>(data.get()).ok());
    let code = data.and_then(|data| text(&data, "validationCode")).filter(|code| !code.is_empty());
    match code {
        Some(code) => Ok(Some(code)),
        None => Err(Problem::invalid_field("data.validationCode", "is required")),
    }
}

struct Unwrapped<'a> {
    found: Vec<Found<'a>>,
    /// Whether the form is a list's.
    list: bool,
}

impl<'a> Unwrapped<'a> {
    fn unwrap(&mut self, value: &'a RawValue, id: Option<String>, level: usize) {
        let whole = value.get();
        let entry = |id| Found::Entry { text: Cow::Borrowed(whole), id };
        if level > LEVELS {
            return self.found.push(entry(id));
        }
        if let Ok(list) = serde_json::from_str::<Vec<&'a RawValue>>(whole) {
            self.list = true;
            for (place, element) in list.iter().enumerate() {
                self.unwrap(element, id.as_ref().map(|id| numbered(id, place, list.len())), level + 1);
            }
            return;
        }
        let Ok(fields) = serde_json::from_str::<Fields<'a>>(whole) else { return self.found.push(entry(id)) };
        if ["actionId", "operationName"].iter().any(|name| field(&fields, name).is_some()) {
            return self.found.push(entry(id));
        }
        let carrier = || text(&fields, "source").or_else(|| text(&fields, "topic"));
        let own_id = text(&fields, "id").map(|id| carried(&id, carrier().as_deref())).or(id);
        if let Some(list) = ["decoratedAuditLogEntries", "records"].iter().find_map(|name| field(&fields, name)) {
            self.list = true;
            return self.unwrap(list, None, level + 1);
        }
        let event_type = text(&fields, "eventType");
        if event_type.as_deref().is_some_and(|name| name.starts_with(OF_THE_CARRIER)) {
            return self.found.push(Found::Other { id: own_id });
        }
        let cloud_event = field(&fields, "specversion").is_some();
        if cloud_event && let Some(data) = text(&fields, "data_base64") {
            let text = BASE64_STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            return self.unwrap_text(text.unwrap_or_default(), own_id, level + 1);
        }
        let inner = if field(&fields, "detail-type").is_some() {
            field(&fields, "detail")
        } else if event_type.is_some() || cloud_event {
            field(&fields, "data")
        } else {
            // The audit log's own page may come in `value`; Splunk's collector takes `event`.
            ["value", "event", "detail"].iter().find_map(|name| field(&fields, name))
        };
        match inner {
            Some(inner) if inner.get().starts_with('"') => {
                let text = serde_json::from_str::<String>(inner.get()).unwrap_or_default();
                self.unwrap_text(text, own_id, level + 1);
            }
            Some(inner) if inner.get().starts_with(['{', '[']) => self.unwrap(inner, own_id, level + 1),
            _ => self.found.push(entry(own_id)),
        }
    }

    /// The same for JSON that came as text. What is too deep for it is left to who reads the entry, and refuses it.
    fn unwrap_text(&mut self, text: String, id: Option<String>, level: usize) {
        let mut inner = Unwrapped { found: Vec::new(), list: self.list };
        match serde_json::from_str::<&RawValue>(&text) {
            Ok(value) if json::check_depth(&text).is_ok() => inner.unwrap(value, id, level),
            _ => inner.found.push(Found::Entry { text: Cow::Borrowed(&text), id }),
        }
        self.list = inner.list;
        self.found.extend(inner.found.into_iter().map(|found| match found {
            Found::Entry { text, id } => Found::Entry { text: Cow::Owned(text.into_owned()), id },
            Found::Other { id } => Found::Other { id },
        }));
    }
}

fn field<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a RawValue> {
    let found = fields.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| *value).filter(|value| value.get() != "null")
}

fn text(fields: &Fields<'_>, name: &str) -> Option<String> {
    field(fields, name).and_then(|value| serde_json::from_str(value.get()).ok())
}

/// What tells a carrier's events from all others: an id is unique only among those of one `source` (CloudEvents,
/// EventBridge) or `topic` (Event Grid).
fn carried(id: &str, carrier: Option<&str>) -> String {
    match carrier.filter(|carrier| !carrier.is_empty()) {
        // No two pairs are the same text.
        Some(carrier) => format!("{}@{carrier}", id.replace('%', "%25").replace('@', "%40")),
        None => id.to_owned(),
    }
}

/// The id of one of several events that came under one id.
fn numbered(id: &str, place: usize, of: usize) -> String {
    if of == 1 { id.to_owned() } else { format!("{id}/{place}") }
}

#[cfg(test)]
#[path = "shapes_tests.rs"]
mod tests;
