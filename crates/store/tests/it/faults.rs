//! The fault-injecting decorator: transparent until told otherwise, and then exactly as told.

use std::sync::Arc;

use tidings_store::conformance::suite::row;
use tidings_store::conformance::{Suite, Tables};
use tidings_store::faults::{Chances, Counts, Fault, Faulty, Moment};
use tidings_store::memory::Memory;
use tidings_store::{Change, Error, Health, Key, Query, Store, Table, Write};

use crate::support::clock;

async fn setup() -> Suite {
    let clock = clock();
    let memory = Arc::new(Memory::new(clock.clone()));
    Suite::with_manual_clock(Arc::new(Faulty::new(memory)), clock, "run")
}

tidings_store::conformance_tests!(setup);

fn faulty() -> (Arc<Faulty>, Table) {
    (Arc::new(Faulty::new(Arc::new(Memory::new(clock())))), Tables::default().text)
}

/// Adds 1 to the item under `p`, `a`.
async fn add(store: &Faulty, table: &Table) -> Result<(), Error> {
    let change = Change::Add("n".into(), 1);
    store.transact(vec![Write::update(table, Key::with_sort("p", "a"), vec![change])]).await
}

async fn sum(store: &Faulty, table: &Table) -> Option<i64> {
    store.get(table, &Key::with_sort("p", "a")).await.expect("reads go on").and_then(|item| item.int("n"))
}

#[tokio::test]
async fn the_chosen_transaction_fails_and_writes_nothing() {
    let (store, table) = faulty();
    store.fail_nth(2, Fault::Throttled);
    store.fail_nth(3, Fault::Full);
    add(&store, &table).await.unwrap();
    assert!(matches!(add(&store, &table).await, Err(Error::Throttled(_))));
    assert!(matches!(add(&store, &table).await, Err(Error::Full(_))));
    assert_eq!(sum(&store, &table).await, Some(1));
    add(&store, &table).await.unwrap();
    assert_eq!((sum(&store, &table).await, store.health()), (Some(2), Health::Ready));
}

#[tokio::test]
async fn a_read_only_store_stays_so_until_healed() {
    let (store, table) = faulty();
    add(&store, &table).await.unwrap();
    store.fail_nth(1, Fault::ReadOnly);
    for _ in 0..3 {
        assert!(matches!(add(&store, &table).await, Err(Error::ReadOnly(_))));
        assert!(matches!(store.health(), Health::ReadOnly(_)));
        assert_eq!(sum(&store, &table).await, Some(1), "reads go on");
    }
    store.heal();
    add(&store, &table).await.unwrap();
    assert_eq!((sum(&store, &table).await, store.health()), (Some(2), Health::Ready));
}

#[tokio::test]
async fn a_lost_reply_is_of_a_transaction_that_happened() {
    let (store, table) = faulty();
    store.fail_nth(1, Fault::ReplyLost);
    assert!(matches!(add(&store, &table).await, Err(Error::Failed { .. })));
    assert_eq!(sum(&store, &table).await, Some(1));
    // Whether the transaction would have failed is lost as well.
    store.fail_nth(1, Fault::ReplyLost);
    let insert = vec![Write::insert(&table, row("p", "a"))];
    assert!(matches!(store.transact(insert).await, Err(Error::Failed { .. })));
    assert_eq!(sum(&store, &table).await, Some(1));
}

#[tokio::test]
async fn a_gate_holds_transactions_before_they_happen() {
    let (store, table) = faulty();
    let gate = store.hold(Moment::Before);
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (store, table) = (store.clone(), table.clone());
            tokio::spawn(async move { add(&store, &table).await })
        })
        .collect();
    gate.arrived(3).await;
    assert_eq!(sum(&store, &table).await, None);
    assert!(tasks.iter().all(|task| !task.is_finished()));
    gate.open();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    add(&store, &table).await.unwrap();
    assert_eq!(sum(&store, &table).await, Some(4));
}

#[tokio::test]
async fn a_gate_holds_answers_of_what_happened() {
    let (store, table) = faulty();
    let gate = store.hold(Moment::After);
    let task = tokio::spawn({
        let (store, table) = (store.clone(), table.clone());
        async move { add(&store, &table).await }
    });
    gate.arrived(1).await;
    assert_eq!(sum(&store, &table).await, Some(1));
    assert!(!task.is_finished());
    drop(gate);
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn every_call_is_counted() {
    let (store, table) = faulty();
    store.fail_nth(2, Fault::Throttled);
    let two = || vec![Write::put(&table, row("p", "a")), Write::put(&table, row("p", "b"))];
    store.transact(two()).await.unwrap();
    store.transact(two()).await.unwrap_err();
    store.get(&table, &Key::with_sort("p", "a")).await.unwrap();
    for _ in 0..3 {
        store.query(&table, &Query::new("p")).await.unwrap();
    }
    let counts = Counts { gets: 1, queries: 3, transacts: 2, writes: 4 };
    assert_eq!((store.counts(), store.reset_counts()), (counts, counts));
    assert_eq!(store.counts(), Counts::default());
}

#[tokio::test]
async fn chance_follows_from_the_seed() {
    let run = async |seed| {
        let (store, table) = faulty();
        store.fail_at_random(seed, Chances { throttled: 100, full: 100, reply_lost: 100, reads: 100 });
        let mut outcomes = Vec::new();
        for _ in 0..1000 {
            outcomes.push(match add(&store, &table).await {
                Ok(()) => 'o',
                Err(Error::Throttled(_)) => 't',
                Err(Error::Full(_)) => 'f',
                Err(Error::Failed { .. }) => 'l',
                Err(error) => panic!("{error}"),
            });
            outcomes.push(if store.query(&table, &Query::new("p")).await.is_ok() { 'r' } else { 'x' });
        }
        store.heal();
        let done = outcomes.iter().filter(|outcome| ['o', 'l'].contains(outcome)).count();
        assert_eq!(sum(&store, &table).await, i64::try_from(done).ok());
        outcomes
    };
    let first = run(7).await;
    assert_eq!(first, run(7).await);
    assert_ne!(first, run(8).await);
    for kind in ['t', 'f', 'l', 'x'] {
        let count = first.iter().filter(|outcome| **outcome == kind).count();
        assert!((50..200).contains(&count), "{count} of {kind}");
    }
}
