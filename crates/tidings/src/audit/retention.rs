//! How long the log is kept: for ever, unless `retention.audit_days` says otherwise. The oldest entries then go, and the
//! head remembers where the log begins, so that a removal by anybody else still shows.

use tidings_core::time::Timestamp;
use tidings_store::{Condition, Error, Item, Write};

use super::{Audit, Entry, record, table};

/// Entries that are removed in one transaction.
const AT_ONCE: i64 = 90;

impl Audit {
    /// Removes entries older than `before`; gives how many.
    pub async fn expire(&self, before: Timestamp) -> Result<u64, Error> {
        let mut removed = 0;
        loop {
            let _turn = self.turn.lock().await;
            let Some(head) = self.store.get(table(), &record::head_key()).await? else { return Ok(removed) };
            let (first, last) = record::head_range(&head);
            // The last entry stays: the chain hangs from it.
            let end = self.number_at(before, first, last).await?.min(first + AT_ONCE).min(last);
            if end <= first {
                return Ok(removed);
            }
            let Some(beginning) = self.store.get(table(), &record::key(end)).await? else { return Ok(removed) };
            let previous = Entry::from_item(&beginning)?.previous;
            let mut writes = vec![moved(&head, end, &previous)];
            writes.extend((first..end).map(|seq| Write::delete(table(), record::key(seq))));
            match self.store.transact(writes).await {
                Ok(()) => removed += u64::try_from(end - first).unwrap_or(0),
                // Another node wrote an entry meanwhile.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn moved(head: &Item, first: i64, previous: &str) -> Write {
    let unmoved = head.get("hash").map_or(Condition::NotExists, |hash| Condition::Equals("hash".into(), hash.clone()));
    let head = head.clone().with("first", first).with("firstPrevious", previous);
    Write::put(table(), head).when(unmoved)
}
