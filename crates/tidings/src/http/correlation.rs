//! One id for everything that follows from a request (SX-03, S003-69).

use axum::http::HeaderMap;
use tidings_core::ids::IdSource;
use tidings_core::limits::CORRELATION_CHARS;
use tidings_core::time::Timestamp;

pub const HEADER: &str = "x-correlation-id";

/// The correlation id of the request at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorrelationId(pub String);

impl CorrelationId {
    /// The id the request brings, else its trace id, else a new one.
    pub fn of(headers: &HeaderMap, ids: &dyn IdSource, now: Timestamp) -> Self {
        let given = headers.get(HEADER).and_then(|value| value.to_str().ok()).filter(|text| is_acceptable(text));
        if let Some(given) = given {
            return Self(given.to_owned());
        }
        if let Some(trace) = headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(trace_id) {
            return Self(trace.to_owned());
        }
        Self(ids.uuid(now).to_string())
    }
}

/// Letters, digits and `._:-` only: an id goes into headers, logs and keys.
fn is_acceptable(text: &str) -> bool {
    (1..=CORRELATION_CHARS).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
}

/// The trace id of a W3C `traceparent`, if it is a valid one.
fn trace_id(header: &str) -> Option<&str> {
    let mut parts = header.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let well_formed = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2);
    let extra_allowed = version != "00" || parts.next().is_none();
    let not_zero = trace.bytes().any(|b| b != b'0') && parent.bytes().any(|b| b != b'0');
    (well_formed && extra_allowed && not_zero).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_traceparent_gives_an_id() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(trace_id(good), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert!(trace_id(&format!("{good}-x")).is_none());
        assert!(trace_id(&good.replace("4b", "4B")).is_none());
        assert!(trace_id("00-00000000000000000000000000000000-00f067aa0ba902b7-01").is_none());
        assert!(trace_id("").is_none());
    }

    #[test]
    fn an_id_with_odd_characters_is_replaced() {
        for (text, good) in [
            ("order-17", true),
            ("a b", false),
            ("", false),
            ("ä", false),
            (&"x".repeat(128), true),
            (&"x".repeat(129), false),
        ] {
            assert_eq!(is_acceptable(text), good, "{text}");
        }
    }
}
