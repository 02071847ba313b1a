//! The one event model: what every source's input becomes (SX-01).

use serde_json::value::RawValue;

use crate::json::{BadJson, Fields, check_values};
use crate::limits::{CORRELATION_CHARS, EXTENSIONS, JSON_DEPTH, NAME_CHARS, SOURCE_CHARS, SUBJECT_CHARS};
use crate::time::{self, Timestamp};

/// CloudEvents' extension for W3C trace context.
const TRACE_PARENT: &str = "traceparent";

/// An event as it is accepted: validated, with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub event_id: String,
    pub event_type: String,
    pub event_version: String,
    pub event_timestamp: Timestamp,
    pub correlation_id: String,
    pub source: Option<String>,
    pub subject: Option<String>,
    /// The text of a JSON object, as it came.
    pub data: String,
    /// Fields beyond the envelope's own: name and JSON text, as they came.
    pub extensions: Vec<(String, String)>,
}

impl Envelope {
    /// Keeps the request's `traceparent` as CloudEvents has it, unless the event brought its own.
    pub fn join_trace(&mut self, parent: &str) {
        let is_known = self.extensions.iter().any(|(name, _)| name == TRACE_PARENT);
        if !is_known && self.extensions.len() < EXTENSIONS {
            self.extensions.push((TRACE_PARENT.to_owned(), format!("\"{parent}\"")));
        }
    }

    /// The text of the one `eventType` that the event's JSON has; `None` if an adapter took up another field of that name.
    #[must_use]
    pub fn only_type(&self) -> Option<&str> {
        let is_alone = self.extensions.iter().all(|(name, _)| name != "eventType");
        is_alone.then_some(&*self.event_type)
    }

    /// The W3C trace that the event says it belongs to.
    #[must_use]
    pub fn trace_id(&self) -> Option<&str> {
        crate::trace::trace_id(self.trace_parent()?)
    }

    /// The same as it came, with the caller's span.
    #[must_use]
    pub fn trace_parent(&self) -> Option<&str> {
        let (_, parent) = self.extensions.iter().find(|(name, _)| name == TRACE_PARENT)?;
        Some(parent.trim_matches('"'))
    }
}

/// One field that is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FieldError {
    pub field: String,
    pub message: String,
}

impl FieldError {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl From<BadJson> for FieldError {
    fn from(bad: BadJson) -> Self {
        Self::new("", bad.0)
    }
}

/// What an event gets that does not say it itself.
pub struct Defaults<'a> {
    pub now: Timestamp,
    pub correlation_id: &'a str,
    pub event_id: &'a dyn Fn() -> String,
}

/// Reads one event from the text of a JSON object, or names every field that is wrong.
pub fn read(text: &str, defaults: &Defaults<'_>) -> Result<Envelope, Vec<FieldError>> {
    from_fields(&crate::json::parse(text).map_err(|bad| vec![bad.into()])?, defaults)
}

/// The same from the fields of a JSON object.
pub fn from_fields(fields: &Fields<'_>, defaults: &Defaults<'_>) -> Result<Envelope, Vec<FieldError>> {
    let mut draft = Draft::default();
    for (name, value) in &fields.0 {
        let value = *value;
        // The same thing under the names that the seeds give it (SX-03, S003-56).
        match name.as_ref() {
            "eventId" => draft.event_id = Some(value),
            "eventType" => draft.event_type = Some(value),
            "eventVersion" => draft.event_version = Some(value),
            "eventTimestamp" => draft.event_timestamp = Some(value),
            "correlationId" | "correlation_id" | "CorrelationId" => draft.correlation_id = Some(value),
            "source" => draft.source = Some(value),
            "subject" => draft.subject = Some(value),
            "data" => draft.data = Some(value),
            "payload" if draft.payload.is_none() => draft.payload = Some(value),
            _ => draft.extensions.push((name.as_ref().to_owned(), value.get().to_owned())),
        }
    }
    draft.finish(defaults)
}

/// The values an adapter found for an envelope's fields, not judged yet.
#[derive(Default)]
pub(crate) struct Draft<'a> {
    pub event_id: Option<&'a RawValue>,
    pub event_type: Option<&'a RawValue>,
    pub event_version: Option<&'a RawValue>,
    pub event_timestamp: Option<&'a RawValue>,
    pub correlation_id: Option<&'a RawValue>,
    pub source: Option<&'a RawValue>,
    pub subject: Option<&'a RawValue>,
    pub data: Option<&'a RawValue>,
    pub payload: Option<&'a RawValue>,
    pub extensions: Vec<(String, String)>,
}

impl Draft<'_> {
    pub fn finish(mut self, defaults: &Defaults<'_>) -> Result<Envelope, Vec<FieldError>> {
        let mut errors = Vec::new();
        let event_id = text_field(&mut errors, "eventId", self.event_id, NAME_CHARS);
        let event_type = text_field(&mut errors, "eventType", self.event_type, NAME_CHARS);
        if event_type.is_none() && errors.iter().all(|error| error.field != "eventType") {
            errors.push(FieldError::new("eventType", "is required"));
        }
        let event_version = text_field(&mut errors, "eventVersion", self.event_version, NAME_CHARS);
        if event_version.as_deref().is_some_and(|version| !is_version(version)) {
            errors.push(FieldError::new("eventVersion", "must be a version such as \"1.0\" or \"1.0.0\""));
        }
        let event_timestamp = given(self.event_timestamp).map(|value| read_time(value.get())).transpose();
        let event_timestamp = event_timestamp.unwrap_or_else(|message| {
            errors.push(FieldError::new("eventTimestamp", message));
            None
        });
        let correlation_id = text_field(&mut errors, "correlationId", self.correlation_id, CORRELATION_CHARS);
        let source = text_field(&mut errors, "source", self.source, SOURCE_CHARS);
        let subject = text_field(&mut errors, "subject", self.subject, SUBJECT_CHARS);
        if let (Some(_), Some(payload)) = (self.data, self.payload) {
            self.extensions.push(("payload".to_owned(), payload.get().to_owned()));
        }
        let data = given(self.data.or(self.payload)).map_or("{}", RawValue::get);
        // By the name that it was sent under.
        let data_name = if self.data.is_none() && self.payload.is_some() { "payload" } else { "data" };
        if !data.starts_with('{') {
            errors.push(FieldError::new(data_name, "must be an object"));
        }
        // The rest is kept as it came, and must mean something to whoever reads it later.
        let rest = self.extensions.iter().map(|(name, json)| (name.as_str(), json.as_str()));
        for (name, json) in std::iter::once((data_name, data)).chain(rest) {
            errors.extend(check_values(json).err().map(|bad| FieldError::new(name, bad.0)));
        }
        if self.extensions.len() > EXTENSIONS {
            errors.push(FieldError::new(
                "",
                format!("the event has more than {EXTENSIONS} fields beyond the envelope's own"),
            ));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Envelope {
            event_id: event_id.unwrap_or_else(defaults.event_id),
            event_type: event_type.unwrap_or_default(),
            event_version: event_version.unwrap_or_else(|| "1.0".to_owned()),
            event_timestamp: event_timestamp.unwrap_or(defaults.now),
            correlation_id: correlation_id.unwrap_or_else(|| defaults.correlation_id.to_owned()),
            source,
            subject,
            data: data.to_owned(),
            extensions: self.extensions,
        })
    }
}

/// What a sender calls an event, and what it belongs to, as far as the fields say it; whatever else is wrong with them.
#[must_use]
pub fn ids_in(fields: &Fields<'_>, id_field: &str) -> (Option<String>, Option<String>) {
    let text = |names: &[&str], most| {
        let (_, value) = fields.0.iter().rfind(|(name, _)| names.contains(&name.as_ref()))?;
        text_of(value.get()).filter(|text| check_name(text, most).is_ok())
    };
    let correlation = ["correlationId", "correlation_id", "CorrelationId", "correlationid"];
    (text(&[id_field], NAME_CHARS), text(&correlation, CORRELATION_CHARS))
}

/// A field that is there and not null.
pub(crate) fn given(value: Option<&RawValue>) -> Option<&RawValue> {
    value.filter(|value| value.get() != "null")
}

fn text_field(errors: &mut Vec<FieldError>, field: &str, value: Option<&RawValue>, most: usize) -> Option<String> {
    let value = given(value)?;
    let Some(text) = text_of(value.get()) else {
        errors.push(FieldError::new(field, "must be a string"));
        return None;
    };
    match check_name(&text, most) {
        Ok(()) => Some(text),
        Err(message) => {
            errors.push(FieldError::new(field, message));
            None
        }
    }
}

/// The text of a JSON string; without a backslash it stands there as it is.
fn text_of(json: &str) -> Option<String> {
    match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Some(plain.to_owned()),
        _ => serde_json::from_str(json).ok(),
    }
}

/// Whether text can be a name: not empty, not too long, no control characters.
pub fn check_name(text: &str, most: usize) -> Result<(), String> {
    // Most names are short and plain, and one look tells, without a branch for each byte.
    let is_plain = || text.bytes().fold(true, |so_far, byte| so_far & byte.is_ascii_graphic());
    if (1..=most).contains(&text.len()) && is_plain() {
        return Ok(());
    }
    if text.trim().is_empty() {
        Err("must not be empty".to_owned())
    } else if text.chars().count() > most {
        Err(format!("must have at most {most} characters"))
    } else if text.chars().any(char::is_control) {
        Err("must not contain control characters".to_owned())
    } else {
        Ok(())
    }
}

fn is_version(text: &str) -> bool {
    text.split('.').count() <= 3
        && text.split('.').all(|part| (1..=9).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()))
}

/// The time a JSON value names: ISO 8601 text, or a number since 1970 in s, ms, µs or ns by its magnitude
/// (S003-58, S001-40).
pub fn read_time(json: &str) -> Result<Timestamp, String> {
    const BAD: &str =
        "must be a time as in \"2026-01-31T12:00:00Z\", from 1970 to 9999-12-30T22:00:00Z, to the nanosecond at most";
    let at = if let Ok(text) = serde_json::from_str::<String>(json) {
        time::read(&text).ok_or_else(|| match text.parse::<Timestamp>() {
            Ok(_) => "must be a time whose offset from UTC is less than a day".to_owned(),
            Err(_) => BAD.to_owned(),
        })?
    } else {
        let number: f64 = serde_json::from_str(json).map_err(|_| BAD.to_owned())?;
        epoch(json, number).ok_or_else(|| BAD.to_owned())?
    };
    let year = at.to_zoned(jiff::tz::TimeZone::UTC).year();
    // No later one can be read.
    if year >= 1970 { Ok(at) } else { Err("must not be before 1970-01-01T00:00:00Z".to_owned()) }
}

#[expect(clippy::cast_possible_truncation, reason = "the magnitude is checked, and fractions below 1 ns do not matter")]
fn epoch(json: &str, number: f64) -> Option<Timestamp> {
    let per_second: i128 = match number.abs() {
        n if n < 1e11 => 1,
        n if n < 1e14 => 1_000,
        n if n < 1e17 => 1_000_000,
        n if n < 1e20 => 1_000_000_000,
        _ => return None,
    };
    let nanos = match json.parse::<i128>() {
        Ok(whole) => whole * (1_000_000_000 / per_second),
        Err(_) => (number * (1_000_000_000 / per_second) as f64) as i128,
    };
    Timestamp::from_nanosecond(nanos).ok()
}

impl Envelope {
    /// Refuses what is deeper as an event than it was as it came: an adapter may put data inside something else.
    pub fn check_depth(&self) -> Result<(), Vec<FieldError>> {
        let rest = self.extensions.iter().map(|(name, json)| (name.as_str(), json.as_str()));
        let errors: Vec<_> = std::iter::once(("data", self.data.as_str()))
            .chain(rest)
            .filter(|(_, json)| crate::json::check_depth_within(json, 1).is_err())
            .map(|(name, _)| {
                FieldError::new(name, format!("is nested deeper than {JSON_DEPTH} levels, those around it included"))
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The event as JSON text with its fields in a fixed order: what rules see and what is stored.
    #[must_use]
    pub fn to_json(&self) -> String {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let names = self.event_id.len() + self.event_type.len() + self.event_version.len() + self.correlation_id.len();
        let optional = length(&self.source) + length(&self.subject);
        let more = self.extensions.iter().map(|(name, json)| name.len() + json.len() + 4).sum::<usize>();
        // What stands between them, and room for something to be escaped.
        let mut out = String::with_capacity(names + optional + self.data.len() + more + 192);
        push_field(&mut out, "{\"eventId\":", &self.event_id);
        push_field(&mut out, ",\"eventType\":", &self.event_type);
        push_field(&mut out, ",\"eventVersion\":", &self.event_version);
        out.push_str(",\"eventTimestamp\":\"");
        time::push_iso_micros(&mut out, self.event_timestamp);
        push_field(&mut out, "\",\"correlationId\":", &self.correlation_id);
        for (name, value) in [(",\"source\":", &self.source), (",\"subject\":", &self.subject)] {
            if let Some(value) = value {
                push_field(&mut out, name, value);
            }
        }
        out.push_str(",\"data\":");
        out.push_str(&self.data);
        for (name, json) in &self.extensions {
            push_field(&mut out, ",", name);
            out.push(':');
            out.push_str(json);
        }
        out.push('}');
        out
    }
}

/// Appends a JSON string after what stands before it; text without anything to escape is copied whole.
fn push_field(out: &mut String, before: &str, text: &str) {
    out.push_str(before);
    // Looked at to its end, which the processor does many bytes at a time.
    let plain = |byte: u8| (byte >= 0x20) & (byte != b'"') & (byte != b'\\');
    if text.bytes().fold(true, |so_far, byte| so_far & plain(byte)) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::Value::from(text).to_string());
    }
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
