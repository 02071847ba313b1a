//! The one event model: what every source's input becomes (SX-01).

use std::borrow::Cow;

use crate::json::{BadJson, Members, check_values};
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

/// The same as long as its texts stand elsewhere, most of them in the request that brought it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lent<'a> {
    pub event_id: Cow<'a, str>,
    pub event_type: Cow<'a, str>,
    pub event_version: Cow<'a, str>,
    pub event_timestamp: Timestamp,
    pub correlation_id: Cow<'a, str>,
    pub source: Option<Cow<'a, str>>,
    pub subject: Option<Cow<'a, str>>,
    pub data: Cow<'a, str>,
    pub extensions: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl Lent<'_> {
    /// Keeps the request's `traceparent` as CloudEvents has it, unless the event brought its own.
    pub fn join_trace(&mut self, parent: &str) {
        join_trace(&mut self.extensions, parent);
    }

    /// The text of the one `eventType` that the event's JSON has; `None` if an adapter took up another field of that name.
    #[must_use]
    pub fn only_type(&self) -> Option<&str> {
        let is_alone = self.extensions.iter().all(|(name, _)| name != "eventType");
        is_alone.then_some(&*self.event_type)
    }

    /// An envelope with texts of its own.
    #[must_use]
    pub fn into_envelope(self) -> Envelope {
        let own = |text: Cow<'_, str>| text.into_owned();
        Envelope {
            event_id: own(self.event_id),
            event_type: own(self.event_type),
            event_version: own(self.event_version),
            event_timestamp: self.event_timestamp,
            correlation_id: own(self.correlation_id),
            source: self.source.map(own),
            subject: self.subject.map(own),
            data: own(self.data),
            extensions: self.extensions.into_iter().map(|(name, json)| (own(name), own(json))).collect(),
        }
    }
}

impl From<Envelope> for Lent<'static> {
    fn from(envelope: Envelope) -> Self {
        Self {
            event_id: envelope.event_id.into(),
            event_type: envelope.event_type.into(),
            event_version: envelope.event_version.into(),
            event_timestamp: envelope.event_timestamp,
            correlation_id: envelope.correlation_id.into(),
            source: envelope.source.map(Cow::from),
            subject: envelope.subject.map(Cow::from),
            data: envelope.data.into(),
            extensions: envelope.extensions.into_iter().map(|(name, json)| (name.into(), json.into())).collect(),
        }
    }
}

impl Envelope {
    /// The envelope for somebody who only looks at it.
    #[must_use]
    pub fn lent(&self) -> Lent<'_> {
        Lent {
            event_id: (&*self.event_id).into(),
            event_type: (&*self.event_type).into(),
            event_version: (&*self.event_version).into(),
            event_timestamp: self.event_timestamp,
            correlation_id: (&*self.correlation_id).into(),
            source: self.source.as_deref().map(Cow::from),
            subject: self.subject.as_deref().map(Cow::from),
            data: (&*self.data).into(),
            extensions: self.extensions.iter().map(|(name, json)| ((&**name).into(), (&**json).into())).collect(),
        }
    }

    /// See [`Lent::join_trace`].
    pub fn join_trace(&mut self, parent: &str) {
        join_trace(&mut self.extensions, parent);
    }

    /// The W3C trace that the event says it belongs to, as [`crate::trace::carried`] has it.
    #[must_use]
    pub fn trace_id(&self) -> Option<String> {
        crate::trace::carried(self.trace_parent()?)
    }

    /// The same as it came, with the caller's span.
    #[must_use]
    pub fn trace_parent(&self) -> Option<&str> {
        let (_, parent) = self.extensions.iter().find(|(name, _)| name == TRACE_PARENT)?;
        Some(parent.trim_matches('"'))
    }
}

fn join_trace<T: AsRef<str> + From<String>>(extensions: &mut Vec<(T, T)>, parent: &str) {
    let is_known = extensions.iter().any(|(name, _)| name.as_ref() == TRACE_PARENT);
    if !is_known && extensions.len() < EXTENSIONS {
        extensions.push((TRACE_PARENT.to_owned().into(), format!("\"{parent}\"").into()));
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
    let fields = crate::json::object(text).map_err(|bad| vec![bad.into()])?;
    from_fields(&fields, defaults, defaults.correlation_id).map(Lent::into_envelope)
}

/// The same from the fields of a JSON object. The correlation id that an event gets is lent as its other texts are.
pub fn from_fields<'a>(
    fields: &Members<'a>,
    defaults: &Defaults<'_>,
    correlation_id: &'a str,
) -> Result<Lent<'a>, Vec<FieldError>> {
    let mut draft = Draft { is_sound: fields.is_sound, ..Draft::default() };
    for (name, value) in &fields.all {
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
            _ => draft.extensions.push((name.clone(), value.into())),
        }
    }
    draft.finish(defaults, correlation_id)
}

/// The values an adapter found for an envelope's fields, not judged yet.
#[derive(Default)]
pub(crate) struct Draft<'a> {
    pub event_id: Option<&'a str>,
    pub event_type: Option<&'a str>,
    pub event_version: Option<&'a str>,
    pub event_timestamp: Option<&'a str>,
    pub correlation_id: Option<&'a str>,
    pub source: Option<&'a str>,
    pub subject: Option<&'a str>,
    pub data: Option<&'a str>,
    pub payload: Option<&'a str>,
    pub extensions: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Whether all of them mean something: see [`check_values`].
    pub is_sound: bool,
}

impl<'a> Draft<'a> {
    pub fn finish(mut self, defaults: &Defaults<'_>, correlated: &'a str) -> Result<Lent<'a>, Vec<FieldError>> {
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
        let event_timestamp = given(self.event_timestamp).map(read_time).transpose();
        let event_timestamp = event_timestamp.unwrap_or_else(|message| {
            errors.push(FieldError::new("eventTimestamp", message));
            None
        });
        let correlation_id = text_field(&mut errors, "correlationId", self.correlation_id, CORRELATION_CHARS);
        let source = text_field(&mut errors, "source", self.source, SOURCE_CHARS);
        let subject = text_field(&mut errors, "subject", self.subject, SUBJECT_CHARS);
        if let (Some(_), Some(payload)) = (self.data, self.payload) {
            self.extensions.push(("payload".into(), payload.into()));
        }
        let data = given(self.data.or(self.payload)).unwrap_or("{}");
        // By the name that it was sent under.
        let data_name = if self.data.is_none() && self.payload.is_some() { "payload" } else { "data" };
        if !data.starts_with('{') {
            errors.push(FieldError::new(data_name, "must be an object"));
        }
        if !self.is_sound {
            // The rest is kept as it came, and must mean something to whoever reads it later.
            let rest = self.extensions.iter().map(|(name, json)| (&**name, &**json));
            for (name, json) in std::iter::once((data_name, data)).chain(rest) {
                errors.extend(check_values(json).err().map(|bad| FieldError::new(name, bad.0)));
            }
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
        Ok(Lent {
            event_id: event_id.unwrap_or_else(|| (defaults.event_id)().into()),
            event_type: event_type.unwrap_or_default(),
            event_version: event_version.unwrap_or(Cow::Borrowed("1.0")),
            event_timestamp: event_timestamp.unwrap_or(defaults.now),
            correlation_id: correlation_id.unwrap_or(Cow::Borrowed(correlated)),
            source,
            subject,
            data: data.into(),
            extensions: self.extensions,
        })
    }
}

/// What a sender calls an event, and what it belongs to, as far as the fields say it; whatever else is wrong with them.
#[must_use]
pub fn ids_in(fields: &Members<'_>, id_field: &str) -> (Option<String>, Option<String>) {
    let text = |names: &[&str], most| {
        let (_, value) = fields.all.iter().rfind(|(name, _)| names.contains(&name.as_ref()))?;
        text_of(value).filter(|text| check_name(text, most).is_ok()).map(Cow::into_owned)
    };
    let correlation = ["correlationId", "correlation_id", "CorrelationId", "correlationid"];
    (text(&[id_field], NAME_CHARS), text(&correlation, CORRELATION_CHARS))
}

/// A field that is there and not null.
pub(crate) fn given(value: Option<&str>) -> Option<&str> {
    value.filter(|value| *value != "null")
}

fn text_field<'a>(
    errors: &mut Vec<FieldError>,
    field: &str,
    value: Option<&'a str>,
    most: usize,
) -> Option<Cow<'a, str>> {
    let value = given(value)?;
    let Some(text) = text_of(value) else {
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
fn text_of(json: &str) -> Option<Cow<'_, str>> {
    match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Some(Cow::Borrowed(plain)),
        _ => serde_json::from_str(json).ok().map(Cow::Owned),
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
        self.lent().to_json()
    }
}

impl Lent<'_> {
    /// Bytes of the names and texts that are escaped where they need it, and of the rest.
    fn lengths(&self) -> (usize, usize) {
        let length = |text: &Option<Cow<'_, str>>| text.as_ref().map_or(0, |text| text.len());
        let names = self.event_id.len() + self.event_type.len() + self.event_version.len() + self.correlation_id.len();
        let optional = length(&self.source) + length(&self.subject);
        let (mut texts, mut rest) = (names + optional, self.data.len());
        for (name, json) in &self.extensions {
            texts += name.len();
            rest += json.len() + 4;
        }
        // What stands between them, and room for something to be escaped.
        (texts, rest + 192)
    }

    /// Bytes that the event's JSON text has at the most.
    #[must_use]
    pub fn most_json_bytes(&self) -> usize {
        let (texts, rest) = self.lengths();
        // A control character takes six.
        6 * texts + rest
    }

    /// See [`Envelope::to_json`].
    #[must_use]
    pub fn to_json(&self) -> String {
        let (texts, rest) = self.lengths();
        let mut out = String::with_capacity(texts + rest);
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
