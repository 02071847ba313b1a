//! Who has to wait becomes `queued` (S002-44), without holding up who goes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidings_core::message::Input;
use tidings_core::time::Timestamp;

use super::{Deliverer, QUEUED_AFTER};
use crate::messages::transition::Stored;

/// A message that was to become `queued`, and how it is since; `None` if somebody else changed it.
pub type Queued = (String, Option<Box<Stored>>);

impl Deliverer {
    /// Those who have to wait become `queued`; all of them in as few transactions as they fit in, while others go on.
    pub(super) fn queue_up(&mut self, now: Timestamp, monotonic: Duration) {
        while let Some(joined) = self.queueing.try_join_next() {
            self.take_queued(joined.unwrap_or_default());
        }
        if !self.queueing.is_empty() || !self.window.has_to_be_queued() {
            return;
        }
        let mut waiting = Vec::new();
        self.window.each_line(|destination, line| {
            let left_alone = self.parked.has(destination) || self.limiter.opens(destination, monotonic).is_some();
            let long = |since| monotonic.saturating_sub(since) >= QUEUED_AFTER;
            let due = line.iter_mut().take_while(|stub| left_alone || long(stub.since));
            for stub in due.filter(|stub| stub.is_to_be_queued()) {
                let Some(stored) = stub.stored.as_deref() else { continue };
                if let Ok(transition) = self.services.messages.transition(stored, Input::Queued, now, |_| {}) {
                    stub.queueing = true;
                    waiting.push(transition);
                }
            }
        });
        if waiting.is_empty() {
            return;
        }
        let desk = Arc::clone(&self.desk);
        self.queueing.spawn(async move {
            let entered = waiting.into_iter().map(|transition| {
                let (desk, after) = (&desk, transition.after);
                async move {
                    let id = after.message.message_id.clone();
                    let entered = desk.ledger.enter(transition.writes, transition.tally).await;
                    (id, entered.is_ok().then_some(after))
                }
            });
            join_all(entered).await
        });
    }

    /// What was changed, or by somebody else, is known anew or read again when its turn comes.
    pub(super) fn take_queued(&mut self, queued: Vec<Queued>) {
        let mut queued: HashMap<String, Option<Box<Stored>>> = queued.into_iter().collect();
        self.window.each_line(|_, line| {
            for stub in line {
                if let Some(stored) = queued.remove(&stub.message_id) {
                    stub.revision = stored.as_ref().map_or(stub.revision, |stored| stored.message.revision);
                    stub.stored = stored;
                    stub.queueing = false;
                }
            }
        });
    }
}
