//! Trying again: with full jitter, within a budget of time, and without forgetting what is not known.

use std::sync::Arc;
use std::time::Duration;

use tidings_core::ids::IdSource;
use tidings_store::Error;
use tokio::time::Instant;

use crate::counts::{Counter, Counters};
use crate::failure::{Failure, failed};

/// When to try again and when to give up.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// No attempt starts later than this after the first.
    pub budget: Duration,
    /// The most the first pause may last; it doubles from one to the next.
    pub base: Duration,
    /// The most any pause may last.
    pub cap: Duration,
    /// What one attempt may take before its answer is given up.
    pub attempt_timeout: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(3),
            base: Duration::from_millis(25),
            cap: Duration::from_millis(800),
            attempt_timeout: Duration::from_secs(2),
        }
    }
}

pub struct Retry {
    pub policy: Policy,
    pub ids: Arc<dyn IdSource>,
    pub counters: Arc<Counters>,
}

impl Retry {
    /// Repeats `attempt` until it succeeds, cannot succeed, or the budget is spent.
    ///
    /// Attempts must be such that a second one does no harm if the first was carried out unseen. Once one has
    /// ended without a clear answer, giving up is never [`Error::Throttled`], which promises that nothing was
    /// written.
    pub async fn run<T, F>(&self, mut attempt: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let start = Instant::now();
        let mut unknown = None;
        let mut most = self.policy.base;
        loop {
            let busy = match attempt().await {
                Ok(result) => return Ok(result),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Busy(why)) => {
                    self.counters.add(Counter::Throttled, 1);
                    Some(why)
                }
                Err(Failure::Unknown(why)) => {
                    self.counters.add(Counter::Unknown, 1);
                    unknown = Some(why);
                    None
                }
            };
            let pause = self.up_to(most);
            if start.elapsed() + pause >= self.policy.budget {
                return Err(match (unknown, busy) {
                    (Some(why), _) => failed(why),
                    (None, busy) => Error::Throttled(busy.unwrap_or_default()),
                });
            }
            tokio::time::sleep(pause).await;
            self.counters.add(Counter::Retries, 1);
            most = most.saturating_mul(2).min(self.policy.cap);
        }
    }

    /// A random part of `most`, so that those who were turned away together do not come back together.
    fn up_to(&self, most: Duration) -> Duration {
        let mut random = [0; 4];
        self.ids.random(&mut random);
        most.mul_f64(f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX))
    }
}
