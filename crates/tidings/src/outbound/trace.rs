//! The headers that let whoever is called follow a notice back: our correlation id, and a W3C `traceparent` made from it.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use ring::digest::{SHA256, digest};
use uuid::Uuid;

/// Adds both headers; a correlation id that fits in no header is left out. `trace_id` is the trace that the first request
/// said it belongs to, beside its correlation id.
pub fn insert(headers: &mut HeaderMap, correlation_id: &str, trace_id: Option<&str>, message_id: &str) {
    let parent = parent(correlation_id, trace_id, message_id);
    for (name, value) in [("x-correlation-id", correlation_id.to_owned()), ("traceparent", parent)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// A `traceparent` of that trace, else of the correlation id. The span follows from the message, so that every attempt
/// says the same.
#[must_use]
pub fn parent(correlation_id: &str, trace_id: Option<&str>, message_id: &str) -> String {
    let trace = trace_id.map_or_else(|| trace_of(correlation_id), ToOwned::to_owned);
    format!("00-{trace}-{}-01", hashed(message_id, 8))
}

/// The trace of a correlation id: as it is if it came from a `traceparent`, a UUID's digits, and the hash of anything else.
#[must_use]
pub fn trace_of(correlation_id: &str) -> String {
    match Uuid::try_parse(correlation_id) {
        Ok(uuid) if !uuid.is_nil() => uuid.simple().to_string(),
        _ => hashed(correlation_id, 16),
    }
}

/// The first bytes of a text's hash, as digits.
fn hashed(text: &str, bytes: usize) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let first = hash.as_ref().first_chunk().map_or(0, |first| u128::from_be_bytes(*first));
    let mut digits = format!("{first:032x}");
    digits.truncate(bytes * 2);
    digits
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
    }
}
