//! Trying again: with full jitter, within a budget of time, and without forgetting what is not known.

use std::sync::Arc;
use std::time::Duration;

use tidings_core::ids::IdSource;
use tidings_store::Error;
use tokio::time::Instant;

use crate::counts::{Counter, Counters};
use crate::failure::Failure;

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
    /// Who is asked, for the reader of an error.
    pub place: String,
    pub policy: Policy,
    pub ids: Arc<dyn IdSource>,
    pub counters: Arc<Counters>,
}

impl Retry {
    /// Repeats `attempt` until it succeeds, cannot succeed, or the budget is spent.
    ///
    /// Attempts must be such that a second one does no harm if the first was carried out unseen. Once one has
    /// ended without a clear answer, giving up is [`Error::Unreachable`] and never [`Error::Throttled`], which
    /// promises that nothing was written.
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
                    (Some(why), _) => Error::Unreachable(format!("{} ({why})", self.place)),
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Draws the same every time: this share of 255.
    struct Share(u8);

    impl IdSource for Share {
        fn random(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    fn retry(share: u8) -> Retry {
        Retry {
            place: "here".to_owned(),
            policy: Policy::default(),
            ids: Arc::new(Share(share)),
            counters: Arc::default(),
        }
    }

    fn busy() -> Result<(), Failure> {
        Err(Failure::Busy("too much".to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_cap_and_end_with_the_budget() {
        let start = Instant::now();
        let times = Cell::new(Vec::new());
        let attempt = || async {
            let mut seen = times.take();
            seen.push(start.elapsed().as_millis());
            times.set(seen);
            busy()
        };
        let error = retry(255).run(attempt).await.unwrap_err();
        assert!(matches!(error, Error::Throttled(_)), "{error:?}");
        assert_eq!(times.take(), [0, 25, 75, 175, 375, 775, 1575, 2375]);
        assert_eq!(start.elapsed().as_millis(), 2375, "nobody waits for an attempt that is not made");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_a_random_part_of_the_most_it_may_be() {
        for (share, most) in [(0, 0), (128, 13), (255, 25)] {
            let (start, attempts) = (Instant::now(), Cell::new(0));
            let attempt = || async {
                attempts.set(attempts.get() + 1);
                if attempts.get() == 1 { busy() } else { Ok(()) }
            };
            retry(share).run(attempt).await.unwrap();
            assert!(start.elapsed().as_millis() <= most && attempts.get() == 2, "{share}: {:?}", start.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_succeed_is_not_repeated() {
        let attempts = Cell::new(0);
        let attempt = || async {
            attempts.set(attempts.get() + 1);
            Err::<(), _>(Failure::Final(Error::Invalid("no".to_owned())))
        };
        let error = retry(1).run(attempt).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)) && attempts.get() == 1, "{error:?}");
    }
}
