//! Who has to wait becomes `queued` (S002-44), without holding up who goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rustc_hash::FxHashMap;
use tidings_core::message::Input;
use tidings_core::time::Timestamp;

use super::Deliverer;
use super::senders::Destination;
use crate::messages::transition::Stored;

/// A message that was to become `queued`.
pub struct Queued {
    destination: Destination,
    id: String,
    /// How it is since; `None` if somebody else changed it.
    stored: Option<Box<Stored>>,
}

impl Deliverer {
    /// Those who have to wait become `queued`; all of them in as few transactions as they fit in, while others go on.
    pub(super) fn queue_up(&mut self, now: Timestamp, monotonic: Duration) {
        while let Some(joined) = self.queueing.try_join_next() {
            self.take_queued(joined.unwrap_or_default());
        }
        if !self.queueing.is_empty() {
            return;
        }
        let mut waiting = Vec::new();
        self.window.each_unqueued(monotonic, |stub| {
            let Some(stored) = stub.stored.as_deref() else { return };
            if let Ok(transition) = self.services.messages.transition(stored, Input::Queued, now, |_| {}) {
                stub.queueing = true;
                waiting.push((stub.destination.clone(), transition));
            }
        });
        if waiting.is_empty() {
            return;
        }
        let desk = Arc::clone(&self.desk);
        self.queueing.spawn(async move {
            let entered = waiting.into_iter().map(|(destination, transition)| {
                let (desk, after) = (&desk, transition.after);
                async move {
                    let id = after.message.message_id.clone();
                    let entered = desk.ledger.enter(transition.writes, transition.tally).await;
                    Queued { destination, id, stored: entered.is_ok().then_some(after) }
                }
            });
            join_all(entered).await
        });
    }

    /// What was changed, or by somebody else, is known anew or read again when its turn comes.
    pub(super) fn take_queued(&mut self, queued: Vec<Queued>) {
        let mut by_destination: BTreeMap<Destination, FxHashMap<String, Option<Box<Stored>>>> = BTreeMap::new();
        for Queued { destination, id, stored } in queued {
            by_destination.entry(destination).or_default().insert(id, stored);
        }
        for (destination, mut queued) in by_destination {
            self.window.each_of(&destination, |stub| {
                if let Some(stored) = queued.remove(&stub.message_id) {
                    stub.revision = stored.as_ref().map_or(stub.revision, |stored| stored.message.revision);
                    stub.stored = stored;
                    stub.queueing = false;
                }
            });
        }
    }
}
