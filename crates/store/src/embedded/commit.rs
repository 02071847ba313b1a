//! The committer: the one thread that writes.
//!
//! It takes all transactions that are waiting, decides each in turn against what is stored and what the ones
//! before it in the same group leave behind, writes the group as one batch with one fsync, and only then answers
//! all of them. A write or fsync that fails ends it for good: nothing is acknowledged any more, because after a
//! failed fsync nobody can know what is on disk.

use std::sync::Arc;

use fjall::{Database, Keyspace, PersistMode, Slice};
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot};

use super::plan::{self, Action, Plan, Step};
use super::{Shared, keys};
use crate::Error;
use crate::codec;
use crate::error::FailedCondition;
use crate::item::Item;

/// Transactions in one group at the most, and bytes.
const GROUP_TRANSACTIONS: usize = 1024;
const GROUP_BYTES: usize = 8 * 1024 * 1024;

pub enum Request {
    Transact(Plan, oneshot::Sender<Result<(), Error>>),
    /// Removes the expiry entries with these keys and the items they lead to; answers how many.
    Sweep(Vec<Slice>, oneshot::Sender<Result<usize, Error>>),
}

pub struct Committer {
    pub db: Database,
    pub items: Keyspace,
    pub index: Keyspace,
    pub shared: Arc<Shared>,
    pub requests: mpsc::Receiver<Request>,
    /// For the negative control of the crash tests only: acknowledge what is not on disk yet.
    pub acknowledge_before_fsync: bool,
}

/// What a group will change, by key; `None` removes.
#[derive(Default)]
struct Changes {
    items: FxHashMap<Slice, Option<Slice>>,
    entries: FxHashMap<Slice, bool>,
}

type Answer = Box<dyn FnOnce(Result<(), Error>) + Send>;

impl Committer {
    pub fn run(mut self) {
        while let Some(first) = self.requests.blocking_recv() {
            let mut changes = Changes::default();
            let mut answers: Vec<Answer> = Vec::new();
            let (mut count, mut bytes) = (0, 0);
            let mut next = Some(first);
            while let Some(request) = next {
                count += 1;
                bytes += self.decide(request, &mut changes, &mut answers);
                let room = count < GROUP_TRANSACTIONS && bytes < GROUP_BYTES;
                next = if room { self.requests.try_recv().ok() } else { None };
            }
            let started = self.shared.clock.monotonic();
            let outcome = self.write(changes);
            if outcome.is_ok() {
                self.shared.observer.committed(count, bytes, self.shared.clock.monotonic().saturating_sub(started));
            }
            let refusal = outcome.err();
            for answer in answers {
                answer(match &refusal {
                    None => Ok(()),
                    Some(Refusal::Full(why)) => Err(Error::Full(why.clone())),
                    Some(Refusal::Broken(why)) => Err(Error::ReadOnly(why.clone())),
                });
            }
        }
    }

    /// Adds one request to the group, or sets its answer aside; gives the bytes it adds.
    fn decide(&self, request: Request, changes: &mut Changes, answers: &mut Vec<Answer>) -> usize {
        match request {
            Request::Transact(plan, reply) => {
                let bytes = plan.bytes;
                let decided = self.transact(plan, changes);
                // Even a refusal waits for the commit: what it was decided on may not be on disk yet.
                answers.push(Box::new(move |outcome| drop(reply.send(outcome.and(decided)))));
                bytes
            }
            Request::Sweep(entries, reply) => {
                let bytes = entries.len() * 64;
                let swept = self.sweep(&entries, changes);
                answers.push(Box::new(move |outcome| drop(reply.send(outcome.and(swept)))));
                bytes
            }
        }
    }

    fn transact(&self, plan: Plan, changes: &mut Changes) -> Result<(), Error> {
        let now = self.shared.clock.now().as_second();
        let mut present = Vec::with_capacity(plan.steps.len());
        let mut failed = Vec::new();
        for (write, step) in plan.steps.iter().enumerate() {
            let stored = if step.needs_present() { self.present(&step.item_key, changes)? } else { None };
            let visible = stored.as_ref().filter(|item| !step.write.table().is_expired(item, now));
            if !step.write.condition().holds(visible) {
                failed.push(FailedCondition { write, found: visible.cloned() });
            }
            present.push(stored);
        }
        if !failed.is_empty() {
            return Err(Error::Conflict { failed });
        }
        // Everything that can still be refused is worked out before the group's changes are touched.
        let mut effects = Vec::with_capacity(plan.steps.len());
        for (step, stored) in plan.steps.into_iter().zip(present) {
            effects.push(effect(step, stored, now)?);
        }
        effects.into_iter().flatten().for_each(|effect| changes.add(effect));
        Ok(())
    }

    /// The item under a key as the group so far leaves it, expired or not.
    fn present(&self, item_key: &Slice, changes: &Changes) -> Result<Option<Item>, Error> {
        if let Some(changed) = changes.items.get(item_key) {
            return changed.as_ref().map(|bytes| codec::decode(bytes)).transpose();
        }
        let bytes = self.items.get(item_key).map_err(|e| Error::failed("cannot read an item", e))?;
        bytes.map(|bytes| codec::decode(&bytes)).transpose()
    }

    fn sweep(&self, entries: &[Slice], changes: &mut Changes) -> Result<usize, Error> {
        let now = self.shared.clock.now().as_second();
        let mut swept = 0;
        for entry in entries {
            let Some(item_key) = keys::item_of_expiry(entry).map(Slice::from) else { continue };
            let Some((table, ids)) = self.shared.tables.of_item_key(&item_key) else { continue };
            match self.present(&item_key, changes)?.filter(|item| table.is_expired(item, now)) {
                Some(item) => {
                    let key = table.key_of(&item)?;
                    let gone = plan::entries(table, ids, &key, &item_key, &item)?;
                    changes.add(Effect { item_key, store: None, gone, new: Vec::new() });
                }
                // The item is gone or lives on: the entry leads nowhere and must not come up again.
                None => drop(changes.entries.insert(entry.clone(), false)),
            }
            swept += 1;
        }
        Ok(swept)
    }

    fn write(&self, changes: Changes) -> Result<(), Refusal> {
        if let Some(why) = self.shared.broken() {
            return Err(Refusal::Broken(why));
        }
        if changes.items.is_empty() && changes.entries.is_empty() {
            return Ok(());
        }
        if let Some(why) = self.shared.space.shortage() {
            return Err(Refusal::Full(why));
        }
        let sequence = self.shared.next_sequence();
        let mut batch =
            fjall::OwnedWriteBatch::with_capacity(self.db.clone(), changes.items.len() + changes.entries.len() + 1);
        for (key, value) in changes.items {
            match value {
                Some(value) => batch.insert(&self.items, key, value),
                None => batch.remove(&self.items, key),
            }
        }
        for (key, there) in changes.entries {
            if there {
                batch.insert(&self.index, key, Slice::from([]));
            } else {
                batch.remove(&self.index, key);
            }
        }
        batch.insert(&self.items, super::SEQUENCE_KEY, sequence.to_be_bytes().to_vec());
        let mode = if self.acknowledge_before_fsync { PersistMode::Buffer } else { PersistMode::SyncData };
        match batch.durability(Some(mode)).commit() {
            Ok(()) => {
                self.shared.committed(sequence);
                Ok(())
            }
            Err(e) => {
                let cause = match e {
                    fjall::Error::Io(e) => e.to_string(),
                    fjall::Error::Poisoned => "a background write failed".to_owned(),
                    e => e.to_string(),
                };
                Err(Refusal::Broken(self.shared.break_down(&cause)))
            }
        }
    }
}

enum Refusal {
    Full(String),
    Broken(String),
}

/// What one step changes.
struct Effect {
    item_key: Slice,
    store: Option<Slice>,
    /// Entries that led to the item as it was.
    gone: Vec<Slice>,
    new: Vec<Slice>,
}

fn effect(step: Step, stored: Option<Item>, now: i64) -> Result<Option<Effect>, Error> {
    let Step { ids, key, item_key, action, write } = step;
    let table = write.table();
    let gone = match &stored {
        Some(item) if !matches!(action, Action::Check) => plan::entries(table, &ids, &key, &item_key, item)?,
        _ => Vec::new(),
    };
    let (store, new) = match action {
        Action::Check => return Ok(None),
        Action::Delete if stored.is_none() => return Ok(None),
        Action::Delete => (None, Vec::new()),
        Action::Put(stored) => (Some(stored.bytes), stored.entries),
        Action::Update => {
            let before = stored.filter(|item| !table.is_expired(item, now));
            let Some(after) = write.apply(before)? else { return Ok(None) };
            let stored = plan::stored(table, &ids, &key, &item_key, &after)?;
            (Some(stored.bytes), stored.entries)
        }
    };
    Ok(Some(Effect { item_key, store, gone, new }))
}

impl Changes {
    fn add(&mut self, effect: Effect) {
        self.items.insert(effect.item_key, effect.store);
        for entry in effect.gone {
            self.entries.insert(entry, false);
        }
        for entry in effect.new {
            self.entries.insert(entry, true);
        }
    }
}
