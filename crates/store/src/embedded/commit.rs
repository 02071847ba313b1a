//! The committer: the one thread that writes.
//!
//! It takes all transactions that are waiting, decides each in turn against what is stored and what the ones
//! before it in the same group leave behind, writes the group as one batch with one fsync, and only then answers
//! all of them. A write or fsync that fails ends it for good: nothing is acknowledged any more, because after a
//! failed fsync nobody can know what is on disk.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fjall::{Database, Slice};
use tokio::sync::{mpsc, oneshot};

use super::crowds::Listed;
use super::front::{Space, sequence_op};
use super::group::{Change, Entries, Group};
use super::log::Log;
use super::plan::{self, Action, Plan, Plans, Step};
use super::settle::{Settler, WAITING};
use super::stored::StoredItems;
use super::tables::Opened;
use super::{Keyspaces, Shared, keys, sheaf};
use crate::Error;
use crate::codec::Encoded;
use crate::error::FailedCondition;
use crate::table::Table;
use crate::write::{Condition, updated};

/// Transactions in one group at the most, and bytes.
const GROUP_TRANSACTIONS: usize = 1024;
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// How long to wait between two looks for sheets that are not in tables yet.
const HELD_BACK: Duration = Duration::from_millis(2);

/// A sheet is closed although it is not full, when nobody wants anything else, if it has this part of what it may have:
/// memory, and what a start after a crash would have to read.
const WORTH_CLOSING: usize = 8;

pub enum Request {
    Transact(Plan, oneshot::Sender<Result<(), Error>>),
    /// Transactions that have nothing to do with each other but come and are answered together.
    Each(Plans, oneshot::Sender<Vec<Result<(), Error>>>),
    /// Nobody has committed anything for a while: what is in memory may go into tables.
    Quiet,
    /// Removes these expiry lists, and the items in them that have expired; answers how many items.
    Sweep(Vec<(Slice, Slice)>, oneshot::Sender<Result<usize, Error>>),
}

pub struct Committer {
    pub db: Database,
    pub spaces: Keyspaces,
    pub shared: Arc<Shared>,
    pub requests: mpsc::Receiver<Request>,
    pub listed: Listed,
    pub log: Log,
    pub settler: Settler,
    /// Bytes of a sheet in memory at which it is closed.
    pub sheet_bytes: usize,
    /// Where callers live. To wake many of them from inside costs less than to call each from outside.
    pub callers: Option<tokio::runtime::Handle>,
    /// For the negative control of the crash tests only: acknowledge what is not on disk yet.
    pub acknowledge_before_fsync: bool,
}

/// What to tell a caller once the group is on disk, or is not.
enum Answer {
    One(oneshot::Sender<Result<(), Error>>, Result<(), Error>),
    Each(oneshot::Sender<Vec<Result<(), Error>>>, Vec<Result<(), Error>>),
    Swept(oneshot::Sender<Result<usize, Error>>, Result<usize, Error>),
}

impl Answer {
    /// A caller who has gone does not hear it.
    fn tell(self, written: &Result<(), Refusal>) {
        let refusal = written.as_ref().err();
        match self {
            Self::One(reply, decided) => drop(reply.send(refusal.map_or(decided, |refusal| Err(refusal.into())))),
            Self::Swept(reply, decided) => drop(reply.send(refusal.map_or(decided, |refusal| Err(refusal.into())))),
            Self::Each(reply, mut decided) => {
                for answer in &mut decided {
                    if let Some(refusal) = refusal {
                        *answer = Err(refusal.into());
                    }
                }
                drop(reply.send(decided));
            }
        }
    }
}

enum Refusal {
    Full(String),
    Broken(String),
}

impl From<&Refusal> for Error {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Full(why) => Self::Full(why.clone()),
            Refusal::Broken(why) => Self::ReadOnly(why.clone()),
        }
    }
}

impl Committer {
    pub fn run(mut self) {
        let mut group = Group::default();
        while let Some(first) = self.requests.blocking_recv() {
            group.clear();
            let mut answers: Vec<Answer> = Vec::new();
            let mut next = Some(first);
            let mut is_quiet = false;
            while let Some(request) = next {
                is_quiet |= matches!(request, Request::Quiet);
                self.decide(request, &mut group, &mut answers);
                let room = group.transactions < GROUP_TRANSACTIONS && group.bytes < GROUP_BYTES;
                next = if room { self.requests.try_recv().ok() } else { None };
            }
            let (count, bytes) = (group.transactions, group.bytes);
            let started = self.shared.clock.monotonic();
            let outcome = self.write(&mut group, started);
            if outcome.is_ok() && count > 0 {
                self.shared.observer.committed(count, bytes, self.shared.clock.monotonic().saturating_sub(started));
            }
            let written = outcome.is_ok();
            self.tell(answers, outcome);
            if written {
                self.close_full(is_quiet);
                self.hold_back();
            }
        }
    }

    /// Waits while too much is in memory that the tables on disk do not have yet: who sends faster than they can be
    /// written would fill the memory. Not for a thread that has failed, which the next commit will hear.
    fn hold_back(&self) {
        while self.shared.front().closed.len() > WAITING && self.settler.is_at_work() && self.shared.broken().is_none()
        {
            std::thread::sleep(HELD_BACK);
        }
    }

    /// Closes the open sheet of the front if it or its part of the log is full, and has it written into tables.
    fn close_full(&mut self, is_quiet: bool) {
        let sheet_bytes = if is_quiet { self.sheet_bytes / WORTH_CLOSING } else { self.sheet_bytes };
        // What was changed many times has more bytes in the log.
        let log_bytes = self.sheet_bytes as u64 / 3 * 4;
        if self.log.bytes() < log_bytes && self.shared.front().open.bytes() < sheet_bytes {
            return;
        }
        let sequence = self.shared.sequence.load(Ordering::Acquire);
        match self.log.next() {
            Ok(segment) if is_quiet => self.settler.settle(self.shared.front_mut().close(segment, sequence)),
            Ok(segment) => self.settler.settle(self.shared.front_mut().close_most(segment, sequence)),
            Err(e) => drop(self.shared.break_down(&e.to_string())),
        }
    }

    fn tell(&self, answers: Vec<Answer>, outcome: Result<(), Refusal>) {
        let tell = move || {
            for answer in answers {
                answer.tell(&outcome);
            }
        };
        match &self.callers {
            Some(callers) => drop(callers.spawn(async move { tell() })),
            None => tell(),
        }
    }

    /// Adds one request to the group and sets its answer aside. Even a refusal waits for the commit: what it was
    /// decided on may not be on disk yet.
    fn decide(&self, request: Request, group: &mut Group, answers: &mut Vec<Answer>) {
        match request {
            Request::Transact(plan, reply) => {
                let decided = self.transact(plan, 0, self.shared.clock.now().as_second(), group);
                answers.push(Answer::One(reply, decided));
            }
            Request::Each(plans, reply) => {
                let (first, now) = (group.bring(plans.sheaves), self.shared.clock.now().as_second());
                let decided = plans.all.into_iter().map(|plan| self.transact(plan, first, now, group)).collect();
                answers.push(Answer::Each(reply, decided));
            }
            Request::Quiet => {}
            Request::Sweep(lists, reply) => {
                let swept = self.sweep(lists, group);
                answers.push(Answer::Swept(reply, swept));
            }
        }
    }

    /// `sheaf` is the number that the group has given to the first of the sheaves that the plan speaks of.
    fn transact(&self, plan: Plan, sheaf: usize, now: i64, group: &mut Group) -> Result<(), Error> {
        group.transactions += 1;
        group.bytes += plan.bytes;
        let tables = &self.shared.tables;
        let present = plan.steps.iter().map(|step| self.present(step, group)).collect::<Result<Vec<_>, _>>()?;
        let found = present.iter().map(|bytes| bytes.as_deref().map(Encoded::read).transpose());
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let mut failed = Vec::new();
        for (write, (step, found)) in plan.steps.iter().zip(&found).enumerate() {
            let table = &tables.at(step.table)?.table;
            let visible = found.as_ref().filter(|item| !is_expired(table, item, now));
            let attribute = |name: &str| visible?.get(name).map(Cow::Owned);
            if !step.condition.holds_of(visible.is_some(), &attribute) {
                failed.push(FailedCondition { write, found: visible.map(Encoded::decode).transpose()? });
            }
        }
        if !failed.is_empty() {
            return Err(Error::Conflict { failed });
        }
        // Everything that can still be refused is worked out before the group is touched.
        let mut changes = Vec::with_capacity(plan.steps.len());
        for (step, found) in plan.steps.into_iter().zip(&found) {
            let opened = tables.at(step.table)?;
            let leaves_hole =
                matches!(step.action, Action::Delete) && self.stored().is_in_sheaf(opened, &step.item_key)?;
            let change = change(opened, step, found.as_ref(), now, leaves_hole)?;
            changes.extend(change.map(|change| (change, opened.absent.as_ref())));
        }
        for (mut change, absent) in changes {
            if let Some(place) = &mut change.sheaf {
                place.sheaf += sheaf;
            }
            if let Some(absent) = absent.filter(|_| change.bytes.is_some()) {
                // Before anybody asks again, be it for this very group.
                absent.note(&change.item_key);
            }
            group.add(change);
        }
        Ok(())
    }

    /// The bytes of what is there under a step's key, expired or not, if it must be known.
    fn present(&self, step: &Step, group: &Group) -> Result<Option<Slice>, Error> {
        let opened = self.shared.tables.at(step.table)?;
        let is_sure = || opened.absent.as_ref().is_some_and(|absent| absent.is_sure(&step.item_key));
        if !step.needs_present(&opened.table) || is_sure() {
            return Ok(None);
        }
        self.bytes(&step.item_key, opened, group)
    }

    /// The bytes of the item under a key as the group so far leaves it.
    fn bytes(&self, item_key: &Slice, opened: &Opened, group: &Group) -> Result<Option<Slice>, Error> {
        match group.item(item_key) {
            Some(changed) => Ok(changed.cloned()),
            None => self.stored().item(opened, item_key),
        }
    }

    fn stored(&self) -> StoredItems<'_> {
        StoredItems { db: &self.db, spaces: &self.spaces, shared: &self.shared }
    }

    fn sweep(&self, lists: Vec<(Slice, Slice)>, group: &mut Group) -> Result<usize, Error> {
        let now = self.shared.clock.now().as_second();
        let mut swept = 0;
        for (list_key, list) in lists {
            for key in keys::keys_of_list(&list).map(Slice::from) {
                let Some(opened) = self.shared.tables.of_item_key(&key) else {
                    // A list of index entries. Whatever gave one of its items a longer life wrote its entries again.
                    if self.shared.tables.is_entry_list(&key) {
                        group.lists_done.push(key);
                    }
                    continue;
                };
                if opened.is_sheaf(&key) {
                    swept += self.sweep_sheaf(opened, key, now, group)?;
                    continue;
                }
                // The list is a hint: the item may be gone since, or have got another expiry.
                let item = self.bytes(&key, opened, group)?;
                let item = item.as_deref().map(Encoded::read).transpose()?;
                let Some(item) = item.filter(|item| is_expired(&opened.table, item, now)) else { continue };
                let gone = plan::entries(&opened.table, &opened.ids, &key, &item)?;
                let leaves_hole = self.stored().is_in_sheaf(opened, &key)?;
                group.add(Change::removal(key, opened.ids.apart, gone, leaves_hole));
                swept += 1;
            }
            group.lists_done.push(list_key);
        }
        Ok(swept)
    }

    /// Removes a sheaf whose last item has expired, and what leads to those of its items that nobody wrote since.
    fn sweep_sheaf(&self, opened: &Opened, key: Slice, now: i64, group: &mut Group) -> Result<usize, Error> {
        let Opened { table, ids, .. } = opened;
        let Some(sheaf) = self.stored().entry(Space::Apart, &key)? else { return Ok(0) };
        let (shared, items) = (sheaf::shared_of(&key).unwrap_or_default(), sheaf::items(&sheaf)?);
        for (_, bytes) in &items {
            // The clock was set back since: what is visible stays.
            if !is_expired(table, &Encoded::read(bytes)?, now) {
                return Ok(0);
            }
        }
        let mut swept = 0;
        for (rest, bytes) in items {
            let item_key = Slice::from([shared, &rest].concat());
            if group.item(&item_key).is_some() {
                continue;
            }
            match self.stored().entry(Space::Apart, &item_key)? {
                // It has an expiry of its own.
                Some(alone) if !alone.is_empty() => {}
                Some(_hole) => group.add(Change::removal(item_key, ids.apart, Vec::new(), false)),
                None => {
                    let entries = plan::entries(table, ids, &item_key, &Encoded::read(&bytes)?)?;
                    group.entries_gone.extend(entries.into_iter().map(|entry| entry.key));
                    swept += 1;
                }
            }
        }
        group.sheaves_done.push(key);
        Ok(swept)
    }

    fn write(&mut self, group: &mut Group, now: Duration) -> Result<(), Refusal> {
        if let Some(why) = self.shared.broken() {
            return Err(Refusal::Broken(why));
        }
        if group.is_empty() {
            return Ok(());
        }
        if let Some(why) = self.shared.space.shortage(now) {
            return Err(Refusal::Full(why));
        }
        let sequence = self.shared.next_sequence();
        let taken = group.take(&self.shared.tables, &mut self.listed, sequence);
        let mut ops = taken.map_err(|e| Refusal::Broken(self.shared.break_down(&e.to_string())))?;
        ops.push(sequence_op(sequence));
        match self.log.append(sequence, &ops, !self.acknowledge_before_fsync) {
            Ok(()) => {
                self.shared.front_mut().open.apply(ops.into_iter());
                self.shared.committed(sequence);
                Ok(())
            }
            Err(e) => Err(Refusal::Broken(self.shared.break_down(&e.to_string()))),
        }
    }
}

/// The second at which an item expires, if it does.
fn expiry_of(table: &Table, item: &Encoded<'_>) -> Option<i64> {
    item.number(table.ttl_attribute()?).map(|at| at.ceil())
}

fn is_expired(table: &Table, item: &Encoded<'_>, now: i64) -> bool {
    expiry_of(table, item).is_some_and(|at| at <= now)
}

/// What a step does to the store, given what is there.
fn change(
    opened: &Opened,
    step: Step,
    found: Option<&Encoded<'_>>,
    now: i64,
    leaves_hole: bool,
) -> Result<Option<Change>, Error> {
    let Opened { table, ids, .. } = opened;
    let looked_for = step.needs_present(table);
    let Step { item_key, action, condition, .. } = step;
    let apart = ids.apart;
    let had_expiry = found.and_then(|item| expiry_of(table, item));
    // An expiry that was there before is on a list already.
    let not_listed = |expires: Option<i64>| expires.filter(|_| expires != had_expiry);
    let visible = found.filter(|_| had_expiry.is_none_or(|at| at > now));
    if let (Action::Update(update), Some(before)) = (&action, visible)
        && let Some((after, entries)) = update.patched(opened, &item_key, before)?
    {
        let expires = update.expiry(table, before);
        let expiry = not_listed(expires);
        let (bytes, is_new, sheaf) = (Some(after), false, None);
        return Ok(Some(Change {
            item_key,
            apart,
            bytes,
            is_new,
            entries,
            expires,
            expiry,
            leaves_hole: false,
            sheaf,
        }));
    }
    let is_new = found.is_none() && (looked_for || condition == Condition::Fresh);
    let gone = match found {
        Some(item) if !matches!(action, Action::Check) => plan::entries(table, ids, &item_key, item)?,
        _ => Vec::new(),
    };
    let after = match action {
        Action::Check => return Ok(None),
        Action::Delete if looked_for && found.is_none() => return Ok(None),
        Action::Delete => {
            return Ok(Some(Change::removal(item_key, apart, gone, leaves_hole)));
        }
        Action::Put(after) => after,
        Action::Update(update) => {
            let before = visible.map(Encoded::decode).transpose()?;
            let after = updated(table, &update.key, &update.changes, before)?;
            plan::stored(table, ids, &item_key, &after)?
        }
    };
    let expires = after.expiry;
    let expiry = not_listed(expires);
    let entries = Entries { gone, new: after.entries };
    let (bytes, sheaf) = (Some(after.bytes), after.sheaf);
    Ok(Some(Change { item_key, apart, bytes, is_new, entries, expires, expiry, leaves_hole: false, sheaf }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tidings_core::time::{ManualClock, Timestamp};

    use super::super::{Embedded, Observer, Options};
    use super::*;
    use crate::table::KeyKind;
    use crate::write::Write;
    use crate::{Item, Key, Store};

    #[derive(Default)]
    struct Commits(AtomicUsize);

    impl Observer for Commits {
        fn committed(&self, transactions: usize, _bytes: usize, _took: Duration) {
            self.0.fetch_add(transactions, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn what_is_in_memory_goes_into_tables_when_it_is_quiet() {
        let (dir, commits) = (tempfile::tempdir().unwrap(), Arc::new(Commits::default()));
        let table = Table::new("t", "id", KeyKind::S);
        let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        let options = Options { reserve_bytes: 0, sheet_bytes: 64 * 1024, ..Options::new(dir.path()) };
        let store = Embedded::open(&options, std::slice::from_ref(&table), clock, commits.clone()).unwrap();
        let put =
            |id: usize, text: &str| vec![Write::put(&table, Item::new().with("id", id.to_string()).with("x", text))];
        let in_memory = || store.shared.front().open.bytes();
        let quiet = || store.requests.as_ref().unwrap().send(Request::Quiet);
        // Less than is worth it stays.
        store.transact(put(0, "short")).await.unwrap();
        quiet().await.unwrap();
        store.transact(put(1, "short")).await.unwrap();
        let little = in_memory();
        store.transact(put(2, &"x".repeat(10_000))).await.unwrap();
        assert!(in_memory() > 10_000);
        quiet().await.unwrap();
        // The first may be of one group with what was said, and be answered before the sheet is closed.
        store.transact(put(3, "short")).await.unwrap();
        store.transact(put(4, "short")).await.unwrap();
        assert!(in_memory() <= little, "only the last ones are left");
        for id in 0..5 {
            assert!(store.get(&table, &Key::new(id.to_string())).await.unwrap().is_some());
        }
        assert_eq!(commits.0.load(Ordering::Relaxed), 5, "to be quiet is no commit");
    }
}
