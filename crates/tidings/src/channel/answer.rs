//! What an HTTP status means for a delivery, and `Retry-After`.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use tidings_core::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Delivered,
    Retry,
    Reject,
    /// The other side asks not to be called again.
    Gone,
}

/// For ntfy, as S002-50 says.
#[must_use]
pub const fn of_ntfy(status: u16) -> Meaning {
    match status {
        200..=299 => Meaning::Delivered,
        408 | 429 | 500..=599 => Meaning::Retry,
        _ => Meaning::Reject,
    }
}

/// For webhooks, as Standard Webhooks says. 409 is what a receiver answers that is still busy with the same id, 425
/// what one answers that wants it later. A redirect is a mistake in the address.
#[must_use]
pub const fn of_webhook(status: u16) -> Meaning {
    match status {
        200..=299 => Meaning::Delivered,
        408 | 409 | 425 | 429 | 500..=599 => Meaning::Retry,
        410 => Meaning::Gone,
        _ => Meaning::Reject,
    }
}

/// How long the other side asks us to wait: in seconds or until a date.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than fits is as long as it can be.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until = date(value, now)?;
    // A date that has passed asks for no wait.
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

/// A date in one of the three forms that a recipient must take (RFC 9110, 5.6.7).
fn date(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(at) = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text) {
        return Some(at);
    }
    let utc = |form: &str| {
        let read = jiff::civil::DateTime::strptime(form, text).ok()?;
        read.to_zoned(jiff::tz::TimeZone::UTC).ok()
    };
    if let Some(at) = utc("%a %b %e %H:%M:%S %Y") {
        return Some(at.timestamp());
    }
    // Two digits are a year of this century, unless that were more than 50 years from now.
    let at = utc("%A, %d-%b-%y %H:%M:%S GMT")?;
    let this_year = now.to_zoned(jiff::tz::TimeZone::UTC).year();
    let century = this_year - this_year.rem_euclid(100) + at.year().rem_euclid(100);
    let year = if century > this_year + 50 { century - 100 } else { century };
    at.with().year(year).build().ok().map(|at| at.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(value: &'static str) -> Option<u64> {
        let now = "2015-10-21T07:28:00Z".parse().unwrap();
        let headers = HeaderMap::from_iter([(RETRY_AFTER, http::HeaderValue::from_static(value))]);
        retry_after(&headers, now).map(|wait| wait.as_secs())
    }

    // S002-50
    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(wait("120"), Some(120));
        assert_eq!(wait("Wed, 21 Oct 2015 07:29:30 GMT"), Some(90));
        assert_eq!(wait("Wed, 21 Oct 2015 07:00:00 GMT"), Some(0));
        assert_eq!(wait("99999999999999999999999"), Some(u64::MAX));
        // RFC 9110, 5.6.7: the two obsolete forms of a date.
        assert_eq!(wait("Wednesday, 21-Oct-15 07:29:30 GMT"), Some(90));
        assert_eq!(wait("Wed Oct 21 07:29:30 2015"), Some(90));
        assert_eq!(wait("Sun Nov  1 07:28:00 2015"), Some(11 * 86_400));
        assert_eq!(wait("Sunday, 06-Nov-94 08:49:37 GMT"), Some(0), "a year that has passed");
        for nonsense in ["", "-1", "soon", "1.5"] {
            assert_eq!(wait(nonsense), None, "{nonsense}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), Timestamp::UNIX_EPOCH), None);
    }
}
