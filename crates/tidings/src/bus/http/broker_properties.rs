//! `BrokerProperties` and custom properties, in headers and in batches.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::time::Timestamp;

use crate::bus::Message;
use crate::bus::message::{ADDRESS_CHARS, NAME_CHARS, PROPERTIES, TEXT_CHARS};
use crate::bus::state::Held;

/// The header that holds what the broker knows.
pub const HEADER: &str = "brokerproperties";

/// Reads the properties of the broker into a message; names every one that is wrong.
pub fn read(fields: &Map<String, Value>, message: &mut Message, at: &str, errors: &mut Vec<FieldError>) {
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let wrong = match name.as_str() {
            "TimeToLive" | "TimeToLiveTimeSpan" => time_to_live(name, value).map(|ttl| message.ttl = Some(ttl)).err(),
            "ScheduledEnqueueTimeUtc" => time(value).map(|at| message.deliver_at = Some(at)).err(),
            _ => match slot(name, message) {
                Some((slot, most)) => text(value, most).map(|text| *slot = Some(text)).err(),
                None if name == "MessageId" => text(value, TEXT_CHARS).map(|text| message.id = text).err(),
                // Whatever else a client may say is for other brokers.
                None => None,
            },
        };
        errors.extend(wrong.map(|why| FieldError::new(format!("{at}{name}"), why)));
    }
    if let (Some(session), Some(partition)) = (&message.session_id, &message.partition_key)
        && session != partition
    {
        errors.push(FieldError::new(format!("{at}PartitionKey"), "must be the same as SessionId, or be left out"));
    }
}

fn slot<'a>(name: &str, message: &'a mut Message) -> Option<(&'a mut Option<String>, usize)> {
    Some(match name {
        "CorrelationId" => (&mut message.correlation_id, TEXT_CHARS),
        "Label" | "Subject" => (&mut message.subject, TEXT_CHARS),
        "SessionId" => (&mut message.session_id, TEXT_CHARS),
        "ReplyToSessionId" => (&mut message.reply_to_session_id, TEXT_CHARS),
        "PartitionKey" => (&mut message.partition_key, TEXT_CHARS),
        "To" => (&mut message.to, ADDRESS_CHARS),
        "ReplyTo" => (&mut message.reply_to, ADDRESS_CHARS),
        "ContentType" => (&mut message.content_type, TEXT_CHARS),
        "Key" => (&mut message.key, TEXT_CHARS),
        _ => return None,
    })
}

fn text(value: &Value, most: usize) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let good = (1..=most).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if good { Ok(text) } else { Err(format!("must be a text of 1 to {most} characters, without control characters")) }
}

/// Seconds, or `d.hh:mm:ss`.
fn time_to_live(name: &str, value: &Value) -> Result<Duration, String> {
    let seconds = match (name, value) {
        ("TimeToLive", Value::Number(number)) => number.as_f64(),
        ("TimeToLiveTimeSpan", Value::String(text)) => time_span(text),
        _ => None,
    };
    let ttl = seconds.filter(|seconds| *seconds > 0.0).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    ttl.ok_or_else(|| match name {
        _ if seconds.is_some_and(|seconds| seconds > 0.0) => {
            format!("is too long, at most {} s are possible", u64::MAX)
        }
        "TimeToLive" => "must be a number of seconds above 0".to_owned(),
        _ => "must be a time span above 0 as in 1.12:30:00 (days.hours:minutes:seconds)".to_owned(),
    })
}

fn time_span(text: &str) -> Option<f64> {
    // No sign, no exponent, no word that a number can be, too.
    if !text.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ':') {
        return None;
    }
    let (days, rest) = match text.split_once('.') {
        Some((days, rest)) if rest.contains(':') => (days.parse::<u32>().ok()?, rest),
        _ => (0, text),
    };
    let parts: Vec<f64> = rest.split(':').map(|part| part.parse::<f64>().ok()).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = parts.as_slice() else { return None };
    let total = f64::from(days) * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds;
    total.is_finite().then_some(total)
}

/// RFC 1123, or ISO 8601.
fn time(value: &Value) -> Result<Timestamp, String> {
    let text = value.as_str().unwrap_or_default();
    let read = tidings_core::time::read(text).or_else(|| {
        let zoned = jiff::fmt::rfc2822::DateTimeParser::new().parse_zoned(text).ok()?;
        Some(zoned.timestamp())
    });
    // There are a few hours more in a calendar than in any zone's time.
    let is_late =
        || text.trim_end_matches(['Z', 'z']).parse::<jiff::civil::DateTime>().is_ok_and(|at| at.year() == 9999);
    read.ok_or_else(|| match is_late() {
        true => format!("is too late, the last time there is is {}", Timestamp::MAX),
        false => "must be a time as in Sun, 06 Nov 1994 08:49:37 GMT or 1994-11-06T08:49:37Z".to_owned(),
    })
}

/// Reads custom properties given as JSON.
pub fn read_custom(fields: &Map<String, Value>, at: &str, errors: &mut Vec<FieldError>) -> BTreeMap<String, Value> {
    let mut properties = BTreeMap::new();
    if fields.len() > PROPERTIES {
        errors.push(FieldError::new(at, format!("has {} properties, at most {PROPERTIES} are allowed", fields.len())));
        return properties;
    }
    for (name, value) in fields {
        if let Err(why) = check_custom(name, value) {
            errors.push(FieldError::new(format!("{at}.{name}"), why));
        }
        properties.insert(name.clone(), value.clone());
    }
    properties
}

fn check_custom(name: &str, value: &Value) -> Result<(), String> {
    if !(1..=NAME_CHARS).contains(&name.chars().count()) || name.chars().any(char::is_control) {
        return Err(format!("must have a name of 1 to {NAME_CHARS} characters"));
    }
    match value {
        Value::Array(_) | Value::Object(_) => Err("must be a string, number, boolean or null".to_owned()),
        _ => Ok(()),
    }
}

/// Headers of HTTP itself, of ours, and of those who pass requests on.
fn is_ordinary(name: &str) -> bool {
    matches!(
        name,
        "accept"
            | "accept-charset"
            | "accept-encoding"
            | "accept-language"
            | "authorization"
            | "brokerproperties"
            | "cache-control"
            | "connection"
            | "content-encoding"
            | "content-language"
            | "content-length"
            | "content-type"
            | "cookie"
            | "date"
            | "dnt"
            | "expect"
            | "forwarded"
            | "from"
            | "host"
            | "idempotency-key"
            | "keep-alive"
            | "origin"
            | "pragma"
            | "proxy-authorization"
            | "proxy-connection"
            | "referer"
            | "te"
            | "traceparent"
            | "tracestate"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "user-agent"
            | "via"
            | "x-correlation-id"
    )
}

/// Whether a header of a message that is sent is one of its custom properties.
pub fn is_custom(name: &str) -> bool {
    !is_ordinary(name) && !["x-ms-", "x-forwarded-", "sec-", "x-real-"].iter().any(|prefix| name.starts_with(prefix))
}

/// The custom properties among a request's headers: JSON where it is a single value, else the text as it is.
pub fn from_headers(headers: &HeaderMap, errors: &mut Vec<FieldError>) -> BTreeMap<String, Value> {
    let mut properties = BTreeMap::new();
    for (name, value) in headers {
        let name = name.as_str();
        if !is_custom(name) {
            continue;
        }
        let Ok(text) = std::str::from_utf8(value.as_bytes()) else {
            errors.push(FieldError::new(name, "must be UTF-8"));
            continue;
        };
        let json = serde_json::from_str::<Value>(text).ok().filter(|json| !json.is_array() && !json.is_object());
        let json = json.unwrap_or_else(|| Value::from(text));
        if let Err(why) = check_custom(name, &json) {
            errors.push(FieldError::new(name, why));
        }
        properties.insert(name.to_owned(), json);
    }
    if properties.len() > PROPERTIES {
        errors.push(FieldError::new("", format!("there are more than {PROPERTIES} properties")));
    }
    properties
}

/// The properties of a message that was received, as headers.
pub fn to_headers(held: &Held, token: Option<uuid::Uuid>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let content_type = held.message.message.content_type.as_deref().unwrap_or("application/octet-stream");
    let content_type = HeaderValue::from_str(content_type).ok();
    let plain = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, content_type.unwrap_or(plain));
    insert(&mut headers, &shown(held, token), &held.message.message.properties);
    headers
}

/// Adds the properties of the broker and the custom ones.
pub fn insert<'a>(headers: &mut HeaderMap, broker: &Value, custom: impl IntoIterator<Item = (&'a String, &'a Value)>) {
    if let Ok(value) = HeaderValue::from_str(&ascii(broker)) {
        headers.insert(HEADER, value);
    }
    for (name, value) in custom {
        let ordinary = is_ordinary(&name.to_ascii_lowercase());
        // What cannot be a header is in the answers of `receive`.
        if let (Ok(name), Ok(value), false) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&ascii(value)), ordinary)
        {
            headers.insert(name, value);
        }
    }
}

/// What the broker knows of a message that was received.
pub fn shown(held: &Held, token: Option<uuid::Uuid>) -> Value {
    let stored = &held.message;
    let message = &stored.message;
    let mut fields = Map::new();
    let mut text = |name: &str, value: Option<&String>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value.clone().into());
        }
    };
    text("MessageId", Some(&message.id));
    text("CorrelationId", message.correlation_id.as_ref());
    text("Label", message.subject.as_ref());
    text("SessionId", message.session_id.as_ref());
    text("ReplyToSessionId", message.reply_to_session_id.as_ref());
    text("PartitionKey", message.partition_key.as_ref());
    text("To", message.to.as_ref());
    text("ReplyTo", message.reply_to.as_ref());
    text("Key", message.key.as_ref());
    fields.insert("DeliveryCount".to_owned(), held.deliveries.into());
    fields.insert("SequenceNumber".to_owned(), stored.sequence.into());
    let first = stored.enqueued_sequence.unwrap_or(stored.sequence);
    fields.insert("EnqueuedSequenceNumber".to_owned(), first.into());
    fields.insert("EnqueuedTimeUtc".to_owned(), http_date(stored.enqueued_at).into());
    if let Some(token) = token {
        fields.insert("LockToken".to_owned(), token.to_string().into());
        fields.insert("LockedUntilUtc".to_owned(), http_date(held.locked_until).into());
    }
    if let Some(ttl) = message.ttl {
        fields.insert("TimeToLive".to_owned(), ttl.as_secs_f64().into());
    }
    if let Some(expires) = stored.expires_at {
        fields.insert("ExpiresAtUtc".to_owned(), http_date(expires).into());
    }
    if let Some(dead) = &stored.dead {
        fields.insert("DeadLetterSource".to_owned(), dead.source.clone().into());
    }
    let state = if matches!(held.place, crate::bus::layout::Place::Deferred(_)) { "Deferred" } else { "Active" };
    fields.insert("State".to_owned(), state.into());
    Value::Object(fields)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(at: Timestamp) -> String {
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&at).unwrap_or_else(|_| at.to_string())
}

/// JSON whose other characters are escaped: a header holds ASCII.
fn ascii(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(fields: Value) -> Result<Message, Vec<String>> {
        let (mut message, mut errors) = (Message::default(), Vec::new());
        read(fields.as_object().unwrap(), &mut message, "", &mut errors);
        if errors.is_empty() { Ok(message) } else { Err(errors.into_iter().map(|e| e.field).collect()) }
    }

    #[test]
    fn every_wrong_property_is_named() {
        let wrong = message(json!({
            "MessageId": "", "Label": {}, "TimeToLive": -1, "TimeToLiveTimeSpan": "1:2",
            "ScheduledEnqueueTimeUtc": "soon", "SessionId": "a", "PartitionKey": "b", "Unknown": []
        }));
        let mut wrong = wrong.unwrap_err();
        wrong.sort();
        let expected =
            ["Label", "MessageId", "PartitionKey", "ScheduledEnqueueTimeUtc", "TimeToLive", "TimeToLiveTimeSpan"];
        assert_eq!(wrong, expected);
    }

    #[test]
    fn times_come_in_two_forms() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37Z"] {
            let read = message(json!({ "ScheduledEnqueueTimeUtc": text })).unwrap();
            assert_eq!(read.deliver_at.unwrap().to_string(), "1994-11-06T08:49:37Z", "{text}");
        }
        for text in
            ["-00:01:00", "00:-1:00", "+00:01:00", "00:01:-0", "1e1:00:00", "inf:00:00", "00:00:00", "-1.00:00:01"]
        {
            assert_eq!(message(json!({ "TimeToLiveTimeSpan": text })).unwrap_err(), ["TimeToLiveTimeSpan"], "{text}");
        }
        let read = message(json!({ "TimeToLiveTimeSpan": "1.02:03:04.5" })).unwrap();
        assert_eq!(read.ttl.unwrap().as_secs_f64(), 86_400.0 + 7384.5);
        assert_eq!(http_date("1994-11-06T08:49:37Z".parse().unwrap()), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn headers_hold_ascii() {
        assert_eq!(ascii(&json!("käse 🧀")), "\"k\\u00e4se \\ud83e\\uddc0\"");
    }
}
