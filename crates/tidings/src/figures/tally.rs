//! What happened since the last flush: a few counters that cost one addition each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The ends of latency buckets within one decade, in percent of its beginning: no bucket is wider than a tenth of what it
/// holds, and where thresholds are drawn as a rule, one ends, so that both sides of it are told apart.
const STEPS: [u64; 31] = [
    110, 120, 130, 140, 150, 160, 175, 190, 200, 220, 240, 250, 275, 300, 330, 360, 390, 400, 440, 480, 500, 550, 600,
    650, 700, 750, 800, 850, 900, 950, 1000,
];
/// Decades that have all of them, the first one from 10 ms; below, every millisecond is one.
const DECADES: usize = 5;
const FIRST: usize = 10;

/// Upper ends of the latency buckets in milliseconds, to about 17 minutes; what is longer falls into one more.
pub const BOUNDS_MS: [u64; FIRST + DECADES * STEPS.len()] = bounds();
pub const BUCKETS: usize = BOUNDS_MS.len() + 1;
/// What is longer than all of them is taken to end here.
const LONGEST_MS: f64 = 2_000_000.0;

#[expect(clippy::indexing_slicing, reason = "at compile time, where it cannot fail unseen")]
const fn bounds() -> [u64; FIRST + DECADES * STEPS.len()] {
    let mut bounds = [0; FIRST + DECADES * STEPS.len()];
    let (mut place, mut value) = (0, 0);
    while place < FIRST {
        value += 1;
        bounds[place] = value;
        place += 1;
    }
    while place < bounds.len() {
        let step = (place - FIRST) % STEPS.len();
        bounds[place] = value * STEPS[step] / 100;
        place += 1;
        if step + 1 == STEPS.len() {
            value *= 10;
        }
    }
    bounds
}

/// Things by how long they took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency(pub [u64; BUCKETS]);

impl Default for Latency {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

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
    pub latency: Latency,
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
        for (mine, theirs) in self.latency.0.iter_mut().zip(other.latency.0) {
            *mine += theirs;
        }
    }

    /// Something took that long.
    pub fn took(&mut self, took: Duration) {
        if let Some(count) = self.latency.0.get_mut(bucket(took)) {
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
        let all: u64 = self.latency.0.iter().sum();
        if all == 0 {
            return None;
        }
        // The first that is not faster than `share` of them; products that are whole may come out a trifle too large.
        let wanted = (all as f64 * share - 1e-6).ceil().max(1.0);
        let (mut seen, mut low) = (0.0, 0.0);
        for (count, high) in self.latency.0.iter().zip(BOUNDS_MS.iter().map(|ms| *ms as f64).chain([LONGEST_MS])) {
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
    // A little more than a bound is more.
    let ms = u64::try_from(took.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
    BOUNDS_MS.partition_point(|bound| *bound < ms)
}

/// The counters themselves.
#[derive(Debug)]
pub struct Tally {
    events: AtomicU64,
    notices: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Default for Tally {
    fn default() -> Self {
        let [events, notices, completed, failed] = Default::default();
        Self { events, notices, completed, failed, latency: std::array::from_fn(|_| AtomicU64::default()) }
    }
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
            latency: Latency(self.latency.each_ref().map(take)),
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
        assert_eq!(counts.latency.0.iter().sum::<u64>(), 6);
        assert_eq!(counts.latency.0.first(), Some(&2));
        assert!((1.0..=5.0).contains(&counts.quantile_ms(0.5).unwrap()));
        assert!((396_000.0..=440_000.0).contains(&counts.quantile_ms(0.99).unwrap()));
        assert!(tally.take().is_empty());
    }

    // S003-107: whoever draws a line anywhere is told which side of it something is on, to a tenth.
    #[test]
    fn no_quantile_is_off_by_more_than_a_tenth() {
        assert!(BOUNDS_MS.is_sorted_by(|a, b| a < b), "{BOUNDS_MS:?}");
        for ms in (1..1_000_000).step_by(37) {
            let mut counts = Counts::default();
            counts.took(Duration::from_millis(ms));
            let (found, ms) = (counts.quantile_ms(0.99).unwrap(), ms as f64);
            assert!((ms..=ms * 1.1 + 1.0).contains(&found), "{ms}: {found}");
        }
        for line in [100, 200, 250, 500, 1000, 2000, 2500, 5000, 10_000, 30_000, 60_000, 300_000] {
            let quantile = |took: Duration| {
                let mut counts = Counts::default();
                (0..100).for_each(|_| counts.took(took));
                counts.quantile_ms(0.99).unwrap()
            };
            let line = Duration::from_millis(line);
            let limit = line.as_millis() as f64;
            assert!(quantile(line - Duration::from_millis(1)) <= limit && quantile(line) <= limit, "{line:?}");
            assert!(quantile(line + Duration::from_micros(1)) > limit, "{line:?}");
        }
    }

    #[test]
    fn success_is_a_share_of_what_ended() {
        let counts = Counts { completed: 3, failed: 1, ..Counts::default() };
        assert_eq!(counts.success(), Some(0.75));
        assert_eq!(Counts::default().success(), None);
    }
}
