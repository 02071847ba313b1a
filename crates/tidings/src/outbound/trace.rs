//! The headers that let whoever is called follow a notice back: our correlation id, and a W3C `traceparent` made from it.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use ring::digest::{SHA256, digest};
use uuid::Uuid;

/// Adds both headers; a correlation id that fits in no header is left out.
pub fn insert(headers: &mut HeaderMap, correlation_id: &str, message_id: &str) {
    for (name, value) in
        [("x-correlation-id", correlation_id.to_owned()), ("traceparent", parent(correlation_id, message_id))]
    {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// A `traceparent` whose trace is the correlation id: as it is if it came from a `traceparent`, a UUID's digits, and the
/// hash of anything else. The span follows from the message, so that every attempt says the same.
#[must_use]
pub fn parent(correlation_id: &str, message_id: &str) -> String {
    format!("00-{}-{}-01", trace_of(correlation_id), hashed(message_id, 8))
}

fn trace_of(correlation_id: &str) -> String {
    match Uuid::try_parse(correlation_id) {
        Ok(uuid) if !uuid.is_nil() => uuid.simple().to_string(),
        _ => hashed(correlation_id, 16),
    }
}

fn hashed(text: &str, bytes: usize) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // S002-15, S002-69
    #[test]
    fn the_trace_is_the_correlation_id_where_it_can_be() {
        let trace = |id: &str| parent(id, "m").split('-').nth(1).unwrap().to_owned();
        assert_eq!(trace("4bf92f3577b34da6a3ce929d0e0e4736"), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace("660e9500-f39c-52e5-b827-557766551111"), "660e9500f39c52e5b827557766551111");
        for other in ["order-17", "00000000-0000-0000-0000-000000000000", ""] {
            let trace = trace(other);
            assert!(trace.len() == 32 && trace.bytes().any(|digit| digit != b'0'), "{trace}");
        }
        assert_eq!(parent("a", "m"), parent("a", "m"));
        assert_ne!(parent("a", "m"), parent("a", "n"));
        assert_eq!(parent("a", "m").len(), 55);
    }
}
