//! The model: a store in memory, written to be obviously right rather than fast.
//!
//! Every operation looks at every item of a table. The other engines are compared with it; tests that need
//! some store, not a particular one, use it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tidings_core::time::Clock;

use crate::error::FailedCondition;
use crate::query::{cursor_of, position};
use crate::write::check_transaction;
use crate::{Error, Health, Item, Key, Page, Query, Store, Table, Write, limits};

/// A store in memory. Tables come to be when they are first written to.
pub struct Memory {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
}

type Tables = BTreeMap<String, BTreeMap<Key, Item>>;

impl Memory {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::new(Tables::new()) }
    }

    fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        table.check_key(key)?;
        Ok(find(&self.lock(), table, key, self.now()))
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        let index = query.check(table)?;
        let now = self.now();
        let after = query.after.as_ref().and_then(|cursor| position(table, index, cursor));
        let tables = self.lock();
        let items = tables.get(table.name()).into_iter().flat_map(BTreeMap::values);
        let mut found: Vec<_> = items
            .filter(|item| !table.is_expired(item, now))
            .filter_map(|item| Some((position(table, index, item)?, item)))
            .filter(|((key, _), _)| key.partition == query.partition && query.range.contains(key.sort.as_ref()))
            .collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        if query.descending {
            found.reverse();
        }
        found.retain(|(place, _)| match &after {
            Some(after) if query.descending => place < after,
            Some(after) => place > after,
            None => true,
        });
        let mut page = Page::default();
        let mut bytes = 0;
        for (_, item) in found {
            bytes += item.size();
            page.items.push(item.clone());
            if page.items.len() == query.limit || bytes >= limits::PAGE_BYTES {
                page.next = Some(cursor_of(table, index, item));
                break;
            }
        }
        Ok(page)
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        let keys = check_transaction(&writes)?;
        let now = self.now();
        let mut tables = self.lock();
        let before: Vec<_> =
            writes.iter().zip(&keys).map(|(write, key)| find(&tables, write.table(), key, now)).collect();
        let failed: Vec<_> = writes
            .iter()
            .zip(&before)
            .enumerate()
            .filter(|(_, (write, item))| !write.condition().holds(item.as_ref()))
            .map(|(write, (_, found))| FailedCondition { write, found: found.clone() })
            .collect();
        if !failed.is_empty() {
            return Err(Error::Conflict { failed });
        }
        // Every write is worked out before the first is stored: an update that cannot be made stops them all.
        let after = writes.iter().zip(before).map(|(write, item)| write.apply(item)).collect::<Result<Vec<_>, _>>()?;
        for ((write, key), item) in writes.iter().zip(keys).zip(after) {
            if matches!(write, Write::Check { .. }) {
                continue;
            }
            let items = tables.entry(write.table().name().to_owned()).or_default();
            match item {
                Some(item) => items.insert(key, item),
                None => items.remove(&key),
            };
        }
        Ok(())
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        crate::transact_one_by_one(self, transactions).await
    }

    fn health(&self) -> Health {
        Health::Ready
    }
}

fn find(tables: &Tables, table: &Table, key: &Key, now: i64) -> Option<Item> {
    let item = tables.get(table.name())?.get(key)?;
    (!table.is_expired(item, now)).then(|| item.clone())
}
