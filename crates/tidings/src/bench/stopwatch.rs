//! The only place of the load generator that reads a clock.
//!
//! The rest of the system takes the time as an argument. A load generator measures real time, so it has to look; it
//! looks here and nowhere else.

use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;

/// This moment, to be subtracted from a later one.
#[expect(clippy::disallowed_methods, reason = "a load generator measures real time")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// How long ago `start` was.
#[must_use]
pub fn since(start: Instant) -> Duration {
    now().saturating_duration_since(start)
}

/// This moment by the calendar, for what is to happen at a time.
#[expect(clippy::disallowed_methods, reason = "a load generator lives in real time")]
#[must_use]
pub fn wall() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Today's date in UTC, as `2026-11-15`, for the report.
#[must_use]
pub fn today() -> String {
    wall().to_string().chars().take_while(|c| *c != 'T').collect()
}

/// The moment so many days from now, for what must not happen meanwhile.
#[must_use]
pub fn days_from_now(days: i64) -> String {
    let now = wall();
    now.saturating_add(jiff::SignedDuration::from_hours(days.saturating_mul(24))).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn today_is_a_date() {
        let today = today();
        assert_eq!(today.len(), 10, "{today}");
        assert!(today.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'), "{today}");
    }
}
