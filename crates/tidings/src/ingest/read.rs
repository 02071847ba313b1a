//! From a request to envelopes: one event, an array, NDJSON, or CloudEvents in their three modes.

use std::borrow::Cow;

use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::value::RawValue;
use tidings_core::envelope::{self, Defaults, FieldError, Lent};
use tidings_core::json::Members;
use tidings_core::time::Timestamp;
use tidings_core::{cloudevents, json};

use crate::http::correlation::{says_else, trace_parent};
use crate::http::{Problem, RequestIds, media_type};

/// An event that was read, or why it cannot be.
#[derive(Debug)]
pub enum Draft<'a> {
    Good(Lent<'a>),
    Bad(Bad),
}

/// Why an event cannot be taken, and what it calls itself, so that the sender knows which it is.
#[derive(Debug, Default)]
pub struct Bad {
    pub event_id: Option<String>,
    pub correlation_id: Option<String>,
    pub errors: Vec<FieldError>,
    pub too_large: bool,
}

/// What a request brought.
#[derive(Debug)]
pub enum Received<'a> {
    /// Exactly one event, by its form.
    One(Box<Draft<'a>>),
    /// A list, even if of one.
    Many(Vec<Draft<'a>>),
}

/// How much may come at once, and from whom.
#[derive(Debug, Clone)]
pub struct Limits {
    pub events: usize,
    pub event_bytes: usize,
    /// Who may send; empty: anybody (S003-01).
    pub sources: Vec<String>,
}

/// Reads one event; the last is the correlation id that it gets if it has none.
type ReadOne = for<'a> fn(&'a str, &Defaults<'_>, &'a str) -> Result<Lent<'a>, Vec<FieldError>>;

fn plain<'a>(text: &'a str, defaults: &Defaults<'_>, correlation_id: &'a str) -> Result<Lent<'a>, Vec<FieldError>> {
    let fields = json::object(text).map_err(|bad| vec![bad.into()])?;
    envelope::from_fields(&fields, defaults, correlation_id)
}

fn cloud<'a>(text: &'a str, defaults: &Defaults<'_>, _: &'a str) -> Result<Lent<'a>, Vec<FieldError>> {
    cloudevents::read(text, defaults).map(Lent::from)
}

struct Reader<'a, 'b> {
    correlation_id: &'a str,
    /// The request's `traceparent`.
    trace: Option<&'b str>,
    ids: &'b RequestIds<'b>,
    now: Timestamp,
    limits: &'b Limits,
    read: ReadOne,
    /// What the form calls an event's id.
    id_field: &'static str,
}

/// Reads the events of a request by its content type.
pub fn read_events<'a>(
    headers: &HeaderMap,
    body: &'a [u8],
    correlation_id: &'a str,
    ids: &RequestIds<'_>,
    now: Timestamp,
    limits: &Limits,
) -> Result<Received<'a>, Problem> {
    let trace = trace_parent(headers);
    let reader = |read, id_field| Reader { correlation_id, trace, ids, now, limits, read, id_field };
    let (plain, cloud) = (|| reader(plain, "eventId"), || reader(cloud, "id"));
    let media_type = media_type(headers);
    if media_type == "application/cloudevents-batch+json" {
        return cloud().batch(json::text(body)?);
    }
    if media_type == "application/cloudevents+json" {
        return Ok(Received::One(Box::new(cloud().one(0, json::text(body)?))));
    }
    if headers.contains_key("ce-specversion") || headers.contains_key("ce-id") {
        let text = binary_mode(headers, &media_type, body)?;
        let draft = match cloud().one(0, &text) {
            Draft::Good(event) => Draft::Good(event.into_envelope().into()),
            Draft::Bad(bad) => Draft::Bad(bad),
        };
        return Ok(Received::One(Box::new(draft)));
    }
    match &*media_type {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => plain().lines(body),
        // curl's default for --data: refusing it would only teach people to add a header.
        "" | "application/json" | "text/json" | "application/x-www-form-urlencoded" => {
            let text = json::utf8(body)?;
            if let Some(drafts) = plain().plain_array(text) {
                return Ok(Received::Many(drafts));
            }
            json::check_depth(text)?;
            match text.trim_start().as_bytes().first() {
                Some(b'[') => plain().array(text),
                Some(_) => Ok(Received::One(Box::new(plain().one(0, text)))),
                None => {
                    Err(Problem::bad_request("the body is empty; send an event, a JSON array of events, or NDJSON"))
                }
            }
        }
        other => {
            let detail = format!(
                "Content-Type {other:?} is not accepted here; send application/json, application/x-ndjson, \
                 application/cloudevents+json or application/cloudevents-batch+json"
            );
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail))
        }
    }
}

impl<'a> Reader<'a, '_> {
    fn one<'t>(&self, place: usize, text: &'t str) -> Draft<'t>
    where
        'a: 't,
    {
        if text.len() > self.limits.event_bytes {
            let message =
                format!("the event has {} bytes, at most {} are allowed", text.len(), self.limits.event_bytes);
            let errors = vec![FieldError::new("", message)];
            return Draft::Bad(Bad { too_large: true, ..self.bad(json::object(text).ok().as_ref(), errors) });
        }
        self.draft(place, |defaults| {
            (self.read)(text, defaults, self.correlation_id)
                .map_err(|errors| self.bad(json::object(text).ok().as_ref(), errors))
        })
    }

    fn bad(&self, fields: Option<&Members<'_>>, errors: Vec<FieldError>) -> Bad {
        let (event_id, correlation_id) =
            fields.map(|fields| envelope::ids_in(fields, self.id_field)).unwrap_or_default();
        Bad { event_id, correlation_id, errors, too_large: false }
    }

    fn draft<'t>(&self, place: usize, read: impl FnOnce(&Defaults<'_>) -> Result<Lent<'t>, Bad>) -> Draft<'t> {
        let make_id = || self.ids.uuid(place).to_string();
        let defaults = Defaults { now: self.now, correlation_id: self.correlation_id, event_id: &make_id };
        match read(&defaults) {
            Ok(mut envelope) => {
                match foreign(envelope.source.as_deref(), &self.limits.sources).or_else(|| self.reserved(&envelope)) {
                    None => {
                        if let Some(trace) = self.trace.filter(|trace| says_else(trace, &envelope.correlation_id)) {
                            envelope.join_trace(trace);
                        }
                        Draft::Good(envelope)
                    }
                    Some(error) => Draft::Bad(Bad {
                        event_id: Some(envelope.event_id.into_owned()),
                        correlation_id: Some(envelope.correlation_id.into_owned()),
                        errors: vec![error],
                        too_large: false,
                    }),
                }
            }
            Err(bad) => Draft::Bad(bad),
        }
    }

    /// What is wrong with an id by which an event could be stored and not be fetched.
    fn reserved(&self, envelope: &Lent<'_>) -> Option<FieldError> {
        let taken = envelope.event_id == "stream";
        taken.then(|| FieldError::new(self.id_field, "must not be \"stream\": /events/stream is the live stream"))
    }

    /// The events of an array of envelopes in one go over the text, if there is nothing to complain about them as a
    /// whole: whatever that might be, going over the text again finds the words for it.
    fn plain_array(&self, text: &'a str) -> Option<Vec<Draft<'a>>> {
        let may_be = text.trim_start().starts_with('[') && text.len() <= self.limits.event_bytes;
        if !may_be {
            return None;
        }
        let mut drafts = Vec::new();
        json::each_object(text, |fields| {
            if drafts.is_empty() {
                // Those of one request are mostly alike, and this one is about as long as the text up to here.
                let first = fields.all.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>() + 2;
                drafts.reserve((text.len() / first + 1).min(self.limits.events));
            }
            (drafts.len() < self.limits.events).then_some(())?;
            drafts.push(self.draft(drafts.len(), |defaults| {
                envelope::from_fields(fields, defaults, self.correlation_id)
                    .map_err(|errors| self.bad(Some(fields), errors))
            }));
            Some(())
        })?;
        (!drafts.is_empty()).then_some(drafts)
    }

    /// The batch mode of CloudEvents, which may be empty.
    fn batch(&self, text: &'a str) -> Result<Received<'a>, Problem> {
        let elements: Vec<&RawValue> = json::parse(text)?;
        if elements.is_empty() { Ok(Received::Many(Vec::new())) } else { self.array(text) }
    }

    fn array(&self, text: &'a str) -> Result<Received<'a>, Problem> {
        let elements: Vec<&RawValue> = json::parse(text)?;
        self.check_count(elements.len())?;
        let drafts = elements.iter().enumerate().map(|(place, element)| self.one(place, element.get())).collect();
        Ok(Received::Many(drafts))
    }

    fn lines(&self, body: &'a [u8]) -> Result<Received<'a>, Problem> {
        let lines = || body.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty());
        self.check_count(lines().count())?;
        Ok(Received::Many(lines().map(|(number, line)| self.line(number, line.trim_ascii())).collect()))
    }

    /// One line of NDJSON; what is wrong with it names the line, counted from 1.
    fn line(&self, number: usize, line: &'a [u8]) -> Draft<'a> {
        let draft = match json::text(line) {
            Ok(text) => self.one(number, text),
            Err(bad) => Draft::Bad(Bad { errors: vec![bad.into()], ..Bad::default() }),
        };
        match draft {
            Draft::Bad(mut bad) => {
                for error in &mut bad.errors {
                    // The line is named already, and a parser that sees it alone calls it the first.
                    error.message = error.message.replace(" at line 1 column ", " at column ");
                    error.field =
                        format!("line {}{}{}", number + 1, if error.field.is_empty() { "" } else { ": " }, error.field);
                }
                Draft::Bad(bad)
            }
            good => good,
        }
    }

    fn check_count(&self, count: usize) -> Result<(), Problem> {
        let most = self.limits.events;
        match count {
            0 => Err(Problem::bad_request("there is no event in the body")),
            n if n > most => {
                Err(Problem::too_large(format!("there are {n} events in the body, at most {most} are allowed at once")))
            }
            _ => Ok(()),
        }
    }
}

/// What is wrong with an event's source, where only some are taken (S003-01).
pub fn foreign(source: Option<&str>, sources: &[String]) -> Option<FieldError> {
    let known = sources.is_empty() || sources.iter().any(|known| Some(known.as_str()) == source);
    (!known).then(|| FieldError::new("source", format!("must be one of {}", sources.join(", "))))
}

/// A CloudEvent in binary mode, put into its JSON form: attributes from `ce-` headers, data from the body.
fn binary_mode(headers: &HeaderMap, media_type: &str, body: &[u8]) -> Result<String, Problem> {
    let mut attributes = serde_json::Map::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix("ce-") else { continue };
        if name == "data" || name == "data_base64" {
            return Err(Problem::invalid_field(format!("ce-{name}"), "is no attribute: the body is the data"));
        }
        let value = value.to_str().ok().and_then(|value| percent_decode(&unquoted(value))).ok_or_else(|| {
            Problem::invalid_field(format!("ce-{name}"), "must be printable ASCII or percent-encoded UTF-8")
        })?;
        if attributes.insert(name.to_owned(), value.into()).is_some() {
            return Err(Problem::invalid_field(format!("ce-{name}"), "must be given only once"));
        }
    }
    let is_json = media_type.is_empty() || media_type == "application/json" || media_type.ends_with("+json");
    if !media_type.is_empty() {
        attributes.insert("datacontenttype".to_owned(), media_type.into());
    }
    let mut text = serde_json::Value::Object(attributes).to_string();
    if body.is_empty() {
        return Ok(text);
    }
    let (name, data) = match std::str::from_utf8(body) {
        Ok(_) if is_json => {
            let data: &RawValue = json::parse(json::text(body)?)?;
            ("data", data.get().to_owned())
        }
        Ok(plain) if is_text(media_type) => ("data", serde_json::Value::from(plain).to_string()),
        // Of one content type one form, whatever its bytes happen to be.
        _ => ("data_base64", serde_json::Value::from(BASE64_STANDARD.encode(body)).to_string()),
    };
    text.pop();
    let comma = if text.len() > 1 { "," } else { "" };
    text.push_str(&format!("{comma}\"{name}\":{data}}}"));
    Ok(text)
}

/// Whether a content type says text, of which JSON has been told apart already.
fn is_text(media_type: &str) -> bool {
    let known = ["application/xml", "application/yaml", "application/x-www-form-urlencoded"];
    media_type.starts_with("text/") || media_type.ends_with("+xml") || known.contains(&media_type)
}

/// A header's value without the quotes around it and the escapes within (RFC 9110, 5.6.4); one that is not quoted as a whole
/// stays as it is. Comes before percent-decoding (CloudEvents' HTTP binding, 3.1.3.2).
fn unquoted(text: &str) -> Cow<'_, str> {
    let Some(inner) = text.strip_prefix('"') else { return text.into() };
    let (mut plain, mut rest) = (String::with_capacity(inner.len()), inner.chars());
    while let Some(next) = rest.next() {
        match next {
            '\\' => plain.extend(rest.next()),
            '"' if rest.as_str().is_empty() => return plain.into(),
            '"' => break,
            other => plain.push(other),
        }
    }
    text.into()
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
