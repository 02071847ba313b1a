//! A latency histogram of fixed size: buckets that double in width, each cut into 64 equal parts.
//!
//! A recorded duration is found again within 1/64 (1.6 %), whatever its size, and recording costs one addition.

use std::time::Duration;

/// Parts per doubling, as a power of two.
const PRECISION: u32 = 6;
const PARTS: usize = 1 << PRECISION;
/// Values below 64 have a bucket each; every further bit of a `u64` has 64 of them.
const BUCKETS: usize = PARTS * (u64::BITS - PRECISION + 1) as usize;

/// How often each duration occurred.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), count: 0, max_ns: 0 }
    }
}

impl Histogram {
    pub fn record(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket_of(ns)) {
            *count += 1;
        }
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds everything that `other` recorded.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The smallest duration that at least `share` (0.5, 0.99) of all did not exceed; zero if nothing was recorded.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a count is again a count; rounding by one beyond 2^52 requests does not matter"
    )]
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = ((self.count as f64 * share.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper_bound(bucket).min(self.max_ns));
            }
        }
        self.max()
    }
}

fn bucket_of(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(PRECISION + 1);
    // The shifted value has at most seven bits, so it fits any usize.
    let part = usize::try_from(ns >> shift).unwrap_or(PARTS);
    shift as usize * PARTS + part
}

/// The largest value of a bucket: the figures err on the slow side.
fn upper_bound(bucket: usize) -> u64 {
    if bucket < 2 * PARTS {
        return bucket as u64;
    }
    let shift = bucket / PARTS - 1;
    let part = (bucket - shift * PARTS) as u64;
    let above = u128::from(part + 1) << shift;
    u64::try_from(above - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) + 1, (1 << bit) - 1, 3 << bit >> 1]) {
            let bucket = bucket_of(value);
            assert!(bucket < BUCKETS, "{value} in {bucket}");
            let upper = upper_bound(bucket);
            assert!(upper >= value, "{value} above {upper}");
            assert!(upper - value <= value / 64, "{value} far below {upper}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(upper_bound(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn buckets_are_in_the_order_of_their_values() {
        let bounds: Vec<u64> = (0..BUCKETS).map(upper_bound).collect();
        assert!(bounds.is_sorted_by(|a, b| a < b));
        for (bucket, bound) in bounds.iter().enumerate() {
            assert_eq!(bucket_of(*bound), bucket);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        for ms in 1..=1000 {
            histogram.record(Duration::from_millis(ms));
        }
        for (share, ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile(share).as_secs_f64() * 1000.0;
            assert!((found / ms - 1.0).abs() < 0.016, "{share}: {found} for {ms}");
        }
        assert_eq!(histogram.max(), Duration::from_secs(1));
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn merging_equals_recording_all_in_one() {
        let (mut one, mut two, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for us in 0..500_u64 {
            let duration = Duration::from_micros(us * us);
            if us % 3 == 0 {
                one.record(duration)
            } else {
                two.record(duration)
            }
            both.record(duration);
        }
        one.merge(&two);
        assert_eq!((one.counts, one.count, one.max_ns), (both.counts, both.count, both.max_ns));
    }
}
