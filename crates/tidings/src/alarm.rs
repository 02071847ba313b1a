//! A timer for whoever waits again and again, mostly in vain for it: to put off one that is set costs less than to make
//! and drop one each time.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

/// Set anew for each wait. What is left of the last one may wake its task once more, which then finds nothing to do.
#[derive(Debug, Default)]
pub struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// What comes before that moment, if it does. It can be waited for once more.
    pub async fn wait<F: Future>(&mut self, until: Instant, mut coming: Pin<&mut F>) -> Option<F::Output> {
        let mut is_set = false;
        poll_fn(|cx| {
            if let ready @ Poll::Ready(_) = coming.as_mut().poll(cx) {
                return ready.map(Some);
            }
            let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if !std::mem::replace(&mut is_set, true) {
                sleep.as_mut().reset(until);
            }
            // Also if whoever is waited for has used up the task's turn: what never stops coming would else never be late.
            pin!(unconstrained(sleep.as_mut())).poll(cx).map(|()| None)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_too_late_can_still_be_waited_for() {
        let mut alarm = Alarm::default();
        let start = Instant::now();
        let (tell, told) = oneshot::channel();
        let mut told = pin!(told);
        // Later, sooner, and at a moment that has passed.
        for seconds in [2, 5, 6, 1, 0] {
            let until = Instant::now() + Duration::from_secs(seconds);
            assert!(alarm.wait(until, told.as_mut()).await.is_none());
            assert!(Instant::now() >= until);
        }
        assert_eq!(start.elapsed().as_secs(), 14);
        tell.send(7).unwrap();
        assert_eq!(alarm.wait(start, told).await, Some(Ok(7)), "it is there, however late it is");
    }

    #[tokio::test]
    async fn what_never_lets_others_have_their_turn_is_late_all_the_same() {
        let mut alarm = Alarm::default();
        let busy = async {
            loop {
                tokio::task::consume_budget().await;
            }
        };
        assert_eq!(alarm.wait(Instant::now(), pin!(busy)).await, None::<()>);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_not_needed_does_not_ring_into_the_next_wait() {
        let mut alarm = Alarm::default();
        let within = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert!(alarm.wait(within(1), pin!(ready(()))).await.is_some());
        assert!(alarm.wait(within(1), pin!(tokio::task::yield_now())).await.is_some());
        assert!(alarm.wait(within(9), pin!(sleep(Duration::from_secs(5)))).await.is_some());
        // It rings while nobody waits.
        sleep(Duration::from_secs(20)).await;
        assert!(alarm.wait(within(9), pin!(sleep(Duration::from_secs(5)))).await.is_some());
        assert!(alarm.wait(within(9), pin!(pending::<()>())).await.is_none());
    }
}
