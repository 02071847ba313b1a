//! When to try again: one policy object for every channel and queue, and what a server's `Retry-After` does to it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often, and after which waits, something that failed is tried again. SX-06
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Tries after the first one.
    pub max_retries: u32,
    pub strategy: Strategy,
    #[serde(rename = "base_seconds", with = "seconds")]
    pub base: Duration,
    /// Exponential: each wait is this many times the one before.
    pub factor: f64,
    /// No wait is longer, not even one the server asks for.
    #[serde(rename = "cap_seconds", with = "seconds")]
    pub cap: Duration,
    /// Full jitter: anything from nothing to the whole wait, so that what failed together does not come back together.
    pub jitter: bool,
    /// For one whole try.
    #[serde(rename = "timeout_seconds", with = "seconds")]
    pub timeout: Duration,
    /// Answer codes to try again after, whatever the channel thinks of them.
    pub retry_on: Vec<u16>,
    /// Answer codes to give up at, whatever the channel thinks of them. Stronger than `retry_on`.
    pub fail_on: Vec<u16>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    #[default]
    Exponential,
    Fixed,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: 5,
            strategy: Strategy::Exponential,
            base: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_secs(3600),
            jitter: true,
            timeout: Duration::from_secs(30),
            retry_on: Vec::new(),
            fail_on: Vec::new(),
        }
    }
}

impl Policy {
    /// The seed's "fixed interval": five times, a minute apart. S003-37
    #[must_use]
    pub fn fixed() -> Self {
        Self { strategy: Strategy::Fixed, base: Duration::from_secs(60), jitter: false, ..Self::default() }
    }

    /// How long to wait before retry number `retry`, counted from 1; `None` when there are no more.
    ///
    /// `random` is any 64 random bits.
    #[must_use]
    pub fn delay(&self, retry: u32, random: u64) -> Option<Duration> {
        self.delay_after(retry, random, None)
    }

    /// The same after an answer that said when to come back: never earlier than that, but never later than `cap`.
    #[must_use]
    pub fn delay_after(&self, retry: u32, random: u64, retry_after: Option<Duration>) -> Option<Duration> {
        if retry == 0 || retry > self.max_retries {
            return None;
        }
        let whole = self.whole_delay(retry);
        let own = if self.jitter { whole.mul_f64(fraction(random)) } else { whole };
        Some(own.max(retry_after.unwrap_or_default().min(self.cap)))
    }

    /// What the policy says of an answer code, if it says anything: `true` to try again, `false` to give up.
    #[must_use]
    pub fn verdict(&self, code: u16) -> Option<bool> {
        if self.fail_on.contains(&code) {
            Some(false)
        } else if self.retry_on.contains(&code) {
            Some(true)
        } else {
            None
        }
    }

    fn whole_delay(&self, retry: u32) -> Duration {
        let cap = self.cap.as_secs_f64();
        let seconds = match self.strategy {
            Strategy::Fixed => self.base.as_secs_f64(),
            // Beyond an i32 every factor above 1 has long passed the cap.
            Strategy::Exponential => {
                self.base.as_secs_f64() * self.factor.powi(i32::try_from(retry - 1).unwrap_or(i32::MAX))
            }
        };
        // Overflow to infinity and a factor that is no number both end at the cap.
        let seconds = if seconds.is_finite() { seconds.clamp(0.0, cap) } else { cap };
        Duration::try_from_secs_f64(seconds).unwrap_or(self.cap)
    }
}

/// From 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "a wait needs no more than the 53 bits that are kept")]
fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / ((1_u64 << 53) - 1) as f64
}

/// Durations as seconds with decimals.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| D::Error::custom(format_args!("must be seconds from 0 on, not {seconds}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(policy: &Policy, random: u64) -> Vec<f64> {
        (1..).map_while(|retry| policy.delay(retry, random)).map(|delay| delay.as_secs_f64()).collect()
    }

    // S003-91, S002-50, S000-45
    #[test]
    fn five_retries_double_from_one_second() {
        let policy = Policy { jitter: false, ..Policy::default() };
        assert_eq!(waits(&policy, 0), [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(waits(&policy, 0).iter().sum::<f64>(), 31.0);
    }

    // S003-37
    #[test]
    fn a_fixed_interval_is_five_times_a_minute() {
        assert_eq!(waits(&Policy::fixed(), 7), [60.0; 5]);
    }

    // S003-91
    #[test]
    fn waits_end_at_the_cap() {
        let policy = Policy { jitter: false, max_retries: 2000, ..Policy::default() };
        let waits = waits(&policy, 0);
        assert_eq!(waits.len(), 2000);
        assert_eq!(waits[11..14], [2048.0, 3600.0, 3600.0]);
        assert_eq!(waits[1999], 3600.0);
    }

    #[test]
    fn full_jitter_spreads_from_nothing_to_the_whole_wait() {
        let policy = Policy::default();
        assert_eq!(waits(&policy, 0), [0.0; 5]);
        assert_eq!(waits(&policy, u64::MAX), [1.0, 2.0, 4.0, 8.0, 16.0]);
        let half = waits(&policy, u64::MAX / 2);
        assert!((half[4] - 8.0).abs() < 0.001, "{half:?}");
    }

    #[test]
    fn retry_after_is_a_minimum_up_to_the_cap() {
        let policy = Policy { jitter: false, ..Policy::default() };
        let after =
            |retry, seconds| policy.delay_after(retry, 0, Some(Duration::from_secs(seconds))).unwrap().as_secs();
        assert_eq!(after(1, 30), 30);
        assert_eq!(after(5, 3), 16);
        assert_eq!(after(1, 1_000_000), 3600);
        assert_eq!(policy.delay_after(6, 0, Some(Duration::from_secs(1))), None);
    }

    #[test]
    fn there_is_no_retry_number_nought() {
        assert_eq!(Policy::default().delay(0, 0), None);
        let never = Policy { max_retries: 0, ..Policy::default() };
        assert_eq!(never.delay(1, 0), None);
    }

    // SX-06
    #[test]
    fn a_partial_policy_keeps_the_other_defaults() {
        let policy: Policy =
            serde_json::from_str(r#"{"max_retries":3,"strategy":"fixed","base_seconds":0.5,"fail_on":[429]}"#).unwrap();
        assert_eq!(policy.base, Duration::from_millis(500));
        assert_eq!((policy.max_retries, policy.factor, policy.cap), (3, 2.0, Duration::from_secs(3600)));
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
        assert!(serde_json::from_str::<Policy>(r#"{"base_seconds":-1}"#).is_err());
    }

    // SX-06
    #[test]
    fn codes_can_be_overruled_and_failing_wins() {
        let policy = Policy { retry_on: vec![404, 409], fail_on: vec![409, 503], ..Policy::default() };
        assert_eq!([404, 409, 503, 500].map(|code| policy.verdict(code)), [Some(true), Some(false), Some(false), None]);
    }

    #[test]
    fn a_senseless_factor_does_no_harm() {
        for factor in [f64::NAN, f64::INFINITY, -2.0, 0.0] {
            let policy = Policy { factor, jitter: false, ..Policy::default() };
            assert!(waits(&policy, 0).iter().all(|wait| (0.0..=3600.0).contains(wait)), "{factor}");
        }
    }
}
