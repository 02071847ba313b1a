//! The committer: the one thread that decides.
//!
//! It takes all transactions that are waiting, decides each in turn against what is stored, what the group before leaves
//! behind, if that is still on its way, and what the ones before it in the same group do; and has the group written
//! (`writer`). Nobody is answered before what the answer rests on is on disk.

use std::sync::Arc;

use fjall::Slice;
use tokio::sync::{mpsc, oneshot};

use super::beside::Beside;
use super::group::{Change, Group};
use super::plan::{self, Action, Plan, Step};
use super::writer::Answer;
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
    pub spaces: Keyspaces,
    pub shared: Arc<Shared>,
    pub requests: mpsc::Receiver<Request>,
    pub beside: Beside,
}

impl Committer {
    pub fn run(mut self) {
        let mut group = Group::default();
        while let Some(first) = self.requests.blocking_recv() {
            group.clear();
            let mut answers = Vec::new();
            self.decide(first, &mut group, &mut answers);
            self.gather(&mut group, &mut answers);
            let landed = self.beside.landed();
            // Whoever came while the group before was on its way need not wait for the next.
            self.gather(&mut group, &mut answers);
            self.beside.carry_out(landed, &mut group, answers);
        }
    }

    /// Adds those who are waiting, while there is room.
    fn gather(&mut self, group: &mut Group, answers: &mut Vec<Answer>) {
        while group.transactions < GROUP_TRANSACTIONS
            && group.bytes < GROUP_BYTES
            && let Ok(request) = self.requests.try_recv()
        {
            self.decide(request, group, answers);
        }
    }

    /// Adds one request to the group and sets its answer aside. Even a refusal waits for the commit: what it was
    /// decided on may not be on disk yet.
    fn decide(&self, request: Request, group: &mut Group, answers: &mut Vec<Answer>) {
        match request {
            Request::Transact(plan, reply) => {
                let decided = self.transact(plan, group);
                answers.push(Answer::One(reply, decided));
            }
            Request::Each(plans, reply) => {
                let decided: Vec<_> = plans.into_iter().map(|plan| self.transact(plan, group)).collect();
                answers.push(Answer::Each(reply, decided));
            }
            Request::Sweep(lists, reply) => {
                let swept = self.sweep(lists, group);
                answers.push(Answer::Swept(reply, swept));
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
        if let Some(changed) = group.item(item_key).or_else(|| self.beside.item(item_key)) {
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
