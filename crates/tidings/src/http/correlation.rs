//! One id for everything that follows from a request (SX-03, S003-69).

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tidings_core::envelope::check_name;
use tidings_core::ids::IdSource;
use tidings_core::limits::CORRELATION_CHARS;
use tidings_core::time::Timestamp;
use tidings_core::trace;

use super::params::Params;
use super::problem::Problem;
use super::route::Param;
use crate::outbound;

pub static HEADER: HeaderName = HeaderName::from_static("x-correlation-id");
static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// For lists, beside the parameter `correlationId`: the name that messages give it.
pub const ALIAS: Param = Param("correlation_id", "The same as `correlationId`");
/// As the parameter of a list.
const NAMES: [&str; 2] = ["correlationId", "correlation_id"];

/// The correlation id of the request at hand, and the `traceparent` beside it, if that says something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorrelationId(pub String, pub Option<String>);

impl CorrelationId {
    /// Where there is no trace beside it.
    #[must_use]
    pub const fn alone(id: String) -> Self {
        Self(id, None)
    }

    /// The id the request brings, else its trace id, else a new one.
    pub fn of(headers: &HeaderMap, ids: &dyn IdSource, now: Timestamp) -> Self {
        let given = headers.get(&HEADER).and_then(|value| value.to_str().ok()).filter(|text| is_acceptable(text));
        if let Some(given) = given {
            return Self(given.to_owned(), trace_beside(headers, given).map(ToOwned::to_owned));
        }
        let parent = trace_parent(headers);
        if let Some(trace) = parent.and_then(trace::trace_id) {
            return Self(trace.to_owned(), parent.filter(|parent| says_else(parent, trace)).map(ToOwned::to_owned));
        }
        Self::alone(ids.uuid(now).to_string())
    }
}

/// Refuses a request whose id cannot be taken: another one in its place would be found by nobody.
pub fn check(headers: &HeaderMap) -> Result<(), Problem> {
    let acceptable = |value: &HeaderValue| value.to_str().is_ok_and(is_acceptable);
    match headers.get(&HEADER).is_none_or(acceptable) {
        true => Ok(()),
        false => Err(Problem::invalid_field(
            "X-Correlation-ID",
            format!("must have 1 to {CORRELATION_CHARS} printable ASCII characters"),
        )),
    }
}

/// The correlation id whose part of a list is wanted; a list may know it by both of its names. Longer than `/trace` takes
/// it, nothing has one.
pub fn param(params: &mut Params) -> Option<String> {
    let [id, alias] = NAMES.map(|name| params.text(name).map(ToOwned::to_owned));
    if id.is_some() && alias.is_some() && id != alias {
        params.refuse(NAMES[1], format!("is another one than `{}`", NAMES[0]));
    }
    let (name, text) = id.map(|id| (NAMES[0], id)).or_else(|| alias.map(|id| (NAMES[1], id)))?;
    match check_name(&text, CORRELATION_CHARS) {
        Ok(()) => Some(text),
        Err(why) => {
            params.refuse(name, why);
            None
        }
    }
}

/// What an answer's header can repeat.
fn is_acceptable(text: &str) -> bool {
    (1..=CORRELATION_CHARS).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// The `traceparent` of a request, where its correlation id does not say the same: both are kept, and both go on.
#[must_use]
pub fn trace_beside<'a>(headers: &'a HeaderMap, correlation_id: &str) -> Option<&'a str> {
    trace_parent(headers).filter(|parent| says_else(parent, correlation_id))
}

/// The `traceparent` of a request.
#[must_use]
pub fn trace_parent(headers: &HeaderMap) -> Option<&str> {
    headers.get(&TRACE_PARENT)?.to_str().ok().and_then(trace::parent)
}

/// Whether a `traceparent` says something else than a correlation id: another trace, or that this one is not sampled.
#[must_use]
pub fn says_else(parent: &str, correlation_id: &str) -> bool {
    trace::flags(parent) != Some(trace::SAMPLED)
        || trace::trace_id(parent) != Some(&*outbound::trace::trace_of(correlation_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_printable_and_not_too_long() {
        for (text, good) in [
            ("order-17", true),
            ("a b", true),
            ("|7c1.2./+=?\"\\~", true),
            ("a\tb", false),
            ("", false),
            ("ä", false),
            (&"x".repeat(128), true),
            (&"x".repeat(129), false),
        ] {
            assert_eq!(is_acceptable(text), good, "{text}");
        }
    }
}
