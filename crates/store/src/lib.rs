//! The store: tables with partition and sort key, secondary indexes and bounded transactions, in the
//! words and with the limits of DynamoDB.
//!
//! [`Store`] is the trait; [`embedded`] is the engine on a local directory, [`memory`] a simple model of
//! the same behaviour for tests, [`faults`] a decorator that makes any engine fail on purpose, and
//! [`conformance`] the suite every one of them passes. Nothing here knows what an alert or a ticket is.

pub mod attributes;
pub mod codec;
pub mod conformance;
pub mod embedded;
pub mod error;
pub mod faults;
pub mod item;
pub mod limits;
pub mod memory;
pub mod number;
pub mod packed;
pub mod query;
mod serde;
pub mod table;
pub mod write;

pub use attributes::Attributes;
pub use error::{Error, FailedCondition};
pub use item::{Item, Key, KeyValue, Name, Value};
pub use number::Number;
pub use packed::{Packed, Packer};
pub use query::{Page, Query, Range};
pub use table::{Index, KeyKind, Table};
pub use write::{Change, Condition, Write};

use async_trait::async_trait;

/// A place for items. Implementations are engines (embedded, DynamoDB) and decorators around them.
///
/// An item whose expiry attribute (`Table::ttl`) is at or before the present second does not exist for any
/// of these operations, conditions included, whether or not it has been swept yet.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The item under `key`, as of the last transaction acknowledged to anybody.
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<Item>, Error>;

    /// One page of items of one partition (of the table or of one of its indexes) in key order.
    ///
    /// A page ends at `query.limit` items or at [`limits::PAGE_BYTES`], whichever comes first; `Page::next`
    /// is set unless the end of the range was reached, and may be set although nothing follows.
    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error>;

    /// Carries out all of `writes`, or none. When it returns `Ok`, they are durable.
    ///
    /// At most [`limits::TRANSACTION_WRITES`] writes, [`limits::TRANSACTION_BYTES`], no item twice. A condition
    /// that does not hold gives [`Error::Conflict`], which names every such write; anything else that is wrong
    /// with the request itself gives [`Error::Invalid`], before anything is looked at. An update that turns out
    /// not to fit the item it finds (its type, its size) gives [`Error::Invalid`] too; where a condition does not
    /// hold either, which of the two errors comes is up to the engine (ours look at the conditions first).
    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error>;

    /// Carries out transactions that have nothing to do with each other, each on its own as by
    /// [`Store::transact`], in this order where they touch the same item; answers for each, in this order.
    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>>;

    /// The same for transactions that are made when they are asked for: who makes many need not keep them all.
    async fn transact_made(
        &self,
        transactions: &mut (dyn Iterator<Item = Vec<Write>> + Send),
    ) -> Vec<Result<(), Error>> {
        self.transact_each(transactions.collect()).await
    }

    /// Whether the store can acknowledge writes, and if not, why.
    fn health(&self) -> Health;
}

/// [`Store::transact_each`] for engines that gain nothing from seeing the transactions together.
pub async fn transact_one_by_one(store: &dyn Store, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
    let mut answers = Vec::with_capacity(transactions.len());
    for writes in transactions {
        answers.push(store.transact(writes).await);
    }
    answers
}

/// What [`Store::health`] answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Ready,
    /// Reads work, writes are refused; the sentence says why and what to do.
    ReadOnly(String),
}
