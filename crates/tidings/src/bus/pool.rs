//! A pool of workers that several handlers share: what matters more goes first, and nobody waits for ever (S003-54).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// How often in a row a message may go before one that waited longer and matters less.
const PASSED: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    High,
    Medium,
}

/// So many messages are handled at a time, whosever they are.
#[derive(Debug)]
pub struct Pool(Mutex<Turns>);

#[derive(Debug)]
struct Turns {
    free: usize,
    high: VecDeque<oneshot::Sender<Turn>>,
    medium: VecDeque<oneshot::Sender<Turn>>,
    /// How often those of medium priority were passed over in a row.
    passed: usize,
}

/// The right to handle a message, until it is dropped.
#[derive(Debug)]
pub struct Turn(Arc<Pool>);

impl Pool {
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        let (high, medium) = (VecDeque::new(), VecDeque::new());
        Arc::new(Self(Mutex::new(Turns { free: workers.max(1), high, medium, passed: 0 })))
    }

    /// Waits for a turn.
    pub async fn turn(self: &Arc<Self>, priority: Priority) -> Turn {
        let waiting = {
            let mut turns = self.turns();
            if turns.free > 0 {
                turns.free -= 1;
                return Turn(Arc::clone(self));
            }
            let (sender, waiting) = oneshot::channel();
            match priority {
                Priority::High => turns.high.push_back(sender),
                Priority::Medium => turns.medium.push_back(sender),
            }
            waiting
        };
        // Nobody throws a sender away without having used it.
        waiting.await.unwrap_or_else(|_| Turn(Arc::clone(self)))
    }

    /// Gives a turn that has ended to the next one; who does not wait any more gives it on.
    fn pass_on(self: &Arc<Self>) {
        let next = self.turns().next();
        if let Some(next) = next {
            drop(next.send(Turn(Arc::clone(self))));
        }
    }

    fn turns(&self) -> std::sync::MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let medium_is_next = self.high.is_empty() || (self.passed >= PASSED && !self.medium.is_empty());
        let next = if medium_is_next {
            self.passed = 0;
            self.medium.pop_front()
        } else {
            self.passed = if self.medium.is_empty() { 0 } else { self.passed + 1 };
            self.high.pop_front()
        };
        self.free += usize::from(next.is_none());
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;

    fn waiting(pool: &Arc<Pool>, priority: Priority) -> BoxFuture<'static, Turn> {
        let pool = Arc::clone(pool);
        let mut turn = async move { pool.turn(priority).await }.boxed();
        assert!((&mut turn).now_or_never().is_none(), "it is not its turn yet");
        turn
    }

    // S003-54
    #[test]
    fn high_goes_before_medium_and_medium_is_not_forgotten() {
        let pool = Pool::new(1);
        let first = pool.turn(Priority::Medium).now_or_never().unwrap();
        let mut line: Vec<(String, BoxFuture<'static, Turn>)> = Vec::new();
        for n in 0..2 {
            line.push((format!("m{n}"), waiting(&pool, Priority::Medium)));
        }
        for n in 0..7 {
            line.push((format!("h{n}"), waiting(&pool, Priority::High)));
        }
        let mut order = Vec::new();
        let mut present = Some(first);
        while !line.is_empty() {
            drop(present.take());
            let (place, turn) = line
                .iter_mut()
                .enumerate()
                .find_map(|(place, (_, turn))| Some((place, turn.now_or_never()?)))
                .expect("somebody is next");
            present = Some(turn);
            order.push(line.remove(place).0);
        }
        assert_eq!(order, ["h0", "h1", "h2", "h3", "m0", "h4", "h5", "h6", "m1"]);
        drop(present);
        assert!(pool.turn(Priority::Medium).now_or_never().is_some(), "nothing is lost");
    }

    #[test]
    fn who_does_not_wait_any_more_gives_the_turn_on() {
        let pool = Pool::new(2);
        let (one, two) = (pool.turn(Priority::High).now_or_never(), pool.turn(Priority::High).now_or_never());
        let (gone, mut there) = (waiting(&pool, Priority::High), waiting(&pool, Priority::Medium));
        let given = waiting(&pool, Priority::High);
        drop(gone);
        drop(one);
        // The turn was given, and dropped before it was taken.
        drop(given);
        assert!((&mut there).now_or_never().is_some());
        drop(two);
    }
}
