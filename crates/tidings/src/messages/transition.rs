//! One change of a stored message: decided by `core`, written with everything that follows from it in one transaction,
//! and only if nobody changed the message meanwhile (S002-53 to S002-55).

use tidings_core::message::{Action, Conflict, Input, step};
use tidings_core::retry::Policy;
use tidings_core::time::Timestamp;
use tidings_store::{Change, Condition, Error, Item, Table, Value, Write};

use super::record::{Message, key, to_millis};
use super::{Follower, counters, dead};

/// A message as it was read.
#[derive(Debug, Clone)]
pub struct Stored {
    pub message: Message,
    item: Item,
}

/// A message as it will be, once `writes` are done.
#[derive(Debug)]
pub struct Transition {
    pub after: Stored,
    /// The first one is the message's own.
    pub writes: Vec<Write>,
    pub actions: Vec<Action>,
}

impl Stored {
    /// # Errors
    ///
    /// If the item is no message.
    pub fn read(item: Item) -> Result<Self, Error> {
        Ok(Self { message: Message::from_item(&item)?, item })
    }

    /// What the message becomes; `change` may add to it what `core` does not know.
    ///
    /// # Errors
    ///
    /// [`Refused::Conflict`] if its state does not allow the input.
    pub fn transition(
        &self,
        table: &Table,
        policy: &Policy,
        input: Input,
        now: Timestamp,
        followers: &[std::sync::Arc<dyn Follower>],
        change: impl FnOnce(&mut Message),
    ) -> Result<Transition, Refused> {
        let before = &self.message;
        let (delivery, actions) = step(&before.delivery, policy, input, now)?;
        let mut after = before.clone();
        after.delivery = delivery;
        // The wall clock may have jumped back; a message is never updated before it was made.
        after.updated_date = to_millis(now).max(before.updated_date);
        after.revision = before.revision.saturating_add(1);
        if !after.delivery.attempts.is_empty() {
            after.processing_started_at = after.processing_started_at.or(Some(after.updated_date));
        }
        change(&mut after);
        if after.delivery.status.is_final() {
            after.processing_completed_at = Some(after.updated_date);
            after.lease = None;
        }
        let mut writes = vec![self.update(table, &after)?];
        writes.extend(counters::moved(before, &after));
        for action in &actions {
            if let Action::DeadLetter { reason } = action {
                writes.push(dead::letter(&after, reason, now)?);
            }
        }
        if after.delivery.status.is_final() {
            writes.extend(followers.iter().flat_map(|follower| follower.ended(&after)));
        } else if after.delivery.retry_count > before.delivery.retry_count {
            let by = after.delivery.retry_count - before.delivery.retry_count;
            writes.extend(followers.iter().flat_map(|follower| follower.retried(&after, by)));
        }
        let item = after.to_item()?;
        Ok(Transition { after: Stored { message: after, item }, writes, actions })
    }

    /// The update from what was read to `after`. Attributes that we do not know stay.
    fn update(&self, table: &Table, after: &Message) -> Result<Write, Error> {
        let ours = self.message.to_item()?;
        let new = after.to_item()?;
        let mut changes = Vec::new();
        for (name, value) in &new.0 {
            if self.item.get(name) != Some(value) {
                changes.push(Change::Set(name.clone(), value.clone()));
            }
        }
        for name in ours.0.keys().filter(|name| new.get(name).is_none()) {
            changes.push(Change::Remove(name.clone()));
        }
        let unchanged = |name: &'static str| match self.item.get(name) {
            Some(value) => Condition::Equals(name.into(), value.clone()),
            None => Condition::LacksAttribute(name.into()),
        };
        let condition = Condition::All(vec![Condition::Exists, unchanged("status"), unchanged("revision")]);
        let write = Write::update(table, key(&after.message_id), changes).when(condition);
        debug_assert!(!matches!(new.get("status"), None | Some(Value::Null)), "a message has a status");
        Ok(write)
    }
}

/// Why there is no transition.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(#[from] Error),
}
