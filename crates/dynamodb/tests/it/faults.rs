//! Throttling, errors, lost answers and cancelled transactions: nothing is lost, and nothing is done twice.

use std::sync::Arc;
use std::time::Duration;

use tidings_core::time::{Clock, ManualClock};
use tidings_dynamodb::tables::{self, Wanted};
use tidings_dynamodb::{Dynamo, Policy};
use tidings_store::{Change, Condition, Error, Health, Item, Key, KeyKind, Query, Store, Table, Value, Write};
use tokio::task::JoinSet;

use crate::support::proxy::{FAULTS, Fault, Proxy};
use crate::support::{clock, endpoint, open, options, unique, with_tables};

fn table() -> Table {
    Table::new("items", "pk", KeyKind::S).sort("sk", KeyKind::S).ttl("expires")
}

fn row(pk: &str, sk: &str) -> Item {
    Item::new().with("pk", pk).with("sk", sk)
}

/// A store that sees the world through the proxy, and one that sees it as it is.
struct World {
    proxy: Proxy,
    store: Arc<Dynamo>,
    straight: Dynamo,
    pk: String,
    clock: Arc<ManualClock>,
}

const BUDGET: Duration = Duration::from_millis(300);

/// Pauses short enough for many of them.
async fn world(budget: Duration) -> World {
    let (clock, proxy) = (clock(), Proxy::start().await);
    let straight = with_tables("faults-", &[table()], &clock).await;
    let mut options = options(proxy.endpoint.clone(), "faults-");
    let (base, cap) = (Duration::from_millis(1), Duration::from_millis(8));
    options.retry = Policy { budget, base, cap, ..options.retry };
    let store = Arc::new(open(&options, &[table()], &clock).await);
    World { proxy, store, straight, pk: unique(), clock }
}

impl World {
    fn add(&self) -> Vec<Write> {
        vec![Write::update(&table(), Key::with_sort(&self.pk, "count"), vec![Change::Add("n".into(), 1)])]
    }

    /// What is really there.
    async fn count(&self) -> Option<i64> {
        self.there("count").await.and_then(|item| item.int("n"))
    }

    async fn there(&self, sk: &str) -> Option<Item> {
        self.straight.get(&table(), &Key::with_sort(&self.pk, sk)).await.expect("a get")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_when_half_of_all_requests_fail() {
    const TASKS: i64 = 6;
    const EACH: i64 = 20;
    let world = world(Duration::from_secs(30)).await;
    world.proxy.at_random(50, &FAULTS, 7);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, pk, add) = (world.store.clone(), world.pk.clone(), world.add());
        tasks.spawn(async move {
            let own = Key::with_sort(&pk, format!("own-{task}"));
            for n in 0..EACH {
                // One hot counter, in the way of everybody.
                store.transact(add.clone()).await.unwrap();
                // An insert must not take its own first attempt for somebody else's.
                let item = row(&pk, &format!("item-{task}-{n:02}")).with("n", n);
                store.transact(vec![Write::insert(&table(), item.clone())]).await.unwrap();
                let key = table().key_of(&item).unwrap();
                assert_eq!(store.get(&table(), &key).await.unwrap(), Some(item));
                // Nor must a step from one version to the next.
                let step =
                    vec![Change::Set("version".into(), (n + 1).into()), Change::Append("list".into(), vec![n.into()])];
                let before = if n == 0 { Condition::NotExists } else { Condition::Equals("version".into(), n.into()) };
                let moved = row(&pk, &format!("moved-{task}"));
                let writes = vec![
                    Write::update(&table(), own.clone(), step).when(before),
                    Write::put(&table(), moved.with("at", n)),
                ];
                store.transact(writes).await.unwrap();
            }
        });
    }
    tasks.join_all().await;

    assert_eq!(world.count().await, Some(TASKS * EACH));
    let numbers: Vec<Value> = (0..EACH).map(Value::from).collect();
    for task in 0..TASKS {
        let own = world.there(&format!("own-{task}")).await.unwrap();
        assert_eq!((own.int("version"), own.get("list")), (Some(EACH), Some(&Value::L(numbers.clone()))));
        let moved = world.there(&format!("moved-{task}")).await.unwrap();
        assert_eq!(moved.int("at"), Some(EACH - 1));
    }
    // Through the faults, too, a query gives everything once.
    let mut query = Query::new(&world.pk).prefix("item-").limit(7);
    let mut found = Vec::new();
    loop {
        let page = world.store.query(&table(), &query).await.unwrap();
        found.extend(page.items.iter().filter_map(|item| item.str("sk").map(str::to_owned)));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(i64::try_from(found.len()), Ok(TASKS * EACH));
    assert!(found.is_sorted_by(|a, b| a < b));
    // A token that comes back with another request would be refused.
    let transactions = world.proxy.transactions();
    assert!(transactions.values().all(|attempts| attempts.iter().all(|attempt| attempt == &attempts[0])));
    assert!(transactions.values().any(|attempts| attempts.len() > 3), "hardly anything was repeated");
    let injected = world.proxy.injected();
    assert!(FAULTS.iter().all(|fault| injected.contains_key(fault)), "some fault never came: {injected:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_of_one_call_survive_faults_each_on_its_own() {
    let world = world(Duration::from_secs(30)).await;
    world.proxy.at_random(50, &FAULTS, 3);
    let mut calls = Vec::new();
    for n in 0..30 {
        // Some in the way of each other, some not; every tenth cannot be.
        calls.push(world.add());
        calls.push(vec![Write::insert(&table(), row(&world.pk, &format!("item-{}", n / 10 * 10 + n % 9)))]);
    }
    let answers = world.store.transact_each(calls).await;
    for (n, answer) in answers.iter().enumerate() {
        let again = n % 20 == 19;
        assert_eq!(matches!(answer, Err(Error::Conflict { .. })), again, "{n}: {answer:?}");
        assert_eq!(answer.is_ok(), !again, "{n}: {answer:?}");
    }
    assert_eq!(world.count().await, Some(30));
    let found = world.straight.query(&table(), &Query::new(&world.pk).prefix("item-")).await.unwrap();
    assert_eq!(found.items.len(), 27);
}

#[tokio::test]
async fn an_insert_whose_answer_was_lost_is_no_conflict() {
    let world = world(BUDGET).await;
    for (n, fault) in [Fault::DropAfter, Fault::ErrorAfter].into_iter().enumerate() {
        world.proxy.plan([fault]);
        let item = row(&world.pk, &n.to_string()).with("v", "mine");
        world.store.transact(vec![Write::insert(&table(), item.clone())]).await.unwrap();
        assert_eq!(world.there(&n.to_string()).await, Some(item));
    }
    let counts = world.store.counts();
    assert_eq!((counts.transactions, counts.retries, counts.unknown), (4, 2, 2));
}

/// Between the attempt whose answer was lost and the next, somebody reads the item and removes it.
#[tokio::test]
async fn a_repeated_put_does_not_bring_back_what_was_removed() {
    let world = world(Duration::from_secs(10)).await;
    world.proxy.plan([Fault::DropAfter, Fault::Hold]);
    let put = vec![Write::put(&table(), row(&world.pk, "job"))];
    let store = world.store.clone();
    let writer = tokio::spawn(async move { store.transact(put).await });
    world.proxy.arrived(2).await;
    assert!(world.there("job").await.is_some());
    let done = Write::delete(&table(), Key::with_sort(&world.pk, "job")).when(Condition::Exists);
    world.straight.transact(vec![done]).await.unwrap();
    world.proxy.release();
    writer.await.unwrap().unwrap();
    assert_eq!(world.there("job").await, None, "the job is done twice");
}

/// The first attempt hangs, its answer is given up, and it is carried out after the second.
#[tokio::test]
async fn an_attempt_that_arrives_late_changes_nothing() {
    let mut world = world(Duration::from_secs(10)).await;
    let mut options = options(world.proxy.endpoint.clone(), "faults-");
    options.retry.attempt_timeout = Duration::from_millis(500);
    world.store = Arc::new(open(&options, &[table()], &world.clock).await);
    world.proxy.plan([Fault::Hold]);
    world.store.transact(world.add()).await.unwrap();
    assert_eq!((world.count().await, world.store.counts().unknown), (Some(1), 1));
    world.proxy.release();
    world.proxy.answered(2).await;
    assert_eq!(world.count().await, Some(1));
}

#[tokio::test]
async fn a_conflict_after_a_lost_attempt_is_a_true_one() {
    let world = world(Duration::from_secs(10)).await;
    world.proxy.plan([Fault::DropBefore, Fault::Hold]);
    let insert = |who: &str| vec![Write::insert(&table(), row(&world.pk, "seat").with("who", who))];
    let (store, mine) = (world.store.clone(), insert("me"));
    let writer = tokio::spawn(async move { store.transact(mine).await });
    world.proxy.arrived(2).await;
    world.straight.transact(insert("another")).await.unwrap();
    world.proxy.release();
    let error = writer.await.unwrap().unwrap_err();
    let found = error.conflict_on(0).and_then(|failed| failed.found.as_ref()).and_then(|item| item.str("who"));
    assert_eq!(found, Some("another"), "{error:?}");
}

#[tokio::test]
async fn when_every_attempt_is_turned_away_the_store_is_busy_and_nothing_is_written() {
    for fault in FAULTS.into_iter().filter(|fault| matches!(fault, Fault::Refuse(_) | Fault::Cancel(_))) {
        if fault == Fault::Refuse("TransactionInProgressException") {
            continue;
        }
        let world = world(BUDGET).await;
        world.proxy.at_random(100, &[fault], 1);
        let error = world.store.transact(world.add()).await.unwrap_err();
        assert!(matches!(error, Error::Throttled(_)), "{fault:?}: {error:?}");
        assert_eq!(world.count().await, None);
        let counts = world.store.counts();
        assert!(counts.retries >= 3 && counts.throttled == counts.retries + 1, "{counts:?}");
        assert_eq!(world.store.health(), Health::Ready, "being busy is no illness");
    }
}

#[tokio::test]
async fn reads_give_up_when_the_budget_is_spent() {
    let world = world(BUDGET).await;
    world.proxy.at_random(100, &[Fault::Refuse("ThrottlingException")], 1);
    let start = tokio::time::Instant::now();
    let error = world.store.get(&table(), &Key::with_sort(&world.pk, "a")).await.unwrap_err();
    assert!(matches!(error, Error::Throttled(_)), "{error:?}");
    let error = world.store.query(&table(), &Query::new(&world.pk)).await.unwrap_err();
    assert!(matches!(error, Error::Throttled(_)), "{error:?}");
    assert!(start.elapsed() < 2 * BUDGET + Duration::from_secs(5));
}

/// "Busy" promises that nothing was written, so it is not the word where an answer was lost.
#[tokio::test]
async fn an_outcome_that_stays_unknown_is_not_called_busy() {
    for (planned, then) in [
        (vec![], Fault::DropAfter),
        (vec![], Fault::ErrorAfter),
        (vec![Fault::DropAfter], Fault::Refuse("ThrottlingException")),
        (vec![Fault::DropAfter], Fault::Refuse("TransactionInProgressException")),
    ] {
        let world = world(BUDGET).await;
        world.proxy.plan(planned);
        world.proxy.at_random(100, &[then], 1);
        let error = world.store.transact(world.add()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable(_)), "{then:?}: {error:?}");
        assert_eq!(world.count().await, Some(1), "{then:?}: however often it was repeated");
    }
}

#[tokio::test]
async fn a_refused_condition_is_not_tried_again() {
    let world = world(BUDGET).await;
    let check = Write::check(&table(), Key::with_sort(&world.pk, "a"), Condition::Exists);
    let error = world.store.transact(vec![check]).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
    let counts = world.store.counts();
    assert_eq!((counts.transactions, counts.retries), (1, 0));
}

/// Of the three that meet the expired item, one replaces it; the others must add to the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_of_an_expired_item_survive_faults() {
    let world = world(Duration::from_secs(30)).await;
    for round in 0..10 {
        let (key, now) = (Key::with_sort(&world.pk, format!("{round}")), world.clock.now().as_second());
        let old = table().key_item(&key).with("n", 1000).with("expires", now - 5);
        world.straight.transact(vec![Write::put(&table(), old)]).await.unwrap();
        world.proxy.at_random(50, &FAULTS, round);
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let (store, update) =
                (world.store.clone(), Write::update(&table(), key.clone(), vec![Change::Add("n".into(), 1)]));
            tasks.spawn(async move { store.transact(vec![update]).await.unwrap() });
        }
        tasks.join_all().await;
        assert_eq!(world.there(&format!("{round}")).await, Some(table().key_item(&key).with("n", 3)));
    }
}

#[tokio::test]
async fn a_missing_table_is_named_and_health_tells_until_it_is_there() {
    let (clock, prefix) = (clock(), format!("{}-", unique()));
    let store = open(&options(endpoint(), &prefix), &[table()], &clock).await;
    assert_eq!(store.health(), Health::Ready);
    let put = || vec![Write::put(&table(), row("a", "b"))];
    let error = store.transact(put()).await.unwrap_err();
    assert!(matches!(&error, Error::Open(why) if why.contains("tables check")), "{error:?}");
    assert!(matches!(store.health(), Health::ReadOnly(_)));
    tables::create(&store, &[Wanted::from(table())]).await.unwrap();
    store.transact(put()).await.unwrap();
    assert_eq!(store.health(), Health::Ready);
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_fails_within_its_budget() {
    let mut options = options("http://127.0.0.1:9".to_owned(), "x-");
    options.retry.budget = BUDGET;
    let store = open(&options, &[table()], &clock()).await;
    let error = store.get(&table(), &Key::with_sort("a", "b")).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(matches!(store.health(), Health::ReadOnly(why) if why.contains("does not answer")));
}
