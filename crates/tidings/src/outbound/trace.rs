//! The headers that let whoever is called follow a notice back: our correlation id, and a W3C `traceparent` made from it.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use ring::digest::{SHA256, digest};
use tidings_core::trace;
use uuid::Uuid;

const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// Of a trace's id, in digits.
const TRACE_BYTES: usize = 32;
/// Of a whole `traceparent`.
const PARENT_BYTES: usize = 55;

/// Adds both headers; a correlation id that fits in no header is left out. `trace_id` is the trace that the first request
/// said it belongs to, beside its correlation id, and its flags.
pub fn insert(headers: &mut HeaderMap, correlation_id: &str, trace_id: Option<&str>, message_id: &str) {
    if let Ok(correlation_id) = HeaderValue::from_str(correlation_id) {
        headers.insert(CORRELATION_ID, correlation_id);
    }
    if let Ok(parent) = HeaderValue::try_from(parent(correlation_id, trace_id, message_id)) {
        headers.insert(TRACE_PARENT, parent);
    }
}

/// A `traceparent` of that trace, else of the correlation id. The span follows from the message, so that every attempt
/// says the same.
#[must_use]
pub fn parent(correlation_id: &str, trace_id: Option<&str>, message_id: &str) -> String {
    let mut parent = String::with_capacity(PARENT_BYTES);
    parent.push_str("00-");
    let flags = match trace_id.map(trace::parts) {
        Some((trace_id, flags)) => {
            parent.push_str(trace_id);
            flags
        }
        None => {
            push_trace(&mut parent, correlation_id);
            trace::SAMPLED
        }
    };
    parent.push('-');
    push_span(&mut parent, message_id);
    parent.push('-');
    parent.push_str(flags);
    parent
}

/// The trace of a correlation id: as it is if it came from a `traceparent`, a UUID's digits, and the hash of anything else.
#[must_use]
pub fn trace_of(correlation_id: &str) -> String {
    let mut trace = String::with_capacity(TRACE_BYTES);
    push_trace(&mut trace, correlation_id);
    trace
}

fn push_trace(text: &mut String, correlation_id: &str) {
    match Uuid::try_parse(correlation_id) {
        Ok(uuid) if !uuid.is_nil() => push_digits(text, uuid.as_bytes()),
        _ => push_hashed(text, correlation_id, 16),
    }
}

/// The span of a message: the half of its UUID that tells it from others made in the same millisecond, and of any other id
/// its hash.
fn push_span(text: &mut String, message_id: &str) {
    let id = Uuid::try_parse(message_id).ok();
    match id.as_ref().and_then(|id| id.as_bytes().last_chunk::<8>()).filter(|half| **half != [0; 8]) {
        Some(half) => push_digits(text, half),
        None => push_hashed(text, message_id, 8),
    }
}

/// Adds the first bytes of a text's hash, as digits.
fn push_hashed(text: &mut String, hashed: &str, bytes: usize) {
    let hash = digest(&SHA256, hashed.as_bytes());
    push_digits(text, hash.as_ref().get(..bytes).unwrap_or_default());
}

fn push_digits(text: &mut String, bytes: &[u8]) {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    text.extend(digits.filter_map(|digit| char::from_digit(digit.into(), 16)));
}

#[cfg(test)]
mod tests {
    use super::*;

    // S002-15, S002-69
    #[test]
    fn the_trace_is_the_correlation_id_where_it_can_be() {
        let trace = |id: &str| parent(id, None, "m").split('-').nth(1).unwrap().to_owned();
        assert_eq!(trace("4bf92f3577b34da6a3ce929d0e0e4736"), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace("660e9500-f39c-52e5-b827-557766551111"), "660e9500f39c52e5b827557766551111");
        for other in ["order-17", "00000000-0000-0000-0000-000000000000", ""] {
            let trace = trace(other);
            assert!(trace.len() == 32 && trace.bytes().any(|digit| digit != b'0'), "{trace}");
        }
        assert_eq!(parent("a", None, "m"), parent("a", None, "m"));
        assert_ne!(parent("a", None, "m"), parent("a", None, "n"));
        assert_eq!(parent("a", None, "m").len(), 55);
        let beside = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert!(parent("order-17", Some(beside), "m").starts_with(&format!("00-{beside}-")));
        assert!(parent("order-17", Some(beside), "m").ends_with("-01"));
        let span = |id: &str| parent("a", None, id).split('-').nth(2).unwrap().to_owned();
        assert_eq!(span("0199d1a0-3b2c-7def-8123-456789abcdef"), "8123456789abcdef");
        assert!(span(&Uuid::nil().to_string()).bytes().any(|digit| digit != b'0'), "no span is all zeros");
        let unsampled = parent("order-17", Some(&format!("{beside}-00")), "m");
        assert!(unsampled.starts_with(&format!("00-{beside}-")) && unsampled.ends_with("-00"), "{unsampled}");
    }
}
