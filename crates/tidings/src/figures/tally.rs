//! What happened since the last flush: a few counters that cost one addition each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper ends of the latency buckets in milliseconds; what is longer falls into one more.
pub const BOUNDS_MS: [u64; 16] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000];
pub const BUCKETS: usize = BOUNDS_MS.len() + 1;

/// Counts of some span of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that were accepted.
    pub events: u64,
    /// Inbox entries and messages that were made.
    pub notices: u64,
    /// Messages that were delivered.
    pub completed: u64,
    /// Messages that were given up.
    pub failed: u64,
    /// How long delivered messages took, by bucket.
    pub latency: [u64; BUCKETS],
}

impl Counts {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.notices += other.notices;
        self.completed += other.completed;
        self.failed += other.failed;
        for (mine, theirs) in self.latency.iter_mut().zip(other.latency) {
            *mine += theirs;
        }
    }

    /// Something took that long.
    pub fn took(&mut self, took: Duration) {
        if let Some(count) = self.latency.get_mut(bucket(took)) {
            *count += 1;
        }
    }

    /// The share of messages that ended well; `None` if none ended.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    pub fn success(&self) -> Option<f64> {
        let all = self.completed + self.failed;
        (all > 0).then(|| self.completed as f64 / all as f64)
    }

    /// The time within which `share` of the delivered messages were delivered, to the bucket, in milliseconds; `None`
    /// if there were none. Within a bucket they are taken to lie evenly.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        let all: u64 = self.latency.iter().sum();
        if all == 0 {
            return None;
        }
        let wanted = (all as f64 * share).max(1.0);
        let (mut seen, mut low) = (0.0, 0.0);
        for (count, high) in self.latency.iter().zip(BOUNDS_MS.iter().map(|ms| *ms as f64).chain([600_000.0])) {
            let count = *count as f64;
            if count > 0.0 && seen + count >= wanted {
                return Some(low + (high - low) * ((wanted - seen) / count));
            }
            seen += count;
            low = high;
        }
        Some(low)
    }
}

fn bucket(took: Duration) -> usize {
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    BOUNDS_MS.partition_point(|bound| *bound < ms)
}

/// The counters themselves.
#[derive(Debug, Default)]
pub struct Tally {
    events: AtomicU64,
    notices: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Tally {
    pub fn events(&self, count: u64) {
        self.events.fetch_add(count, Ordering::Relaxed);
    }

    pub fn notices(&self, count: u64) {
        self.notices.fetch_add(count, Ordering::Relaxed);
    }

    /// A message was delivered that long after it was due.
    pub fn completed(&self, took: Duration) {
        self.completed.fetch_add(1, Ordering::Relaxed);
        if let Some(count) = self.latency.get(bucket(took)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted so far, which then starts from zero.
    #[must_use]
    pub fn take(&self) -> Counts {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Counts {
            events: take(&self.events),
            notices: take(&self.notices),
            completed: take(&self.completed),
            failed: take(&self.failed),
            latency: self.latency.each_ref().map(take),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_the_bucket_of_its_message() {
        let tally = Tally::default();
        assert_eq!(tally.take().quantile_ms(0.99), None);
        for ms in [0, 1, 2, 3, 4, 400_000] {
            tally.completed(Duration::from_millis(ms));
        }
        let counts = tally.take();
        assert_eq!(counts.latency.iter().sum::<u64>(), 6);
        assert_eq!((counts.latency.first(), counts.latency.last()), (Some(&2), Some(&1)));
        assert!((1.0..=5.0).contains(&counts.quantile_ms(0.5).unwrap()));
        assert!(counts.quantile_ms(0.99).unwrap() > 300_000.0);
        assert!(tally.take().is_empty());
    }

    #[test]
    fn success_is_a_share_of_what_ended() {
        let counts = Counts { completed: 3, failed: 1, ..Counts::default() };
        assert_eq!(counts.success(), Some(0.75));
        assert_eq!(Counts::default().success(), None);
    }
}
