//! From a request to envelopes: one event, an array, NDJSON, or CloudEvents in their three modes.

use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::value::RawValue;
use tidings_core::envelope::{self, Defaults, Envelope, FieldError};
use tidings_core::json::Fields;
use tidings_core::limits::JSON_DEPTH;
use tidings_core::time::Timestamp;
use tidings_core::{cloudevents, json};

use crate::http::correlation::trace_beside;
use crate::http::{Problem, RequestIds, media_type};

/// An event that was read, or why it cannot be.
#[derive(Debug)]
pub enum Draft {
    Good(Envelope),
    Bad { errors: Vec<FieldError>, too_large: bool },
}

/// What a request brought.
#[derive(Debug)]
pub enum Received {
    /// Exactly one event, by its form.
    One(Box<Draft>),
    /// A list, even if of one.
    Many(Vec<Draft>),
}

/// How much may come at once, and from whom.
#[derive(Debug, Clone)]
pub struct Limits {
    pub events: usize,
    pub event_bytes: usize,
    /// Who may send; empty: anybody (S003-01).
    pub sources: Vec<String>,
}

type ReadOne = fn(&str, &Defaults<'_>) -> Result<Envelope, Vec<FieldError>>;

struct Reader<'a> {
    correlation_id: &'a str,
    headers: &'a HeaderMap,
    ids: &'a RequestIds<'a>,
    now: Timestamp,
    limits: &'a Limits,
    read: ReadOne,
}

/// Reads the events of a request by its content type.
pub fn read_events(
    headers: &HeaderMap,
    body: &[u8],
    correlation_id: &str,
    ids: &RequestIds<'_>,
    now: Timestamp,
    limits: &Limits,
) -> Result<Received, Problem> {
    let reader = |read| Reader { correlation_id, headers, ids, now, limits, read };
    let media_type = media_type(headers);
    if media_type == "application/cloudevents-batch+json" {
        return reader(cloudevents::read).array(json::text(body)?);
    }
    if media_type == "application/cloudevents+json" {
        return Ok(Received::One(Box::new(reader(cloudevents::read).one(0, json::text(body)?))));
    }
    if headers.contains_key("ce-specversion") || headers.contains_key("ce-id") {
        let text = binary_mode(headers, &media_type, body)?;
        return Ok(Received::One(Box::new(reader(cloudevents::read).one(0, &text))));
    }
    match media_type.as_str() {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => reader(envelope::read).lines(body),
        // curl's default for --data: refusing it would only teach people to add a header.
        "" | "application/json" | "text/json" | "application/x-www-form-urlencoded" => {
            let text = json::utf8(body)?;
            if let Some(drafts) = reader(envelope::read).plain_array(text) {
                return Ok(Received::Many(drafts));
            }
            json::check_depth(text)?;
            match text.trim_start().as_bytes().first() {
                Some(b'[') => reader(envelope::read).array(text),
                Some(_) => Ok(Received::One(Box::new(reader(envelope::read).one(0, text)))),
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

impl Reader<'_> {
    fn one(&self, place: usize, text: &str) -> Draft {
        if text.len() > self.limits.event_bytes {
            let message =
                format!("the event has {} bytes, at most {} are allowed", text.len(), self.limits.event_bytes);
            return Draft::Bad { errors: vec![FieldError::new("", message)], too_large: true };
        }
        self.draft(place, |defaults| (self.read)(text, defaults))
    }

    fn draft(&self, place: usize, read: impl FnOnce(&Defaults<'_>) -> Result<Envelope, Vec<FieldError>>) -> Draft {
        let make_id = || self.ids.uuid(place).to_string();
        let defaults = Defaults { now: self.now, correlation_id: self.correlation_id, event_id: &make_id };
        match read(&defaults) {
            Ok(mut envelope) => match self.foreign(&envelope) {
                None => {
                    if let Some(parent) = trace_beside(self.headers, &envelope.correlation_id) {
                        envelope.join_trace(parent);
                    }
                    Draft::Good(envelope)
                }
                Some(error) => Draft::Bad { errors: vec![error], too_large: false },
            },
            Err(errors) => Draft::Bad { errors, too_large: false },
        }
    }

    /// What is wrong with an event's source, where only some are taken.
    fn foreign(&self, envelope: &Envelope) -> Option<FieldError> {
        let sources = &self.limits.sources;
        let known =
            sources.is_empty() || sources.iter().any(|known| Some(known.as_str()) == envelope.source.as_deref());
        (!known).then(|| FieldError::new("source", format!("must be one of {}", sources.join(", "))))
    }

    /// The events of an array of envelopes in one go over the text, if there is nothing to complain about them as a
    /// whole: whatever that might be, going over the text again finds the words for it.
    fn plain_array(&self, text: &str) -> Option<Vec<Draft>> {
        let may_be = text.trim_start().starts_with('[') && text.len() <= self.limits.event_bytes;
        let elements: Vec<Fields<'_>> = may_be.then(|| json::parse(text).ok()).flatten()?;
        // The array and the event are levels, too.
        let is_flat = |event: &Fields<'_>| {
            event.0.iter().map(|(_, value)| json::brackets(value.get())).sum::<usize>() + 2 <= JSON_DEPTH
        };
        if elements.is_empty() || elements.len() > self.limits.events || !elements.iter().all(is_flat) {
            return None;
        }
        let read = |(place, fields)| self.draft(place, |defaults| envelope::from_fields(fields, defaults));
        Some(elements.into_iter().enumerate().map(read).collect())
    }

    fn array(&self, text: &str) -> Result<Received, Problem> {
        let elements: Vec<&RawValue> = json::parse(text)?;
        self.check_count(elements.len())?;
        let drafts = elements.iter().enumerate().map(|(place, element)| self.one(place, element.get())).collect();
        Ok(Received::Many(drafts))
    }

    fn lines(&self, body: &[u8]) -> Result<Received, Problem> {
        let lines = || body.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty());
        self.check_count(lines().count())?;
        Ok(Received::Many(lines().map(|(number, line)| self.line(number, line.trim_ascii())).collect()))
    }

    /// One line of NDJSON; what is wrong with it names the line, counted from 1.
    fn line(&self, number: usize, line: &[u8]) -> Draft {
        let draft = match json::text(line) {
            Ok(text) => self.one(number, text),
            Err(bad) => Draft::Bad { errors: vec![bad.into()], too_large: false },
        };
        match draft {
            Draft::Bad { mut errors, too_large } => {
                for error in &mut errors {
                    error.field =
                        format!("line {}{}{}", number + 1, if error.field.is_empty() { "" } else { ": " }, error.field);
                }
                Draft::Bad { errors, too_large }
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

/// A CloudEvent in binary mode, put into its JSON form: attributes from `ce-` headers, data from the body.
fn binary_mode(headers: &HeaderMap, media_type: &str, body: &[u8]) -> Result<String, Problem> {
    let mut attributes = serde_json::Map::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix("ce-") else { continue };
        if name == "data" || name == "data_base64" {
            return Err(Problem::invalid_field(format!("ce-{name}"), "is no attribute: the body is the data"));
        }
        let value = value.to_str().ok().and_then(percent_decode).ok_or_else(|| {
            Problem::invalid_field(format!("ce-{name}"), "must be printable ASCII or percent-encoded UTF-8")
        })?;
        attributes.insert(name.to_owned(), value.into());
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
        Ok(plain) => ("data", serde_json::Value::from(plain).to_string()),
        Err(_) => ("data_base64", serde_json::Value::from(BASE64_STANDARD.encode(body)).to_string()),
    };
    text.pop();
    let comma = if text.len() > 1 { "," } else { "" };
    text.push_str(&format!("{comma}\"{name}\":{data}}}"));
    Ok(text)
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
