//! What is written about messages, many of them in one transaction.
//!
//! Making, taking up and recording are small writes for each message; alone, each would be a transaction with its own
//! counters. Here whoever comes while others are under way waits for the next transaction, which has everybody's writes
//! and one sum of their counters. Whoever fails, fails alone.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxHashSet, FxHasher};
use tidings_store::{Error, FailedCondition, Key, KeyValue, Store, Value, Write, limits};
use tokio::sync::oneshot;

use super::counters::Tally;

/// Bytes of the items in one transaction; updates are small and not counted.
const MOST_BYTES: usize = limits::TRANSACTION_BYTES / 2;
/// Messages in one transaction: what is larger takes longer to decide again when one of them is refused.
const MOST_ENTRIES: usize = 40;

/// One and the same for all who clone it.
#[derive(Clone)]
pub struct Ledger(Arc<Desk>);

struct Desk {
    store: Arc<dyn Store>,
    /// Transactions under way at the most.
    at_once: usize,
    line: Mutex<Line>,
}

/// Who waits for the next transaction.
#[derive(Default)]
struct Line {
    waiting: Vec<Waiting>,
    /// How many tasks are at work, each of which takes everybody who waits when its turn comes.
    served_by: usize,
}

/// Writes that are carried out all or none, and what counts with them.
pub struct Entry {
    writes: Vec<Write>,
    /// How many they are, also once they are under way.
    count: usize,
    /// Of the items among them.
    bytes: usize,
    tally: Tally,
    /// The same writes, to be carried out alone if somebody else among those of one transaction is refused.
    spare: Option<Vec<Write>>,
}

/// Why an entry's writes were not carried out.
#[derive(Debug)]
pub enum Left {
    /// They were refused. A conflict counts places from the entry's first write.
    Refused(Error),
    /// Nothing is decided about them: another one in their transaction was refused, and they had no spare.
    Undecided,
}

struct Waiting {
    entry: Entry,
    done: oneshot::Sender<Result<(), Left>>,
}

/// A transaction as it fills up.
#[derive(Default)]
struct Sheet {
    entries: Vec<Waiting>,
    tally: Tally,
    writes: usize,
    bytes: usize,
}

impl Entry {
    /// An entry whose writes are dear to copy. Whoever makes one makes it anew if nothing could be decided about it.
    #[must_use]
    pub fn new(writes: Vec<Write>, tally: Tally) -> Self {
        let (count, bytes) = (writes.len(), bytes(&writes));
        Self { writes, count, bytes, tally, spare: None }
    }

    /// The same for one write of so many bytes.
    #[must_use]
    pub fn one(write: Write, bytes: usize, tally: Tally) -> Self {
        Self { writes: vec![write], count: 1, bytes, tally, spare: None }
    }
}

impl Ledger {
    /// A ledger that has at most so many transactions under way. With two, the store has the next one when it is done with
    /// the last; of those that write the same counters at the same time, a store over a network turns one away.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, at_once: usize) -> Self {
        Self(Arc::new(Desk { store, at_once, line: Mutex::default() }))
    }

    /// Carries out the writes and counts the tally, all or nothing. A conflict counts places from the first write.
    pub async fn enter(&self, writes: Vec<Write>, tally: Tally) -> Result<(), Error> {
        let spare = Some(writes.clone());
        self.enter_once(Entry { spare, ..Entry::new(writes, tally) }).await.map_err(|left| match left {
            Left::Refused(error) => error,
            Left::Undecided => interrupted(),
        })
    }

    /// Carries out one entry.
    pub async fn enter_once(&self, entry: Entry) -> Result<(), Left> {
        self.line_up(entry).await
    }

    /// Puts an entry in line, and sees to it that somebody serves it, also if nobody waits for what is given here.
    pub fn line_up(&self, entry: Entry) -> impl Future<Output = Result<(), Left>> + Send + use<> {
        let (done, answer) = oneshot::channel();
        let mut line = self.0.line();
        line.waiting.push(Waiting { entry, done });
        let is_served = line.served_by >= self.0.at_once;
        line.served_by += usize::from(!is_served);
        drop(line);
        if !is_served {
            // A task of its own: whoever entered may go away, the others still wait.
            drop(tokio::spawn(serve(Arc::clone(&self.0))));
        }
        async move { answer.await.unwrap_or_else(|_| Err(Left::Refused(interrupted()))) }
    }
}

/// Serves the line until nobody waits.
async fn serve(desk: Arc<Desk>) {
    let mut going = Going { desk: &desk, is_done: false };
    loop {
        // Whoever is about to come comes along.
        tokio::task::yield_now().await;
        let waiting = {
            let mut line = desk.line();
            if line.waiting.is_empty() {
                line.served_by -= 1;
                going.is_done = true;
                return;
            }
            std::mem::take(&mut line.waiting)
        };
        let later = desk.commit(waiting).await;
        // Before those who came meanwhile.
        desk.line().waiting.splice(0..0, later);
    }
}

/// If whoever serves is interrupted, nobody waits for ever.
struct Going<'a> {
    desk: &'a Desk,
    is_done: bool,
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut line = self.desk.line();
            line.served_by -= 1;
            if line.served_by == 0 {
                line.waiting.clear();
            }
        }
    }
}

fn interrupted() -> Error {
    Error::Throttled("the ledger was interrupted".to_owned())
}

impl Desk {
    /// Carries out the entries of those who wait; gives back those who have to wait for others among them.
    async fn commit(&self, waiting: Vec<Waiting>) -> Vec<Waiting> {
        let (mut sheets, later) = sheets(waiting);
        let transactions = sheets.iter_mut().map(Sheet::transaction).collect();
        let outcomes = self.store.transact_each(transactions).await;
        let mut again = Vec::new();
        for (sheet, outcome) in sheets.into_iter().zip(outcomes) {
            again.extend(sheet.settle(outcome));
        }
        // Somebody among them was refused: each on its own.
        let (mut alone, mut transactions) = (Vec::new(), Vec::new());
        for waiting in again {
            match waiting.entry.spare {
                Some(writes) => {
                    transactions.push(writes.into_iter().chain(waiting.entry.tally.writes()).collect());
                    alone.push(waiting.done);
                }
                None => drop(waiting.done.send(Err(Left::Undecided))),
            }
        }
        if !alone.is_empty() {
            for (done, outcome) in alone.into_iter().zip(self.store.transact_each(transactions).await) {
                let _ = done.send(outcome.map_err(Left::Refused));
            }
        }
        later
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Transactions in which everybody has a place, but for those who come later: about an item that somebody before them
/// writes.
fn sheets(waiting: Vec<Waiting>) -> (Vec<Sheet>, Vec<Waiting>) {
    let mut sheets: Vec<Sheet> = Vec::new();
    // Of the items that are written, by a hash: two that look the same only come one after the other.
    let (mut later, mut hashes): (Vec<Waiting>, FxHashSet<u64>) = (Vec::new(), FxHashSet::default());
    let mut own = Vec::new();
    for waiting in waiting {
        own.clear();
        own.extend(waiting.entry.writes.iter().filter_map(item_hash));
        let is_met = own.iter().any(|hash| hashes.contains(hash));
        hashes.extend(&own);
        if is_met {
            later.push(waiting);
            continue;
        }
        let left = match sheets.last_mut() {
            Some(sheet) => sheet.add(waiting).err(),
            None => Some(waiting),
        };
        if let Some(waiting) = left {
            let mut sheet = Sheet::default();
            // The first one is always taken; whether it fits is the store's to say.
            sheet.force(waiting);
            sheets.push(sheet);
        }
    }
    (sheets, later)
}

/// A hash of the key of the item that a write is about. A write without a key is refused by the store.
fn item_hash(write: &Write) -> Option<u64> {
    let mut hasher = FxHasher::default();
    write.table().name().hash(&mut hasher);
    match write {
        Write::Put { table, item, .. } => {
            for (name, _) in [Some(table.partition_attribute()), table.sort_attribute()].into_iter().flatten() {
                match item.get(name)? {
                    Value::S(text) => text.hash(&mut hasher),
                    Value::N(number) => number.hash(&mut hasher),
                    Value::B(bytes) => bytes.hash(&mut hasher),
                    _ => return None,
                }
            }
        }
        Write::Packed { item, .. } => {
            let table = item.table();
            for (name, _) in [Some(table.partition_attribute()), table.sort_attribute()].into_iter().flatten() {
                match item.str(name) {
                    Some(text) => text.hash(&mut hasher),
                    None => match item.get(name)? {
                        Value::N(number) => number.hash(&mut hasher),
                        Value::B(bytes) => bytes.hash(&mut hasher),
                        _ => return None,
                    },
                }
            }
        }
        Write::Update { key, .. } | Write::Delete { key, .. } | Write::Check { key, .. } => {
            let Key { partition, sort } = key;
            for value in [Some(partition), sort.as_ref()].into_iter().flatten() {
                match value {
                    KeyValue::S(text) => text.hash(&mut hasher),
                    KeyValue::N(number) => number.hash(&mut hasher),
                    KeyValue::B(bytes) => bytes.hash(&mut hasher),
                }
            }
        }
    }
    Some(hasher.finish())
}

impl Sheet {
    /// Adds an entry, or gives it back if it does not fit: too many, or too large.
    fn add(&mut self, waiting: Waiting) -> Result<(), Waiting> {
        let entry = &waiting.entry;
        let writes = self.writes + entry.writes.len() + self.tally.len_with(&entry.tally);
        let bytes = self.bytes + entry.bytes;
        if self.entries.len() >= MOST_ENTRIES || writes > limits::TRANSACTION_WRITES || bytes > MOST_BYTES {
            return Err(waiting);
        }
        self.force(waiting);
        Ok(())
    }

    fn force(&mut self, waiting: Waiting) {
        let entry = &waiting.entry;
        self.writes += entry.writes.len();
        self.bytes += entry.bytes;
        self.tally.merge(&entry.tally);
        self.entries.push(waiting);
    }

    /// Everybody's writes, which are taken from them, and what counts.
    fn transaction(&mut self) -> Vec<Write> {
        let mut all = Vec::with_capacity(self.writes + self.tally.len());
        for waiting in &mut self.entries {
            all.append(&mut waiting.entry.writes);
        }
        all.extend(self.tally.writes());
        all
    }

    /// Tells everybody; gives back those of whom nothing is decided.
    fn settle(self, outcome: Result<(), Error>) -> Vec<Waiting> {
        let alone = self.entries.len() == 1;
        let mut again = Vec::new();
        let mut first = 0;
        for waiting in self.entries {
            let places = first..first + waiting.entry.count;
            first = places.end;
            let answer = match &outcome {
                Ok(()) => Ok(()),
                Err(Error::Conflict { failed }) => {
                    let own = failed.iter().filter(|one| places.contains(&one.write));
                    let failed: Vec<FailedCondition> =
                        own.map(|one| FailedCondition { write: one.write - places.start, ..one.clone() }).collect();
                    if failed.is_empty() {
                        again.push(waiting);
                        continue;
                    }
                    Err(Error::Conflict { failed })
                }
                // One of them does not fit where it is to go; the others need not suffer.
                Err(Error::Invalid(_)) if !alone => {
                    again.push(waiting);
                    continue;
                }
                Err(error) => Err(same(error)),
            };
            let _ = waiting.done.send(answer.map_err(Left::Refused));
        }
        again
    }
}

fn bytes(writes: &[Write]) -> usize {
    let size = |write: &Write| match write {
        Write::Put { item, .. } => item.size(),
        Write::Packed { item, .. } => item.size(),
        _ => 0,
    };
    writes.iter().map(size).sum()
}

/// The same error, for another one who waits.
fn same(error: &Error) -> Error {
    match error {
        Error::Conflict { failed } => Error::Conflict { failed: failed.clone() },
        Error::Invalid(why) => Error::Invalid(why.clone()),
        Error::Throttled(why) => Error::Throttled(why.clone()),
        Error::Full(why) => Error::Full(why.clone()),
        Error::ReadOnly(why) => Error::ReadOnly(why.clone()),
        Error::Corrupt(why) => Error::Corrupt(why.clone()),
        Error::Open(why) => Error::Open(why.clone()),
        Error::Unreachable(why) => Error::Unreachable(why.clone()),
        Error::Failed { context, source } => {
            Error::Failed { context: context.clone(), source: source.to_string().into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tidings_core::time::ManualClock;
    use tidings_store::memory::Memory;
    use tidings_store::{Condition, Item, Key, KeyKind, Table};

    use super::*;

    fn table() -> Table {
        Table::new("t", "id", KeyKind::S)
    }

    fn put(id: usize) -> Write {
        Write::insert(&table(), Item::new().with("id", format!("{id:03}")))
    }

    fn ledger() -> (Arc<dyn Store>, Ledger) {
        let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH))));
        (Arc::clone(&store), Ledger::new(store, 1))
    }

    #[tokio::test]
    async fn whoever_is_refused_is_refused_alone() {
        let (store, ledger) = ledger();
        ledger.enter(vec![put(7)], Tally::default()).await.unwrap();
        // Number 7 is there, two want number 20, and one wants what cannot be.
        let mut wanted: Vec<Vec<Write>> = (0..100).map(|id| vec![put(id)]).collect();
        wanted.push(vec![put(120), put(20)]);
        wanted.push(vec![Write::check(&table(), Key::new("x"), Condition::None)]);
        let entered = wanted.into_iter().map(|writes| ledger.enter(writes, Tally::default()));
        let outcomes = join_all(entered).await;
        let refused: Vec<usize> =
            outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_err()).map(|(place, _)| place).collect();
        assert_eq!(refused, [7, 100, 101]);
        assert!(outcomes[7].as_ref().unwrap_err().conflict_on(0).is_some());
        assert!(outcomes[100].as_ref().unwrap_err().conflict_on(1).is_some());
        assert!(matches!(outcomes[101], Err(Error::Invalid(_))));
        for id in 0..100 {
            assert!(store.get(&table(), &Key::new(format!("{id:03}"))).await.unwrap().is_some());
        }
        assert!(store.get(&table(), &Key::new("120")).await.unwrap().is_none(), "all or nothing");
    }

    #[tokio::test]
    async fn whoever_has_no_spare_hears_that_nothing_is_decided() {
        let (store, ledger) = ledger();
        ledger.enter(vec![put(7)], Tally::default()).await.unwrap();
        let entries = (0..MOST_ENTRIES + 2).map(|id| Entry::new(vec![put(id)], Tally::default()));
        let entered: Vec<_> = entries.map(|entry| ledger.line_up(entry)).collect();
        for (id, outcome) in entered.into_iter().enumerate() {
            match outcome.await {
                Err(Left::Refused(error)) => assert!(id == 7 && error.conflict_on(0).is_some()),
                Err(Left::Undecided) => assert!(id < MOST_ENTRIES),
                Ok(()) => assert!(id >= MOST_ENTRIES, "in another transaction"),
            }
            let is_there = store.get(&table(), &Key::new(format!("{id:03}"))).await.unwrap().is_some();
            assert_eq!(is_there, id == 7 || id >= MOST_ENTRIES);
        }
    }

    #[tokio::test]
    async fn those_about_one_item_come_one_after_the_other() {
        let (_, ledger) = ledger();
        let wanted = [3, 4, 3, 5, 3].map(|id| ledger.enter(vec![put(id)], Tally::default()));
        let outcomes = join_all(wanted).await;
        assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, true, false]);
        // Also if one of them names it by its key alone.
        let removed = Write::delete(&table(), Key::new("003"));
        let wanted = [removed, put(3), put(3)].map(|write| ledger.enter(vec![write], Tally::default()));
        let outcomes = join_all(wanted).await;
        assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    }

    #[tokio::test]
    async fn an_entry_is_carried_out_although_nobody_waits_for_it() {
        let (store, ledger) = ledger();
        let going = ledger.enter(vec![put(1)], Tally::default());
        assert!(futures_util::FutureExt::now_or_never(going).is_none());
        ledger.enter(vec![put(2)], Tally::default()).await.unwrap();
        assert!(store.get(&table(), &Key::new("001")).await.unwrap().is_some());
    }
}
