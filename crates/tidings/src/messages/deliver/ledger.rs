//! What deliveries write, many messages in one transaction.
//!
//! Taking up and recording are two small writes for each message; alone, each would be a transaction with its own
//! counters. Here whoever comes while a transaction is under way waits for the next one, which has everybody's writes
//! and one sum of their counters. Whoever fails, fails alone.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use tidings_store::{Error, FailedCondition, Item, Store, Write, limits};
use tokio::sync::oneshot;

use crate::messages::counters::Tally;

/// Bytes of the items in one transaction; updates are small and not counted.
const MOST_BYTES: usize = limits::TRANSACTION_BYTES / 2;
/// Messages in one transaction: what is larger takes longer to decide again when one of them is refused.
const MOST_ENTRIES: usize = 40;

pub struct Ledger {
    store: Arc<dyn Store>,
    waiting: Mutex<Vec<Waiting>>,
    /// Held while a transaction is under way.
    turn: tokio::sync::Mutex<()>,
}

struct Waiting {
    writes: Vec<Write>,
    /// Of the items that are written, by a hash: two that look the same only come one after the other.
    keys: Vec<u64>,
    tally: Tally,
    done: oneshot::Sender<Result<(), Error>>,
}

/// A transaction as it fills up.
#[derive(Default)]
struct Sheet {
    entries: Vec<Waiting>,
    tally: Tally,
    keys: HashSet<u64>,
    writes: usize,
    bytes: usize,
}

impl Ledger {
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Carries out the writes and counts the tally, all or nothing. A conflict counts places from the first write.
    pub async fn enter(&self, writes: Vec<Write>, tally: Tally) -> Result<(), Error> {
        let (done, mut answer) = oneshot::channel();
        let keys = keys(&writes);
        self.waiting().push(Waiting { writes, keys, tally, done });
        let _turn = self.turn.lock().await;
        if let Ok(answer) = answer.try_recv() {
            return answer;
        }
        self.commit().await;
        answer.try_recv().unwrap_or_else(|_| Err(Error::Throttled("the ledger was interrupted".to_owned())))
    }

    async fn commit(&self) {
        let waiting = std::mem::take(&mut *self.waiting());
        let mut sheets: Vec<Sheet> = Vec::new();
        for entry in waiting {
            let left = match sheets.last_mut() {
                Some(sheet) => sheet.add(entry).err(),
                None => Some(entry),
            };
            if let Some(entry) = left {
                let mut sheet = Sheet::default();
                // The first one is always taken; whether it fits is the store's to say.
                sheet.force(entry);
                sheets.push(sheet);
            }
        }
        let transactions = sheets.iter().map(Sheet::transaction).collect();
        let outcomes = self.store.transact_each(transactions).await;
        let mut again = Vec::new();
        for (sheet, outcome) in sheets.into_iter().zip(outcomes) {
            again.extend(sheet.settle(outcome));
        }
        if again.is_empty() {
            return;
        }
        // Somebody among them was refused: each on its own.
        let transactions = again.iter().map(Waiting::transaction).collect();
        for (entry, outcome) in again.into_iter().zip(self.store.transact_each(transactions).await) {
            let _ = entry.done.send(outcome);
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn transaction(&self) -> Vec<Write> {
        self.writes.iter().cloned().chain(self.tally.writes()).collect()
    }
}

fn keys(writes: &[Write]) -> Vec<u64> {
    let hash = |write: &Write| {
        let mut hasher = DefaultHasher::new();
        write.table().name().hash(&mut hasher);
        match write {
            // A write without a key is refused by the store.
            Write::Put { .. } => write.key().ok()?.hash(&mut hasher),
            Write::Update { key, .. } | Write::Delete { key, .. } | Write::Check { key, .. } => key.hash(&mut hasher),
        }
        Some(hasher.finish())
    };
    writes.iter().filter_map(hash).collect()
}

impl Sheet {
    /// Adds an entry, or gives it back if it does not fit: too many, too large, or about an item that is there already.
    fn add(&mut self, entry: Waiting) -> Result<(), Waiting> {
        let writes = self.writes + entry.writes.len() + self.tally.len_with(&entry.tally);
        let bytes = self.bytes + bytes(&entry.writes);
        let full = self.entries.len() >= MOST_ENTRIES || writes > limits::TRANSACTION_WRITES || bytes > MOST_BYTES;
        if full || entry.keys.iter().any(|key| self.keys.contains(key)) {
            return Err(entry);
        }
        self.force(entry);
        Ok(())
    }

    fn force(&mut self, entry: Waiting) {
        self.keys.extend(&entry.keys);
        self.writes += entry.writes.len();
        self.bytes += bytes(&entry.writes);
        self.tally.merge(&entry.tally);
        self.entries.push(entry);
    }

    fn transaction(&self) -> Vec<Write> {
        let writes = self.entries.iter().flat_map(|entry| entry.writes.iter().cloned());
        writes.chain(self.tally.writes()).collect()
    }

    /// Tells everybody; gives back those of whom nothing is decided.
    fn settle(self, outcome: Result<(), Error>) -> Vec<Waiting> {
        let alone = self.entries.len() == 1;
        let mut again = Vec::new();
        let mut first = 0;
        for entry in self.entries {
            let places = first..first + entry.writes.len();
            first = places.end;
            let answer = match &outcome {
                Ok(()) => Ok(()),
                Err(Error::Conflict { failed }) => {
                    let own = failed.iter().filter(|one| places.contains(&one.write));
                    let failed: Vec<FailedCondition> =
                        own.map(|one| FailedCondition { write: one.write - places.start, ..one.clone() }).collect();
                    if failed.is_empty() {
                        again.push(entry);
                        continue;
                    }
                    Err(Error::Conflict { failed })
                }
                // One of them does not fit where it is to go; the others need not suffer.
                Err(Error::Invalid(_)) if !alone => {
                    again.push(entry);
                    continue;
                }
                Err(error) => Err(same(error)),
            };
            let _ = entry.done.send(answer);
        }
        again
    }
}

fn bytes(writes: &[Write]) -> usize {
    writes.iter().map(|write| if let Write::Put { item, .. } = write { Item::size(item) } else { 0 }).sum()
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
    use tidings_store::{Condition, Key, KeyKind, Table};

    use super::*;

    fn table() -> Table {
        Table::new("t", "id", KeyKind::S)
    }

    fn put(id: usize) -> Write {
        Write::insert(&table(), Item::new().with("id", format!("{id:03}")))
    }

    fn ledger() -> (Arc<dyn Store>, Ledger) {
        let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH))));
        (Arc::clone(&store), Ledger::new(store))
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
}
