//! In which order entries stand when the clock was set back: one that comes later stands later (S001-59, S001-78).
//!
//! An entry is named for the moment its event was received. After the clock was set back that would put it behind entries
//! that came before it, where no client looks for news. Until the clock has caught up, entries are therefore named for
//! moments right after the newest one; `created_at` says what the clock said.

use std::sync::atomic::{AtomicI64, Ordering};

use tidings_core::time::Timestamp;

/// Events are received side by side; whoever is so little late has not met a clock that was set back.
const SIDE_BY_SIDE: i64 = 1_000_000_000;
/// The nanosecond of 2026-01-01, from which milliseconds are counted below.
const EPOCH: i64 = 1_767_225_600_000_000_000;
const MILLISECOND: i64 = 1_000_000;

/// Gives events their places in inboxes, as one process sees the clock.
#[derive(Debug, Default)]
pub struct Order {
    /// The newest event that was received by a clock that went right.
    newest: AtomicI64,
    /// The latest place that was given.
    last: AtomicI64,
}

impl Order {
    /// The moment that entries of an event are named for: when it was received, unless the clock was set back since others
    /// were.
    #[must_use]
    pub fn place(&self, received_at: Timestamp) -> Timestamp {
        let Ok(received) = i64::try_from(received_at.as_nanosecond()) else { return received_at };
        if received.saturating_add(SIDE_BY_SIDE) >= self.last.load(Ordering::Acquire) {
            self.newest.fetch_max(received, Ordering::AcqRel);
            self.last.fetch_max(received, Ordering::AcqRel);
            return received_at;
        }
        // A millisecond of the clock is a nanosecond here: later events have later places, and a day is a tenth of a second.
        let since = received.saturating_sub(EPOCH).max(0) / MILLISECOND;
        let place = self.newest.load(Ordering::Acquire).saturating_add(1).saturating_add(since);
        self.last.fetch_max(place, Ordering::AcqRel);
        Timestamp::from_nanosecond(place.into()).unwrap_or(received_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn while_the_clock_goes_right_a_place_is_the_moment() {
        let order = Order::default();
        for text in ["2026-03-01T12:00:00Z", "2026-03-01T12:00:02Z", "2026-03-01T12:00:01Z", "2026-03-02T00:00:00Z"] {
            assert_eq!(order.place(at(text)), at(text));
        }
    }

    #[test]
    fn after_the_clock_was_set_back_places_go_on_until_it_has_caught_up() {
        let order = Order::default();
        let before = order.place(at("2026-03-01T12:00:00Z"));
        let mut last = before;
        for text in ["10:00:00", "10:00:00.002", "10:30:00", "11:59:58", "09:00:00", "11:59:59.5"] {
            let place = order.place(at(&format!("2026-03-01T{text}Z")));
            assert!(place > before && place.duration_since(before).as_secs() < 60, "{text}: {place}");
            if text != "09:00:00" {
                assert!(place > last || text == "11:59:59.5", "{text}");
                last = place.max(last);
            }
        }
        let right = at("2026-03-01T12:01:00Z");
        assert_eq!(order.place(right), right);
    }
}
