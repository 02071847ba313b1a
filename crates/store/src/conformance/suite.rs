//! What a case has in hand: the store under test, its tables, the time, and words to write cases in.

use std::any::Any;
use std::sync::Arc;

use tidings_core::time::{Clock, ManualClock};

use crate::error::FailedCondition;
use crate::{Error, Item, Key, KeyKind, KeyValue, Page, Query, Store, Table, Write};

/// One store under test.
pub struct Suite {
    pub store: Arc<dyn Store>,
    pub tables: Tables,
    /// The clock the store goes by.
    pub clock: Arc<dyn Clock>,
    /// The same clock, if a case may move it.
    pub manual: Option<Arc<ManualClock>>,
    /// The start of every key, different for every run against the same database.
    pub run: String,
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

/// The tables of the suite.
pub struct Tables {
    /// Text keys, every kind of index, items that expire.
    pub text: Table,
    /// A number as sort key.
    pub numbers: Table,
    /// Bytes as partition and sort key.
    pub bytes: Table,
    /// A partition key alone, items that expire.
    pub plain: Table,
    /// A number as partition key.
    pub counted: Table,
}

/// Indexes of [`Tables::text`].
pub const BY_GROUP: &str = "by-group";
pub const BY_OWNER: &str = "by-owner";
pub const BY_CODE: &str = "by-code";
pub const BY_TITLE: &str = "by-title";
/// In the order of the table itself.
pub const BY_KIND: &str = "by-kind";

impl Default for Tables {
    fn default() -> Self {
        let text = Table::new("conformance-text", "pk", KeyKind::S)
            .sort("sk", KeyKind::S)
            .index(BY_GROUP, ("group".into(), KeyKind::S), Some(("rank".into(), KeyKind::N)))
            .read_whole(BY_GROUP, 200)
            .index(BY_OWNER, ("owner".into(), KeyKind::S), None)
            .index(BY_CODE, ("group".into(), KeyKind::S), Some(("code".into(), KeyKind::B)))
            .index(BY_KIND, ("kind".into(), KeyKind::S), Some(("sk".into(), KeyKind::S)))
            .local_index(BY_TITLE, ("title".into(), KeyKind::S))
            .ttl("expires")
            // What these allow an engine to do must not be seen.
            .lists(1)
            .ordered();
        Self {
            text,
            numbers: Table::new("conformance-numbers", "pk", KeyKind::S).sort("sk", KeyKind::N),
            bytes: Table::new("conformance-bytes", "pk", KeyKind::B).sort("sk", KeyKind::B),
            plain: Table::new("conformance-plain", "pk", KeyKind::S).ttl("expires").mostly_new(),
            counted: Table::new("conformance-counted", "pk", KeyKind::N),
        }
    }
}

impl Tables {
    #[must_use]
    pub fn all(&self) -> Vec<Table> {
        [&self.text, &self.numbers, &self.bytes, &self.plain, &self.counted].map(Table::clone).to_vec()
    }
}

impl Suite {
    /// A suite on a store that has the tables. `run` must differ between runs on the same database.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, run: impl Into<String>) -> Self {
        Self { store, tables: Tables::default(), clock, manual: None, run: run.into(), kept: Vec::new() }
    }

    /// A suite on a store whose clock the cases may move.
    pub fn with_manual_clock(store: Arc<dyn Store>, clock: Arc<ManualClock>, run: impl Into<String>) -> Self {
        Self { manual: Some(clock.clone()), ..Self::new(store, clock, run) }
    }

    /// Keeps something (a temporary directory, a server) until the suite is dropped.
    #[must_use]
    pub fn keep(mut self, thing: impl Any + Send + Sync) -> Self {
        self.kept.push(Box::new(thing));
        self
    }

    /// The same suite with keys of its own for this case.
    #[must_use]
    pub fn case(mut self, name: &str) -> Self {
        self.run = format!("{}/{name}", self.run);
        self
    }

    /// A partition (or another attribute's value) that no other case and no other run uses.
    #[must_use]
    pub fn own(&self, name: &str) -> String {
        format!("{}/{name}", self.run)
    }

    /// Like [`Suite::own`], as long as asked.
    #[must_use]
    pub fn own_of(&self, name: &str, bytes: usize) -> String {
        let mut own = self.own(name);
        assert!(own.len() <= bytes, "the run's name is too long for keys of {bytes} bytes");
        own.push_str(&"x".repeat(bytes - own.len()));
        own
    }

    /// A number that stands for [`Suite::own`] (FNV-1a, cut to what every engine holds exactly).
    #[must_use]
    pub fn own_number(&self, name: &str) -> i64 {
        let hash = self
            .own(name)
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        i64::try_from(hash >> 1).unwrap_or(0)
    }

    #[must_use]
    pub fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    /// Carries out writes that must succeed.
    pub async fn write(&self, writes: Vec<Write>) {
        if let Err(error) = self.store.transact(writes).await {
            panic!("a transaction that is in order failed: {error}");
        }
    }

    pub async fn put(&self, table: &Table, item: Item) {
        self.write(vec![Write::put(table, item)]).await;
    }

    /// Puts many items, some to a transaction.
    pub async fn put_all(&self, table: &Table, items: impl IntoIterator<Item = Item>) {
        let mut writes: Vec<_> = items.into_iter().map(|item| Write::put(table, item)).collect();
        while !writes.is_empty() {
            let rest = writes.split_off(writes.len().min(8));
            self.write(std::mem::replace(&mut writes, rest)).await;
        }
    }

    pub async fn get(&self, table: &Table, key: &Key) -> Option<Item> {
        self.store.get(table, key).await.unwrap_or_else(|error| panic!("a get that is in order failed: {error}"))
    }

    pub async fn page(&self, table: &Table, query: &Query) -> Page {
        let page = self.store.query(table, query).await;
        page.unwrap_or_else(|error| panic!("a query that is in order failed: {error}"))
    }

    /// The items of all pages; `query.limit` is the size of a page.
    pub async fn all(&self, table: &Table, mut query: Query) -> Vec<Item> {
        let mut items = Vec::new();
        for _ in 0..10_000 {
            let page = self.page(table, &query).await;
            assert!(page.items.len() <= query.limit, "a page has more items than its limit");
            items.extend(page.items);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return items,
            }
        }
        panic!("the pages do not come to an end");
    }

    /// The sort keys of all pages of the table's own order.
    pub async fn sorts(&self, table: &Table, query: Query) -> Vec<KeyValue> {
        sorts(&self.all(table, query).await)
    }

    /// Carries out writes that must be refused as [`Error::Invalid`].
    pub async fn refused(&self, why: &str, writes: Vec<Write>) {
        match self.store.transact(writes).await {
            Err(Error::Invalid(_)) => {}
            other => panic!("{why}: should have been refused as invalid, but gave {other:?}"),
        }
    }

    pub async fn query_refused(&self, why: &str, table: &Table, query: &Query) {
        match self.store.query(table, query).await {
            Err(Error::Invalid(_)) => {}
            other => panic!("{why}: should have been refused as invalid, but gave {other:?}"),
        }
    }

    /// Carries out writes whose conditions must fail; gives those that did.
    pub async fn conflict(&self, why: &str, writes: Vec<Write>) -> Vec<FailedCondition> {
        match self.store.transact(writes).await {
            Err(Error::Conflict { failed }) => failed,
            other => panic!("{why}: should have been a conflict, but gave {other:?}"),
        }
    }
}

/// An item with a text key and nothing else.
#[must_use]
pub fn row(partition: &str, sort: &str) -> Item {
    Item::new().with("pk", partition).with("sk", sort)
}

/// The items' sort keys, in the items' order.
#[must_use]
pub fn sorts(items: &[Item]) -> Vec<KeyValue> {
    items.iter().filter_map(|item| item.get("sk").and_then(KeyValue::from_value)).collect()
}

/// Texts as sort keys, to compare with [`sorts`].
#[must_use]
pub fn texts<T: AsRef<str>>(texts: &[T]) -> Vec<KeyValue> {
    texts.iter().map(|text| KeyValue::from(text.as_ref())).collect()
}
