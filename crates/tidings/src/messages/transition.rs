//! One change of a stored message: decided by `core`, written with everything that follows from it in one transaction,
//! and only if nobody changed the message meanwhile (S002-53 to S002-55).

use std::sync::Arc;

use tidings_core::message::{Action, Conflict, Input, Status};
use tidings_core::retry::Policy;
use tidings_core::time::Timestamp;
use tidings_store::{Change, Condition, Error, Item, Table, Value, Write};

use super::counters::Tally;
use super::ledger::Entry;
use super::record::{Message, kept_from, key, to_millis};
use super::was::Was;
use super::{Follower, dead, shorter};
use crate::bus::push;

/// What a change can take away from a message. Attributes that we do not know stay.
pub(super) const PASSING: [&str; 12] = [
    "due",
    "next_attempt_at",
    "lease_owner",
    "error_message",
    "notification_id",
    "put_off_by",
    "deliver_at",
    // Only in a shorter form.
    "attempts",
    "recipients",
    "processing_started_at",
    "processing_completed_at",
    "queued_at",
];

/// Seconds that a message is kept after it has ended, at the least.
const ENDED_SECONDS: i64 = 3600;

/// A message as it is in the store.
#[derive(Debug, Clone)]
pub struct Stored {
    pub message: Message,
    known: Known,
    /// Bytes of the attributes that are not at hand in `known`.
    aside: usize,
}

/// What is stored of a message.
#[derive(Debug, Clone)]
enum Known {
    /// Its attributes as they were read; of one that was just made only those that a change can touch.
    Read(Item),
    /// It was just made.
    Made(Was),
}

/// A message that is about to be stored, and what stores it.
#[derive(Debug, Clone)]
pub struct Made {
    pub message: Message,
    insertion: Write,
    /// Bytes that its item takes.
    bytes: usize,
}

impl Made {
    /// # Errors
    ///
    /// If the message holds what an item cannot, or the table does not take it.
    pub fn new(message: Message, table: &Table) -> Result<Self, Error> {
        let (insertion, bytes) = match message.packed(table) {
            Some(packed) => {
                let bytes = packed.size();
                (Write::insert_packed(packed), bytes)
            }
            // Whatever is unusual, or wrong, is said of an item.
            None => {
                let item = message.to_item()?;
                let bytes = table.checked_size(&item)?;
                (Write::insert(table, item), bytes)
            }
        };
        Ok(Self { message, insertion, bytes })
    }

    /// The same, and the store need not look for another one of its id: that was made for this message alone.
    #[must_use]
    pub fn of_new_id(self) -> Self {
        Self { insertion: self.insertion.when(Condition::Fresh), ..self }
    }

    /// What stores the message, and the message as it is once that is done. What is stored is in there only once: many of
    /// them may wait in memory.
    ///
    /// # Errors
    ///
    /// If it holds what an item cannot; it cannot be stored then.
    pub fn into_parts(self) -> Result<(Entry, Box<Stored>), Error> {
        let entry = Entry::one(self.insertion, self.bytes, Tally::created(&self.message));
        Ok((entry, as_stored(self.message, self.bytes)?))
    }
}

/// A message as it will be, once `writes` are done.
#[derive(Debug)]
pub struct Transition {
    /// Of one that has ended, the attributes are those from before: nobody changes it any more.
    pub after: Box<Stored>,
    /// The first one is the message's own.
    pub writes: Vec<Write>,
    /// To be written with them.
    pub tally: Tally,
    pub actions: Vec<Action>,
}

impl Transition {
    /// All of it, for a transaction of its own.
    #[must_use]
    pub fn all_writes(&self) -> Vec<Write> {
        self.writes.iter().cloned().chain(self.tally.writes()).collect()
    }
}

impl Stored {
    /// # Errors
    ///
    /// If the item is no message.
    pub fn read(item: Item) -> Result<Self, Error> {
        Ok(Self { message: Message::from_item(&item)?, known: Known::Read(item), aside: 0 })
    }

    /// A message that was just stored.
    ///
    /// # Errors
    ///
    /// If it holds what an item cannot; it was not stored then.
    pub fn just_made(message: Message) -> Result<Box<Self>, Error> {
        let bytes = message.to_item()?.size();
        as_stored(message, bytes)
    }

    /// Whether an item that was read now is the one that this was made from.
    #[must_use]
    pub fn is_still(&self, item: &Item) -> bool {
        match &self.known {
            Known::Read(known) => ["status", "revision"].iter().all(|name| item.get(name) == known.get(name)),
            Known::Made(was) => {
                item.str("status") == Some(Was::STATUS.as_str()) && item.int("revision") == Some(was.revision)
            }
        }
    }

    /// Bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.known {
            Known::Read(item) => item.size() + self.aside,
            Known::Made(_) => self.aside,
        }
    }

    /// What the message becomes by one input after the other, each at its time: all that happened since it was read is
    /// one write. `change` may add to it what `core` does not know.
    ///
    /// # Errors
    ///
    /// [`Refused::Conflict`] if its state does not allow an input.
    pub fn transition(
        mut self: Box<Self>,
        table: &Table,
        policy: &Policy,
        inputs: impl IntoIterator<Item = (Input, Timestamp)>,
        followers: &[Arc<dyn Follower>],
        change: impl FnOnce(&mut Message),
    ) -> Result<Transition, Refused> {
        let after = &mut self.message;
        let (from, before, mut now) = (counted(after), after.delivery.retry_count, after.updated_date);
        let (mut tally, mut actions) = (Tally::default(), Vec::new());
        for (input, at) in inputs {
            actions = after.delivery.step(policy, input, at)?;
            now = at;
            touch(after, now);
            if after.delivery.status != Status::Created {
                // Taken up at once, it was in line for no time.
                after.queued_at = after.queued_at.or(Some(after.updated_date));
            }
            if !after.delivery.attempts.is_empty() {
                after.processing_started_at = after.processing_started_at.or(Some(after.updated_date));
            }
        }
        if after.delivery.status.is_final() {
            after.ttl = after.ttl.max(now.as_second().saturating_add(ENDED_SECONDS));
        }
        // Where it only passed through it is not counted.
        tally.count(from, after);
        change(after);
        let mut more = Vec::new();
        if after.delivery.status.is_final() {
            after.processing_completed_at = Some(after.updated_date);
            after.lease = None;
            more.extend(followers.iter().flat_map(|follower| follower.ended(after)));
        } else if after.delivery.retry_count > before {
            let by = after.delivery.retry_count - before;
            more.extend(followers.iter().flat_map(|follower| follower.retried(after, by)));
        }
        // The letter has the message as it is kept.
        let mut writes = vec![self.update(table)?];
        writes.append(&mut more);
        for action in &actions {
            // One that stands for a message of the bus has its dead letter there.
            if let Action::DeadLetter { reason } = action
                && !push::stands_for_another(&self.message)
            {
                writes.push(dead::fitting_letter(&self.message, reason, now)?);
            }
        }
        Ok(Transition { after: self, writes, tally, actions })
    }

    /// The message put off until the end of quiet hours; its state stays. From then on it is kept for a day at least (SX-15).
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn put_off(
        mut self: Box<Self>,
        table: &Table,
        until: Timestamp,
        hours: &str,
        now: Timestamp,
    ) -> Result<Transition, Error> {
        let after = &mut self.message;
        let from = counted(after);
        touch(after, now);
        after.ttl = after.ttl.max(kept_from(until));
        match after.delivery.status {
            Status::Processing => after.delivery.next_attempt_at = Some(until),
            _ => after.deliver_at = to_millis(until),
        }
        after.put_off_by = Some(hours.to_owned());
        let mut tally = Tally::default();
        tally.count(from, after);
        let write = self.update(table)?;
        Ok(Transition { after: self, writes: vec![write], tally, actions: Vec::new() })
    }

    /// The update from what was read to what the message is now. What does not fit is left out of it.
    fn update(&mut self, table: &Table) -> Result<Write, Error> {
        let Self { message: after, known, aside } = self;
        let is_final = after.delivery.status.is_final();
        let item = match known {
            Known::Read(item) => item,
            Known::Made(was) => {
                if is_final
                    && let new = after.moving()?
                    && shorter::surely_fits(&new, *aside)
                {
                    let unchanged = as_it_was(Some(Was::STATUS.as_str().into()), Some(was.revision.into()));
                    let changes = was.ended(after, new);
                    return Ok(Write::update(table, key(&after.message_id), changes).when(unchanged));
                }
                let item = was.item(after);
                *aside = aside.saturating_sub(item.size());
                *known = Known::Read(item);
                return self.update(table);
            }
        };
        let condition = as_it_was(item.get("status").cloned(), item.get("revision").cloned());
        let new = shorter::moving(after, item, *aside)?;
        debug_assert!(new.get("status").is_some(), "a message has a status");
        let mut changes = Vec::with_capacity(new.0.len() + 2);
        let passing = item.0.keys().filter_map(|name| PASSING.into_iter().find(|passing| passing == name));
        let gone = passing.filter(|name| new.get(name).is_none());
        changes.extend(gone.map(|name| Change::Remove(name.into())));
        if !is_final {
            for change in &changes {
                if let Change::Remove(name) = change {
                    item.0.remove(name);
                }
            }
        }
        for (name, value) in new.0 {
            if item.get(&name) == Some(&value) {
                continue;
            }
            if !is_final {
                item.0.insert(name.clone(), value.clone());
            }
            changes.push(Change::Set(name, value));
        }
        Ok(Write::update(table, key(&after.message_id), changes).when(condition))
    }
}

/// That nobody has changed a message since.
fn as_it_was(status: Option<Value>, revision: Option<Value>) -> Condition {
    let unchanged = |name: &'static str, value: Option<Value>| match value {
        Some(value) => Condition::Equals(name.into(), value),
        None => Condition::LacksAttribute(name.into()),
    };
    Condition::All(vec![Condition::Exists, unchanged("status", status), unchanged("revision", revision)])
}

/// A message that takes so many bytes as it is once it is stored.
fn as_stored(message: Message, bytes: usize) -> Result<Box<Stored>, Error> {
    let (known, aside) = match Was::of(&message) {
        Some(was) => (Known::Made(was), bytes),
        None => {
            let moving = message.moving()?;
            let aside = bytes.saturating_sub(moving.size());
            (Known::Read(moving), aside)
        }
    };
    Ok(Box::new(Stored { message, known, aside }))
}

/// By what it is counted.
const fn counted(message: &Message) -> (Status, i64) {
    (message.delivery.status, message.ttl)
}

/// As any change leaves it.
fn touch(message: &mut Message, now: Timestamp) {
    // The wall clock may have jumped back; a message is never updated before it was made.
    message.updated_date = to_millis(now).max(message.updated_date);
    message.revision = message.revision.saturating_add(1);
}

/// Why there is no transition.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(#[from] Error),
}
