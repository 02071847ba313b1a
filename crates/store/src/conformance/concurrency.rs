//! Many at once: nothing is lost, nothing is done twice.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::suite::{Suite, row};
use crate::{Change, Condition, Error, Item, Key, Query, Store, Value, Write};

const TASKS: i64 = 16;

/// Carries out a transaction; where the store is busy with others, tries again.
async fn settle(store: &Arc<dyn Store>, writes: Vec<Write>) -> Result<(), Error> {
    for _ in 0..10_000 {
        match store.transact(writes.clone()).await {
            Err(Error::Throttled(_)) => tokio::task::yield_now().await,
            other => return other,
        }
    }
    panic!("the store was busy ten thousand times in a row");
}

pub async fn concurrent_additions_all_count(suite: &Suite) {
    const EACH: i64 = 25;
    let table = &suite.tables.plain;
    let key = Key::new(suite.own("p"));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, table, key) = (suite.store.clone(), table.clone(), key.clone());
        tasks.spawn(async move {
            for _ in 0..EACH {
                let changes = vec![Change::Add("count".into(), 1), Change::Add("sum".into(), task)];
                settle(&store, vec![Write::update(&table, key.clone(), changes)]).await.expect("an addition");
            }
        });
    }
    tasks.join_all().await;
    let item = suite.get(table, &key).await.expect("the item is there");
    let sum = (0..TASKS).sum::<i64>() * EACH;
    assert_eq!((item.int("count"), item.int("sum")), (Some(TASKS * EACH), Some(sum)));
}

/// Whoever meets the expired item first starts anew; all the others add to what that one wrote.
pub async fn concurrent_additions_to_an_expired_item_all_count(suite: &Suite) {
    let table = &suite.tables.plain;
    for round in 0..5 {
        let key = Key::new(suite.own(&round.to_string()));
        suite.put(table, table.key_item(&key).with("count", 1000).with("expires", suite.now() - 10)).await;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (store, table, key) = (suite.store.clone(), table.clone(), key.clone());
            tasks.spawn(async move {
                let add = Write::update(&table, key, vec![Change::Add("count".into(), 1)]);
                settle(&store, vec![add]).await.expect("an addition");
            });
        }
        tasks.join_all().await;
        assert_eq!(suite.get(table, &key).await, Some(table.key_item(&key).with("count", TASKS)), "round {round}");
    }
}

pub async fn concurrent_inserts_have_one_winner(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    for round in 0..10 {
        let sort = round.to_string();
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (store, table, item) = (suite.store.clone(), table.clone(), row(&pk, &sort).with("task", task));
            tasks.spawn(async move {
                match settle(&store, vec![Write::insert(&table, item.clone())]).await {
                    Ok(()) => Some(item),
                    Err(Error::Conflict { .. }) => None,
                    Err(error) => panic!("an insert failed otherwise than by conflict: {error}"),
                }
            });
        }
        let winners: Vec<Item> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1, "round {round}");
        assert_eq!(suite.get(table, &Key::with_sort(&pk, sort)).await, winners.into_iter().next(), "round {round}");
    }
}

pub async fn concurrent_transactions_all_land(suite: &Suite) {
    const EACH: i64 = 20;
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, table, pk) = (suite.store.clone(), table.clone(), pk.clone());
        tasks.spawn(async move {
            for n in 0..EACH {
                let items = ["a", "b", "c"].map(|part| row(&pk, &format!("{task:02}-{n:02}-{part}")).with("n", n));
                let keys = items.clone().map(|item| table.key_of(&item).expect("the item has its keys"));
                let writes = items.clone().map(|item| Write::insert(&table, item));
                settle(&store, writes.to_vec()).await.expect("an insert");
                // S002-77: whoever wrote reads what it wrote, whoever else is writing.
                for (key, item) in keys.iter().zip(items) {
                    assert_eq!(store.get(&table, key).await.expect("a get"), Some(item));
                }
            }
        });
    }
    tasks.join_all().await;
    let found = suite.all(table, Query::new(&pk).limit(1000)).await;
    assert_eq!(i64::try_from(found.len()), Ok(TASKS * EACH * 3));
    assert!(found.is_sorted_by_key(|item| item.str("sk").map(str::to_owned)));
}

/// Transactions handed in together are still each on its own, in order, and a bad one harms no other.
pub async fn transactions_of_one_call_stand_alone(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let insert = |sort: &str| vec![Write::insert(table, row(&pk, sort))];
    let both = vec![Write::insert(table, row(&pk, "c")), Write::insert(table, row(&pk, "a"))];
    let twice = [insert("e"), insert("e")].concat();
    let calls = vec![insert("a"), insert("b"), insert("a"), Vec::new(), both, twice, insert("d")];
    let answers = suite.store.transact_each(calls.clone()).await;
    assert_eq!(kinds(&answers), ["done", "done", "conflict", "invalid", "conflict", "invalid", "done"]);
    let found = suite.all(table, Query::new(&pk)).await;
    assert_eq!(found.iter().filter_map(|item| item.str("sk")).collect::<Vec<_>>(), ["a", "b", "d"]);
    assert!(suite.store.transact_each(Vec::new()).await.is_empty());
    // The same if they are made when they are asked for.
    let calls = calls.into_iter().chain([insert("f")]);
    let answers = suite.store.transact_made(&mut calls.filter(|writes| writes.len() != 2)).await;
    assert_eq!(kinds(&answers), ["conflict", "conflict", "conflict", "invalid", "conflict", "done"]);
    assert_eq!(suite.all(table, Query::new(&pk)).await.len(), 4);
    assert!(suite.store.transact_made(&mut std::iter::empty()).await.is_empty());
}

fn kinds(answers: &[Result<(), Error>]) -> Vec<&'static str> {
    answers
        .iter()
        .map(|answer| match answer {
            Ok(()) => "done",
            Err(Error::Conflict { .. }) => "conflict",
            Err(Error::Invalid(_)) => "invalid",
            Err(_) => "failed",
        })
        .collect()
}

/// Read, decide, write on condition that nothing changed: the losers read again.
pub async fn concurrent_decisions_lose_nothing(suite: &Suite) {
    const EACH: i64 = 5;
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    suite.put(table, row(&pk, "a").with("version", 0).with("list", Vec::<Value>::new())).await;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, table, key) = (suite.store.clone(), table.clone(), key.clone());
        tasks.spawn(async move {
            let mut done = 0;
            while done < EACH {
                let item = store.get(&table, &key).await.expect("a get").expect("the item is there");
                let version = item.int("version").expect("it has a version");
                let Some(Value::L(mut list)) = item.get("list").cloned() else { panic!("it has a list") };
                list.push(task.into());
                let new = item.with("version", version + 1).with("list", list);
                let unchanged = Condition::Equals("version".into(), version.into());
                match settle(&store, vec![Write::put(&table, new).when(unchanged)]).await {
                    Ok(()) => done += 1,
                    Err(Error::Conflict { .. }) => {}
                    Err(error) => panic!("a write failed otherwise than by conflict: {error}"),
                }
            }
        });
    }
    tasks.join_all().await;
    let item = suite.get(table, &key).await.expect("the item is there");
    assert_eq!(item.int("version"), Some(TASKS * EACH));
    let Some(Value::L(list)) = item.get("list") else { panic!("it has a list") };
    for task in 0..TASKS {
        let times = list.iter().filter(|value| **value == Value::from(task)).count();
        assert_eq!(i64::try_from(times), Ok(EACH), "of task {task}");
    }
}
