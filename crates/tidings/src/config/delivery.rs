//! `[delivery]`: how messages leave, and when what failed is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidings_core::retry::{Policy, Strategy};

use super::check::Check;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delivery {
    /// Off: this process takes messages, another one on the same store sends them.
    pub enabled: bool,
    /// Tries after the first one.
    pub max_retries: u32,
    pub strategy: Strategy,
    pub base_seconds: f64,
    pub factor: f64,
    /// No wait is longer, not even one the other side asks for.
    pub cap_seconds: f64,
    /// Waits are anything from nothing to the whole, so that what failed together does not come back together.
    pub jitter: bool,
    /// For one whole try.
    pub timeout_seconds: f64,
    /// Attempts at the same time on one channel …
    pub concurrency: u32,
    /// … and to one webhook's host.
    pub concurrency_per_host: u32,
}

impl Default for Delivery {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            enabled: true,
            max_retries: policy.max_retries,
            strategy: policy.strategy,
            base_seconds: policy.base.as_secs_f64(),
            factor: policy.factor,
            cap_seconds: policy.cap.as_secs_f64(),
            jitter: policy.jitter,
            timeout_seconds: policy.timeout.as_secs_f64(),
            concurrency: 512,
            concurrency_per_host: 4,
        }
    }
}

impl Delivery {
    #[must_use]
    pub fn policy(&self) -> Policy {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Policy {
            max_retries: self.max_retries,
            strategy: self.strategy,
            base: seconds(self.base_seconds),
            factor: self.factor,
            cap: seconds(self.cap_seconds),
            jitter: self.jitter,
            timeout: seconds(self.timeout_seconds),
            ..Policy::default()
        }
    }

    pub(super) fn check(&self, check: &mut Check<'_>) {
        check.key("max_retries").range(self.max_retries, 0..=100);
        check.key("base_seconds").range(self.base_seconds, 0.0..=86_400.0);
        check.key("factor").range(self.factor, 1.0..=100.0);
        check.key("cap_seconds").range(self.cap_seconds, 0.0..=604_800.0);
        check.key("timeout_seconds").range(self.timeout_seconds, 0.1..=300.0);
        check.key("concurrency").range(self.concurrency, 1..=10_000);
        check.key("concurrency_per_host").range(self.concurrency_per_host, 1..=1000);
    }
}
