//! Random transactions and queries, which must give the same answers on two stores.
//!
//! [`same_as_memory`] compares an engine with the in-memory model; [`check_same`] compares any two stores.
//! What is tried comes from `strategy`.

mod strategy;

use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidings_core::time::ManualClock;
use tidings_store::faults::Faulty;
use tidings_store::memory::Memory;
use tidings_store::{Error, Key, Page, Query, Store, Table, Write};

use crate::support::clock;

/// One thing to do to both stores.
#[derive(Debug, Clone)]
pub enum Op {
    Transact(Vec<Write>),
    /// Transactions that come together.
    Each(Vec<Vec<Write>>),
    Get(Table, Key),
    /// The first page of a query.
    Page(Table, Query),
    /// The next page of the query before, whatever was written since.
    Next,
    /// Every page of a query.
    Pages(Table, Query),
    /// Seconds that pass.
    Advance(u64),
}

/// Compares the store that `make` makes with the model. The tables are those of the conformance suite; `make`
/// is called once for each of the cases (256, or `PROPTEST_CASES`) and gets the clock the store must go by.
pub fn same_as_memory(make: impl Fn(Arc<ManualClock>) -> Arc<dyn Store>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    // No file of failures: a failure is shrunk to a few operations, which belong into a case of the suite.
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let result = runner.run(&strategy::ops(), |ops| {
        runtime.block_on(async {
            let clock = clock();
            let model: Arc<dyn Store> = Arc::new(Memory::new(clock.clone()));
            check_same(&*model, &*make(clock.clone()), &clock, ops).await.map_err(TestCaseError::fail)
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Does the same to both stores, which go by `clock`; an `Err` says where their answers differ.
pub async fn check_same(a: &dyn Store, b: &dyn Store, clock: &ManualClock, ops: Vec<Op>) -> Result<(), String> {
    let mut open = None;
    for (n, op) in ops.iter().enumerate() {
        let differs = |difference: String| format!("operation {n}, {op:?}: {difference}");
        match op {
            Op::Transact(writes) => {
                let (left, right) = (a.transact(writes.clone()).await, b.transact(writes.clone()).await);
                same(&Outcome::of(left), &Outcome::of(right)).map_err(differs)?;
            }
            Op::Each(transactions) => {
                let (left, right) =
                    (a.transact_each(transactions.clone()).await, b.transact_each(transactions.clone()).await);
                let outcomes = |all: Vec<Result<(), Error>>| all.into_iter().map(Outcome::of).collect::<Vec<_>>();
                same(&outcomes(left), &outcomes(right)).map_err(differs)?;
            }
            Op::Get(table, key) => {
                let (left, right) = (a.get(table, key).await, b.get(table, key).await);
                same(&Outcome::of(left), &Outcome::of(right)).map_err(differs)?;
            }
            Op::Page(table, query) => open = page(a, b, table, query).await.map_err(differs)?.map(|q| (table, q)),
            Op::Next => {
                if let Some((table, query)) = open {
                    open = page(a, b, table, &query).await.map_err(differs)?.map(|q| (table, q));
                }
            }
            Op::Pages(table, query) => pages(a, b, table, query.clone()).await.map_err(differs)?,
            Op::Advance(seconds) => clock.advance(Duration::from_secs(*seconds)),
        }
    }
    for (table, query) in strategy::everything() {
        pages(a, b, &table, query.clone())
            .await
            .map_err(|difference| format!("at the end, {query:?}: {difference}"))?;
    }
    Ok(())
}

async fn pages(a: &dyn Store, b: &dyn Store, table: &Table, query: Query) -> Result<(), String> {
    let mut next = Some(query);
    while let Some(query) = next {
        next = page(a, b, table, &query).await?;
    }
    Ok(())
}

/// Compares one page; gives the query for the next one, if there is one.
async fn page(a: &dyn Store, b: &dyn Store, table: &Table, query: &Query) -> Result<Option<Query>, String> {
    let (left, right) = (a.query(table, query).await, b.query(table, query).await);
    let (left, right) = match (left, right) {
        (Ok(left), Ok(right)) => (left, right),
        (left, right) => return same(&Outcome::of(left), &Outcome::of(right)).map(|()| None),
    };
    same(&left.items, &right.items)?;
    match (left.next, right.next) {
        (Some(left), Some(right)) => {
            same(&left, &right)?;
            Ok(Some(query.clone().after(Some(left))))
        }
        // At the exact end of the range a store need not know that nothing follows.
        (Some(next), None) => nothing_after(a, table, query.clone().after(Some(next))).await,
        (None, Some(next)) => nothing_after(b, table, query.clone().after(Some(next))).await,
        (None, None) => Ok(None),
    }
}

async fn nothing_after(store: &dyn Store, table: &Table, query: Query) -> Result<Option<Query>, String> {
    match store.query(table, &query).await {
        Ok(Page { items, next: None }) if items.is_empty() => Ok(None),
        other => Err(format!("only one of the stores was at the end; the other goes on with {other:?}")),
    }
}

/// What an operation came to, without the wording of errors.
#[derive(Debug, PartialEq)]
enum Outcome<T> {
    Ok(T),
    Conflict(Vec<tidings_store::error::FailedCondition>),
    Invalid,
    Other(String),
}

impl<T> Outcome<T> {
    fn of(result: Result<T, Error>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(Error::Conflict { failed }) => Self::Conflict(failed),
            Err(Error::Invalid(_)) => Self::Invalid,
            Err(error) => Self::Other(error.to_string()),
        }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(left: &T, right: &T) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(format!("{left:?} on one, {right:?} on the other")) }
}

#[test]
fn memory_behind_faulty_is_the_same_as_memory() {
    same_as_memory(|clock| Arc::new(Faulty::new(Arc::new(Memory::new(clock)))));
}

/// Answers without the first item of every page: a store the comparison must find out.
struct Forgetful(Memory);

#[async_trait::async_trait]
impl Store for Forgetful {
    async fn get(&self, table: &Table, key: &Key) -> Result<Option<tidings_store::Item>, Error> {
        self.0.get(table, key).await
    }

    async fn query(&self, table: &Table, query: &Query) -> Result<Page, Error> {
        let page = self.0.query(table, query).await?;
        Ok(Page { items: page.items.into_iter().skip(1).collect(), next: page.next })
    }

    async fn transact(&self, writes: Vec<Write>) -> Result<(), Error> {
        self.0.transact(writes).await
    }

    async fn transact_each(&self, transactions: Vec<Vec<Write>>) -> Vec<Result<(), Error>> {
        tidings_store::transact_one_by_one(self, transactions).await
    }

    fn health(&self) -> tidings_store::Health {
        self.0.health()
    }
}

#[test]
#[should_panic(expected = "on the other")]
fn a_store_that_differs_is_found_out() {
    same_as_memory(|clock| Arc::new(Forgetful(Memory::new(clock))));
}

/// The comparison is worth little if most of what it tries is refused, or if nothing is.
#[test]
fn the_operations_are_of_every_kind() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut runner = TestRunner::deterministic();
    let (mut done, mut conflicts, mut refused, mut found) = (0, 0, 0, 0);
    for _ in 0..200 {
        use proptest::strategy::{Strategy, ValueTree};
        let ops = strategy::ops().new_tree(&mut runner).expect("operations").current();
        let (clock, mut writes) = (clock(), Vec::new());
        let store = Memory::new(clock.clone());
        runtime.block_on(async {
            for op in ops {
                match op {
                    Op::Transact(transaction) => writes.push(store.transact(transaction).await),
                    Op::Each(transactions) => writes.extend(store.transact_each(transactions).await),
                    Op::Page(table, query) | Op::Pages(table, query) => {
                        found += store.query(&table, &query).await.map_or(0, |page| page.items.len());
                    }
                    Op::Advance(seconds) => clock.advance(Duration::from_secs(seconds)),
                    Op::Get(..) | Op::Next => {}
                }
            }
        });
        for write in writes {
            match write {
                Ok(()) => done += 1,
                Err(Error::Conflict { .. }) => conflicts += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(done > 1000 && conflicts > 300 && refused > 100 && found > 300, "{done} {conflicts} {refused} {found}");
}
