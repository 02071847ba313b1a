//! A store as one node sees it, which notices when a node that has been shut out changes a line after all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tidings_store::{Condition, Error, Health, Item, Key, KeyValue, Page, Query, Store, Table, Write};

/// What all witnesses of one store share.
#[derive(Default)]
pub struct Record {
    /// One transaction at a time, so that nothing comes between the look and the deed.
    turn: tokio::sync::Mutex<()>,
    /// Changes of lines that were made in an epoch that was over.
    pub stale: AtomicU64,
    /// Changes that were refused because their epoch was over.
    pub refused: AtomicU64,
}

pub struct Witness {
    pub inner: Arc<dyn Store>,
    pub record: Arc<Record>,
    /// Leaves out the condition that shuts nodes out: the negative control.
    pub careless: bool,
}

/// The epoch that a write demands, and of which entity.
fn demanded(write: &Write) -> Option<(Key, i64)> {
    let Condition::Equals(name, value) = write.condition() else { return None };
    let key = write.key().ok()?;
    let number = match value {
        tidings_store::Value::N(number) => number.to_string().parse().ok()?,
        _ => return None,
    };
    (write.table().name() == "tidings-bus" && name.as_ref() == "epoch").then_some((key, number))
}

/// Whether a write changes what only the owner of a line may change: what lies in its lanes, and its head.
fn is_owners(write: &Write) -> bool {
    let Ok(Key { partition: KeyValue::S(partition), .. }) = write.key() else { return false };
    write.table().name() == "tidings-bus"
        && !matches!(write, Write::Check { .. })
        && ["/m", "/r", "/d", "/x"].iter().any(|kind| partition.ends_with(kind))
}

impl Witness {
    async fn epoch(&self, table: &Table, key: &Key) -> Result<i64, Error> {
        Ok(self.inner.get(table, key).await?.and_then(|item| item.int("epoch")).unwrap_or(0))
    }
}

#[async_trait]
impl Store for Witness {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error> {
        self.inner.get(table, key).await
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        self.inner.query(table, query).await
    }

    async fn transact(&self, mut writes: Vec<Write>) -> Result<(), Error> {
        let _turn = self.record.turn.lock().await;
        let demands: Vec<_> =
            writes.iter().filter_map(|write| Some((write.table().clone(), demanded(write)?))).collect();
        let owners = writes.iter().any(is_owners);
        assert!(!owners || !demands.is_empty(), "a line is changed without its epoch: {writes:?}");
        let mut over = false;
        for (table, (key, epoch)) in &demands {
            over |= self.epoch(table, key).await? != *epoch;
        }
        if self.careless {
            for write in &mut writes {
                if demanded(write).is_some() {
                    let anything = Condition::Differs("epoch".into(), (-1_i64).into());
                    *write = write.clone().when(anything);
                }
            }
        }
        let outcome = self.inner.transact(writes).await;
        match &outcome {
            Ok(()) if over => drop(self.record.stale.fetch_add(1, Ordering::Relaxed)),
            Err(Error::Conflict { .. }) if over => drop(self.record.refused.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
        outcome
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        let mut outcomes = Vec::new();
        for writes in transactions {
            outcomes.push(self.transact(writes).await);
        }
        outcomes
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}
