//! Random transactions and queries, which must give the same answers on DynamoDB as on the model in memory.
//!
//! What is tried is what the embedded engine is tried with, too. Two things are up to DynamoDB and therefore not
//! compared: the order of items whose index keys are equal, and where exactly a page ends before expired items.

#[path = "../../../store/tests/it/model/strategy.rs"]
mod strategy;

use std::fmt::Debug;
use std::time::Duration;

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidings_dynamodb::Dynamo;
use tidings_store::error::FailedCondition;
use tidings_store::memory::Memory;
use tidings_store::{Error, Item, Key, Query, Store, Table, Write, conformance};

use crate::support::{clock, foreign, unique, with_tables};

/// One thing to do to both stores; the names are the strategy's.
#[derive(Debug, Clone)]
pub enum Op {
    Transact(Vec<Write>),
    Each(Vec<Vec<Write>>),
    Get(Table, Key),
    Page(Table, Query),
    Next,
    Pages(Table, Query),
    Advance(u64),
}

/// What an operation came to, without the wording of errors.
#[derive(Debug, PartialEq)]
enum Outcome<T> {
    Ok(T),
    Conflict(Vec<FailedCondition>),
    Invalid,
    Other(String),
}

impl<T> From<Result<T, Error>> for Outcome<T> {
    fn from(result: Result<T, Error>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(Error::Conflict { failed }) => Self::Conflict(failed),
            Err(Error::Invalid(_)) => Self::Invalid,
            Err(error) => Self::Other(format!("{error:?}")),
        }
    }
}

/// A few cases, each of dozens of operations; `PROPTEST_CASES` asks for more.
#[test]
fn random_transactions_and_queries_give_the_models_answers() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(24);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let prefix = format!("{}-", unique());
    let result =
        runner.run(&strategy::ops(), |ops| runtime.block_on(same_as_model(&prefix, ops)).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("{error}");
    }
}

async fn same_as_model(prefix: &str, ops: Vec<Op>) -> Result<(), String> {
    let clock = clock();
    let model = Memory::new(clock.clone());
    let store = with_tables(prefix, &conformance::tables(), &clock).await;
    clear(prefix).await;
    for (n, op) in ops.into_iter().enumerate() {
        let result = match op.clone() {
            Op::Transact(writes) => {
                same(model.transact(writes.clone()).await.into(), store.transact(writes).await.into())
            }
            Op::Each(transactions) => {
                let left = model.transact_each(transactions.clone()).await;
                let pairs = left.into_iter().zip(store.transact_each(transactions).await);
                pairs.into_iter().try_for_each(|(model, dynamo)| same(model.into(), dynamo.into()))
            }
            Op::Get(table, key) => same(model.get(&table, &key).await.into(), store.get(&table, &key).await.into()),
            Op::Page(table, query) | Op::Pages(table, query) => same_pages(&model, &store, &table, &query).await,
            // Its page may have ended elsewhere.
            Op::Next => Ok(()),
            Op::Advance(seconds) => {
                clock.advance(Duration::from_secs(seconds));
                Ok(())
            }
        };
        result.map_err(|difference| format!("operation {n}, {op:?}: {difference}"))?;
    }
    for (table, query) in strategy::everything() {
        let result = same_pages(&model, &store, &table, &query).await;
        result.map_err(|difference| format!("at the end, {query:?}: {difference}"))?;
    }
    Ok(())
}

fn same<T: PartialEq + Debug>(model: Outcome<T>, dynamo: Outcome<T>) -> Result<(), String> {
    match (&model, &dynamo) {
        // Where both are wrong, which is told first is up to the engine.
        (Outcome::Conflict(_), Outcome::Invalid) | (Outcome::Invalid, Outcome::Conflict(_)) => Ok(()),
        _ if model == dynamo => Ok(()),
        _ => Err(format!("{model:?} on the model, {dynamo:?} on DynamoDB")),
    }
}

async fn same_pages(model: &Memory, dynamo: &Dynamo, table: &Table, query: &Query) -> Result<(), String> {
    same(all(model, table, query.clone()).await.into(), all(dynamo, table, query.clone()).await.into())
}

/// The items of all pages; those of an index in the order of the table.
async fn all(store: &dyn Store, table: &Table, mut query: Query) -> Result<Vec<Item>, Error> {
    let mut items = Vec::new();
    loop {
        let page = store.query(table, &query).await?;
        items.extend(page.items);
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    if query.index.is_some() {
        items.sort_by_key(|item| table.key_of(item).expect("the item has its keys"));
    }
    Ok(items)
}

/// Removes what the case before has left, the expired items too: the next one's clock starts anew.
async fn clear(prefix: &str) {
    let client = foreign();
    for table in conformance::tables() {
        let name = format!("{prefix}{}", table.name());
        let items = client.scan().table_name(&name).send().await.expect("a scan").items.unwrap_or_default();
        for mut item in items {
            item.retain(|name, _| name == "pk" || table.sort_attribute().is_some_and(|(sort, _)| sort == name));
            client.delete_item().table_name(&name).set_key(Some(item)).send().await.expect("a deletion");
        }
    }
}
