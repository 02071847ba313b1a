//! The committer: decides transactions, one after the other, and hands them to the writer in groups.
//!
//! It takes all transactions that are waiting and decides each in turn against what is stored and what the ones before
//! it leave behind, be they in the same group or in the one that is being written. While the writer syncs a group, the
//! next one is decided. Nobody is answered before the writer is done.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use fjall::{Database, Slice};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::group::{Change, Group, Left, Listed};
use super::plan::{self, Action, Plan, Step};
use super::write::{Answer, Batch, Refusal};
use super::{Keyspaces, Shared, keys};
use crate::Error;
use crate::codec;
use crate::error::FailedCondition;
use crate::item::Item;

/// Transactions in one group at the most, and bytes.
const GROUP_TRANSACTIONS: usize = 1024;
const GROUP_BYTES: usize = 8 * 1024 * 1024;

pub enum Request {
    Transact(Plan, oneshot::Sender<Result<(), Error>>),
    /// Transactions that have nothing to do with each other but come and are answered together.
    Each(Vec<Plan>, oneshot::Sender<Vec<Result<(), Error>>>),
    /// Removes these expiry lists, and the items in them that have expired; answers how many items.
    Sweep(Vec<(Slice, Slice)>, oneshot::Sender<Result<usize, Error>>),
}

pub struct Committer {
    pub db: Database,
    pub spaces: Keyspaces,
    pub shared: Arc<Shared>,
    pub requests: mpsc::Receiver<Request>,
    pub writer: Sender<Batch>,
    /// One permit, there while the writer has nothing to do.
    pub idle: Arc<Semaphore>,
    pub listed: Listed,
    /// What the group before leaves behind: it may not be on disk yet.
    pub left: Left,
    /// The last group handed to the writer.
    pub sequence: u64,
}

impl Committer {
    pub async fn run(mut self) {
        let idle = Arc::clone(&self.idle);
        let mut group = Group::default();
        let mut answers: Vec<Answer> = Vec::new();
        loop {
            let has_room = group.transactions < GROUP_TRANSACTIONS && group.bytes < GROUP_BYTES;
            tokio::select! {
                biased;
                Ok(permit) = idle.acquire(), if !answers.is_empty() => {
                    permit.forget();
                    self.hand_over(std::mem::take(&mut group), std::mem::take(&mut answers));
                }
                request = self.requests.recv(), if has_room => match request {
                    Some(request) => self.gather(request, &mut group, &mut answers),
                    // Closed, and the last group is with the writer.
                    None if answers.is_empty() => return,
                    None => {
                        if let Ok(permit) = idle.acquire().await {
                            permit.forget();
                        }
                        self.hand_over(std::mem::take(&mut group), std::mem::take(&mut answers));
                    }
                },
                else => return,
            }
        }
    }

    /// Decides a request and those that wait behind it, as far as there is room.
    fn gather(&mut self, request: Request, group: &mut Group, answers: &mut Vec<Answer>) {
        let mut next = Some(request);
        while let Some(request) = next {
            self.decide(request, group, answers);
            let has_room = group.transactions < GROUP_TRANSACTIONS && group.bytes < GROUP_BYTES;
            next = if has_room { self.requests.try_recv().ok() } else { None };
        }
    }

    /// Gives a group to the writer, who has nothing else to do. One without writes goes the same way: its refusals
    /// may rest on the group before.
    fn hand_over(&mut self, group: Group, answers: Vec<Answer>) {
        let (transactions, bytes) = (group.transactions, group.bytes);
        let shortage = self.shared.space.shortage(self.shared.clock.monotonic()).filter(|_| !group.is_empty());
        let mut writes = None;
        if shortage.is_none() && !group.is_empty() {
            self.sequence += 1;
            let mut batch = fjall::OwnedWriteBatch::with_capacity(self.db.clone(), group.writes_about());
            self.left = group.write_to(&mut batch, &self.spaces, &mut self.listed, self.sequence);
            batch.insert(&self.spaces.items, super::SEQUENCE_KEY, self.sequence.to_be_bytes().to_vec());
            writes = Some((self.sequence, batch));
        }
        let refusal = shortage.map(Refusal::Full);
        // The writer ends after this does.
        let _ = self.writer.send(Batch { writes, refusal, answers, transactions, bytes });
    }

    /// Adds one request to the group and sets its answer aside. Even a refusal waits for the commit: what it was
    /// decided on may not be on disk yet.
    fn decide(&self, request: Request, group: &mut Group, answers: &mut Vec<Answer>) {
        match request {
            Request::Transact(plan, reply) => {
                let decided = self.transact(plan, group);
                answers.push(Box::new(move |written| drop(reply.send(written.map_err(Into::into).and(decided)))));
            }
            Request::Each(plans, reply) => {
                let decided: Vec<_> = plans.into_iter().map(|plan| self.transact(plan, group)).collect();
                answers.push(Box::new(move |written| {
                    let each = decided.into_iter().map(|decided| written.clone().map_err(Into::into).and(decided));
                    drop(reply.send(each.collect()));
                }));
            }
            Request::Sweep(lists, reply) => {
                let swept = self.sweep(lists, group);
                answers.push(Box::new(move |written| drop(reply.send(written.map_err(Into::into).and(swept)))));
            }
        }
    }

    fn transact(&self, plan: Plan, group: &mut Group) -> Result<(), Error> {
        let now = self.shared.clock.now().as_second();
        group.transactions += 1;
        group.bytes += plan.bytes;
        let mut present = Vec::with_capacity(plan.steps.len());
        let mut failed = Vec::new();
        for (write, step) in plan.steps.iter().enumerate() {
            let stored = if step.needs_present() { self.present(step, group)? } else { None };
            let visible = stored.as_ref().filter(|item| !step.table.is_expired(item, now));
            if !step.condition.holds(visible) {
                failed.push(FailedCondition { write, found: visible.cloned() });
            }
            present.push(stored);
        }
        if !failed.is_empty() {
            return Err(Error::Conflict { failed });
        }
        let tables = &self.shared.tables;
        // Everything that can still be refused is worked out before the group is touched.
        let mut changes = Vec::with_capacity(plan.steps.len());
        for (step, stored) in plan.steps.into_iter().zip(present) {
            changes.extend(change(step, stored, now)?);
        }
        for change in changes {
            let absent = change.item_key.first_chunk().and_then(|id| tables.absent.get(&u16::from_be_bytes(*id)));
            if let Some(absent) = absent.filter(|_| change.bytes.is_some()) {
                // Before anybody asks again, be it for this very group.
                absent.note(&change.item_key);
            }
            group.add(change);
        }
        Ok(())
    }

    fn present(&self, step: &Step, group: &Group) -> Result<Option<Item>, Error> {
        let absent = self.shared.tables.absent.get(&step.ids.table);
        if absent.is_some_and(|absent| absent.is_sure(&step.item_key)) {
            return Ok(None);
        }
        self.item(&step.item_key, step.ids.apart, group)
    }

    /// The item under a key as the group so far leaves it, expired or not.
    fn item(&self, item_key: &Slice, apart: bool, group: &Group) -> Result<Option<Item>, Error> {
        if let Some(changed) = group.item(item_key).or_else(|| self.left.item(item_key)) {
            return changed.map(|bytes| codec::decode(bytes)).transpose();
        }
        let bytes = self.spaces.items(apart).get(item_key).map_err(|e| Error::failed("cannot read an item", e))?;
        bytes.map(|bytes| codec::decode(&bytes)).transpose()
    }

    fn sweep(&self, lists: Vec<(Slice, Slice)>, group: &mut Group) -> Result<usize, Error> {
        let now = self.shared.clock.now().as_second();
        let mut swept = 0;
        for (list_key, list) in lists {
            for key in keys::keys_of_list(&list).map(Slice::from) {
                let Some((table, ids)) = self.shared.tables.of_item_key(&key) else {
                    // A list of index entries. Whatever gave one of its items a longer life wrote its entries again.
                    if self.shared.tables.is_entry_list(&key) {
                        group.lists_done.push(key);
                    }
                    continue;
                };
                // The list is a hint: the item may be gone since, or have got another expiry.
                let item = self.item(&key, ids.apart, group)?;
                let Some(item) = item.filter(|item| table.is_expired(item, now)) else { continue };
                let gone = plan::entries(table, ids, &key, &item)?;
                let apart = ids.apart;
                let change =
                    Change { item_key: key, apart, bytes: None, gone, new: Vec::new(), expires: None, expiry: None };
                group.add(change);
                swept += 1;
            }
            group.lists_done.push(list_key);
        }
        Ok(swept)
    }
}

/// What a step does to the store, given the item as it is.
fn change(step: Step, stored: Option<Item>, now: i64) -> Result<Option<Change>, Error> {
    let looked_for = step.needs_present();
    let Step { ids, table, item_key, action, .. } = step;
    let gone = match &stored {
        Some(item) if !matches!(action, Action::Check) => plan::entries(&table, &ids, &item_key, item)?,
        _ => Vec::new(),
    };
    let had_expiry = stored.as_ref().and_then(|item| table.expiry_of(item));
    let apart = ids.apart;
    let after = match action {
        Action::Check => return Ok(None),
        Action::Delete if looked_for && stored.is_none() => return Ok(None),
        Action::Delete => {
            let change = Change { item_key, apart, bytes: None, gone, new: Vec::new(), expires: None, expiry: None };
            return Ok(Some(change));
        }
        Action::Put(after) => after,
        Action::Update(write) => {
            let before = stored.filter(|item| !table.is_expired(item, now));
            let Some(after) = write.apply(before)? else { return Ok(None) };
            plan::stored(&table, &ids, &item_key, &after, after.size())?
        }
    };
    // An expiry that was there before is on a list already.
    let expires = after.expiry;
    let expiry = expires.filter(|expiry| Some(*expiry) != had_expiry);
    Ok(Some(Change { item_key, apart, bytes: Some(after.bytes), gone, new: after.entries, expires, expiry }))
}
