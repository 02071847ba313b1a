//! Time as an argument: the `Clock` everybody asks, and the one place that formats instants.

use std::sync::Mutex;
use std::time::Duration;

pub use jiff::Timestamp;

/// Where the system learns the time. Only the binary's `clock.rs` implements it on the real clocks.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, which may jump; for timestamps, schedules and expiry.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment, which never goes backward; for leases, backoff and measuring.
    fn monotonic(&self) -> Duration;
}

/// A clock that moves only when told to, for tests and simulations.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<(Timestamp, Duration)>,
}

impl ManualClock {
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { state: Mutex::new((now, Duration::ZERO)) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut state = self.lock();
        state.1 += by;
        state.0 = state.0.saturating_add(by).unwrap_or(Timestamp::MAX);
    }

    /// Lets the wall clock jump, in either direction, as an operator or NTP would; monotonic time stays.
    pub fn jump_to(&self, now: Timestamp) {
        self.lock().0 = now;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Timestamp, Duration)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.lock().0
    }

    fn monotonic(&self) -> Duration {
        self.lock().1
    }
}

/// `2026-11-15T12:34:56.789Z`: UTC with exactly three decimals, so that text order is time order.
#[must_use]
pub fn iso_millis(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// `2026-11-15T12:34:56.789012Z`: UTC with exactly six decimals, so that text order is time order.
#[must_use]
pub fn iso_micros(at: Timestamp) -> String {
    format!("{at:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_a_fixed_width() {
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(iso_millis(at), "2026-01-02T03:04:05.000Z");
        assert_eq!(iso_micros(at), "2026-01-02T03:04:05.000000Z");
        let at: Timestamp = "2026-01-02T03:04:05.1234567+02:00".parse().unwrap();
        assert_eq!(iso_millis(at), "2026-01-02T01:04:05.123Z");
        assert_eq!(iso_micros(at), "2026-01-02T01:04:05.123456Z");
    }

    // SX-26
    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = ManualClock::new(start);
        assert_eq!(clock.now(), start);
        clock.advance(Duration::from_secs(72 * 3600));
        assert_eq!(clock.now().to_string(), "2026-01-04T00:00:00Z");
        clock.jump_to(start);
        assert_eq!((clock.now(), clock.monotonic()), (start, Duration::from_secs(72 * 3600)));
    }
}
