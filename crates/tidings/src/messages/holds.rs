//! Who of this process has a message in hand.
//!
//! A first attempt is written down together with its outcome (`deliver::attempt`), so for a moment the store does not
//! know of it. Whoever wants to call the message off waits for that moment to pass, and an attempt begins only if nobody
//! is about to call it off.
//!
//! What was made a moment ago is known without a look into the store, unless somebody changed a message since: that is
//! counted here ([`Holds::changes`]).

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashSet};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub struct Holds {
    /// By a hash of their ids, which needs no copy: of two that look the same, one is taken as if somebody else had it.
    held: Mutex<FxHashSet<u64>>,
    released: Notify,
    changes: AtomicU64,
}

/// A message in hand, until this is dropped.
#[derive(Debug)]
pub struct Hold<'a> {
    holds: &'a Holds,
    message: u64,
}

impl Holds {
    /// The message, unless somebody else has it.
    #[must_use]
    pub fn try_hold(&self, message_id: &str) -> Option<Hold<'_>> {
        let message = FxBuildHasher.hash_one(message_id);
        let is_free = self.held().insert(message);
        // Made only if it is free: what is dropped gives the message back.
        is_free.then(|| Hold { holds: self, message })
    }

    /// The message, as soon as nobody else has it. Whoever waits for it is about to change it.
    pub async fn hold(&self, message_id: &str) -> Hold<'_> {
        self.count_change();
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            // From now on a release is heard, also one before the next look.
            released.as_mut().enable();
            if let Some(hold) = self.try_hold(message_id) {
                return hold;
            }
            released.await;
        }
    }

    /// How often somebody was about to change messages that may wait for their attempt. While that stays the same, a
    /// message in hand is as it was.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Says that somebody who holds nothing is about to change messages.
    pub fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    fn held(&self) -> MutexGuard<'_, FxHashSet<u64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.holds.held().remove(&self.message);
        self.holds.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_at_a_time() {
        let holds = Holds::default();
        let first = holds.try_hold("a").unwrap();
        assert!(holds.try_hold("a").is_none() && holds.try_hold("b").is_some());
        let mut second = std::pin::pin!(holds.hold("a"));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let second = second.await;
        assert!(holds.try_hold("a").is_none());
        drop(second);
        assert!(holds.try_hold("a").is_some());
    }

    #[tokio::test]
    async fn whoever_is_about_to_change_something_counts() {
        let holds = Holds::default();
        drop(holds.try_hold("a"));
        assert_eq!(holds.changes(), 0);
        let first = holds.try_hold("a").unwrap();
        assert!(holds.hold("a").now_or_never().is_none());
        assert_eq!(holds.changes(), 1, "also before it is their turn");
        drop(first);
        drop(holds.hold("a").await);
        holds.count_change();
        assert_eq!(holds.changes(), 3);
    }
}
