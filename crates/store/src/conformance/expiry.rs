//! Expiry: an item whose second has come is gone at once, for every operation (SX-05, SX-26).

use std::time::Duration;

use super::suite::{BY_GROUP, BY_OWNER, BY_TITLE, Suite, row, texts};
use crate::error::FailedCondition;
use crate::{Change, Condition, Item, Key, Query, Value, Write};

/// An item in every index that expires so many seconds from now.
fn expiring(suite: &Suite, pk: &str, sort: &str, seconds: i64) -> Item {
    let item = row(pk, sort).with("expires", suite.now() + seconds);
    item.with("group", pk).with("rank", 1).with("owner", pk).with("title", sort)
}

pub async fn an_expired_item_is_not_there(suite: &Suite) {
    let pk = suite.own("p");
    for (sort, seconds, there) in [("long", -86_400, false), ("now", 0, false), ("later", 3600, true)] {
        let item = expiring(suite, &pk, sort, seconds);
        suite.put(&suite.tables.text, item.clone()).await;
        let found = suite.get(&suite.tables.text, &Key::with_sort(&pk, sort)).await;
        assert_eq!(found, there.then_some(item), "{sort}");

        let item = Item::new().with("pk", suite.own(sort)).with("expires", suite.now() + seconds);
        suite.put(&suite.tables.plain, item.clone()).await;
        let found = suite.get(&suite.tables.plain, &Key::new(suite.own(sort))).await;
        assert_eq!(found, there.then_some(item), "{sort}, without sort key");
    }
    // The attribute means nothing to a table that does not expire its items.
    let item = Item::new().with("pk", &pk).with("sk", 1).with("expires", 1);
    suite.put(&suite.tables.numbers, item.clone()).await;
    assert_eq!(suite.get(&suite.tables.numbers, &Key::with_sort(&pk, 1)).await, Some(item));
}

pub async fn an_expired_item_is_not_in_queries(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let items = (0..20).map(|n| expiring(suite, &pk, &format!("{n:02}"), if n % 3 == 0 { 3600 } else { -10 }));
    suite.put_all(table, items).await;
    let there = texts(&["00", "03", "06", "09", "12", "15", "18"]);
    for limit in [1, 2, 100] {
        let query = Query::new(&pk).limit(limit);
        assert_eq!(suite.sorts(table, query.clone()).await, there, "in pages of {limit}");
        let mut found = suite.sorts(table, query.clone().descending()).await;
        found.reverse();
        assert_eq!(found, there, "descending in pages of {limit}");
        for index in [BY_GROUP, BY_OWNER, BY_TITLE] {
            let mut found = suite.sorts(table, query.clone().index(index)).await;
            found.sort();
            assert_eq!(found, there, "{index} in pages of {limit}");
        }
    }
}

pub async fn conditions_do_not_see_an_expired_item(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    suite.put(table, expiring(suite, &pk, "a", -10)).await;
    for (condition, holds) in [
        (Condition::Exists, false),
        (Condition::NotExists, true),
        (Condition::Equals("rank".into(), 1.into()), false),
        (Condition::Differs("rank".into(), 1.into()), true),
        (Condition::Less("rank".into(), 9.into()), false),
        (Condition::HasAttribute("rank".into()), false),
        (Condition::LacksAttribute("rank".into()), true),
    ] {
        let writes = vec![Write::check(table, key.clone(), condition.clone())];
        if holds {
            suite.write(writes).await;
        } else {
            let failed = suite.conflict(&format!("{condition:?}"), writes).await;
            assert!(failed.iter().all(|failed| failed.found.is_none()), "a conflict shows an expired item");
        }
    }
    suite.conflict("it is gone", vec![Write::delete(table, key.clone()).when(Condition::Exists)]).await;
    suite.write(vec![Write::delete(table, key).when(Condition::NotExists)]).await;
}

pub async fn an_expired_item_can_be_written_anew(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    suite.put(table, expiring(suite, &pk, "a", -10)).await;
    let new = row(&pk, "a").with("v", "new").with("group", &pk).with("rank", 2);
    suite.write(vec![Write::insert(table, new.clone())]).await;
    assert_eq!(suite.get(table, &Key::with_sort(&pk, "a")).await, Some(new.clone()));
    // Nothing of the old one stays behind in an index.
    assert_eq!(suite.all(table, Query::new(&pk).index(BY_GROUP)).await, vec![new]);
    assert_eq!(suite.all(table, Query::new(&pk).index(BY_OWNER)).await, Vec::new());
    suite.conflict("the new one is there", vec![Write::insert(table, row(&pk, "a"))]).await;
}

pub async fn an_update_of_an_expired_item_starts_anew(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    suite.put(table, expiring(suite, &pk, "a", -10).with("count", 40)).await;
    suite.write(vec![Write::update(table, key.clone(), vec![Change::Add("count".into(), 2)])]).await;
    assert_eq!(suite.get(table, &key).await, Some(row(&pk, "a").with("count", 2)));
    assert_eq!(suite.all(table, Query::new(&pk).index(BY_GROUP)).await, Vec::new());
}

/// Each in one transaction with others, and under every condition that holds of nothing.
pub async fn an_update_of_an_expired_item_obeys_its_condition(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let add = || vec![Change::Add("count".into(), 2)];
    for (n, (condition, holds)) in [
        (Condition::NotExists, true),
        (Condition::LacksAttribute("rank".into()), true),
        (Condition::Differs("rank".into(), 1.into()), true),
        (Condition::any(vec![Condition::Exists, Condition::NotExists]), true),
        (Condition::Exists, false),
        (Condition::Equals("rank".into(), 1.into()), false),
        (Condition::HasAttribute("count".into()), false),
        (Condition::All(vec![Condition::NotExists, Condition::HasAttribute("count".into())]), false),
    ]
    .into_iter()
    .enumerate()
    {
        let (one, two, new) = (format!("{n}-one"), format!("{n}-two"), format!("{n}-new"));
        for sort in [&one, &two] {
            suite.put(table, expiring(suite, &pk, sort, -10).with("count", 40)).await;
        }
        let writes = vec![
            Write::update(table, Key::with_sort(&pk, &one), add()).when(condition.clone()),
            Write::update(table, Key::with_sort(&pk, &two), add()),
            Write::insert(table, row(&pk, &new)),
        ];
        let expected = if holds {
            suite.write(writes).await;
            vec![row(&pk, &new), row(&pk, &one).with("count", 2), row(&pk, &two).with("count", 2)]
        } else {
            let failed = suite.conflict(&format!("{condition:?}"), writes).await;
            assert_eq!(failed, vec![FailedCondition { write: 0, found: None }], "{condition:?}");
            Vec::new()
        };
        let query = Query::new(&pk).prefix(format!("{n}-"));
        assert_eq!(suite.all(table, query).await, expected, "{condition:?}");
    }
}

/// A fraction of a second is over with the next whole one.
pub async fn an_expiry_may_be_a_fraction_and_of_any_size(suite: &Suite) {
    let table = &suite.tables.plain;
    let now = suite.now();
    for (n, (expires, there)) in [
        (format!("{}.5", now - 1), false),
        (format!("{}.5", now + 3600), true),
        ("0.5".to_owned(), false),
        ("-7".to_owned(), false),
        ("-1e100".to_owned(), false),
        ("1e100".to_owned(), true),
    ]
    .into_iter()
    .enumerate()
    {
        let key = Key::new(suite.own(&n.to_string()));
        let item = table.key_item(&key).with("expires", Value::N(expires.parse().expect("a number")));
        suite.put(table, item.clone()).await;
        assert_eq!(suite.get(table, &key).await, there.then_some(item), "{expires}");
        let insert = vec![Write::insert(table, table.key_item(&key))];
        if there {
            suite.conflict(&expires, insert).await;
        } else {
            suite.write(insert).await;
        }
    }
}

pub async fn an_expiry_that_is_no_number_never_comes(suite: &Suite) {
    let table = &suite.tables.plain;
    for (name, value) in [("text", Value::from("1")), ("null", Value::Null), ("list", vec![Value::from(1)].into())] {
        let item = Item::new().with("pk", suite.own(name)).with("expires", value);
        suite.put(table, item.clone()).await;
        assert_eq!(suite.get(table, &Key::new(suite.own(name))).await, Some(item), "{name}");
    }
}

pub async fn an_expiry_can_be_put_off_or_removed(suite: &Suite) {
    let table = &suite.tables.plain;
    let key = Key::new(suite.own("p"));
    let now = suite.now();
    suite.put(table, table.key_item(&key).with("v", 1).with("expires", now + 3600)).await;
    let set = |at: i64| vec![Write::update(table, key.clone(), vec![Change::Set("expires".into(), at.into())])];
    suite.write(set(now + 7200)).await;
    let item = table.key_item(&key).with("v", 1);
    assert_eq!(suite.get(table, &key).await, Some(item.clone().with("expires", now + 7200)));
    suite.write(vec![Write::update(table, key.clone(), vec![Change::Remove("expires".into())])]).await;
    assert_eq!(suite.get(table, &key).await, Some(item));
    suite.write(set(now - 1)).await;
    assert_eq!(suite.get(table, &key).await, None, "an update can let an item expire");
}

/// Moves the clock, where there is one to move.
// SX-26
pub async fn an_item_expires_in_its_second(suite: &Suite) {
    let Some(clock) = &suite.manual else { return };
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    let item = expiring(suite, &pk, "a", 90 * 86_400);
    suite.put(table, item.clone()).await;
    clock.advance(Duration::from_secs(90 * 86_400 - 1));
    assert_eq!(suite.get(table, &key).await, Some(item.clone()), "a second before");
    assert_eq!(suite.all(table, Query::new(&pk).index(BY_GROUP)).await, vec![item]);
    clock.advance(Duration::from_secs(1));
    assert_eq!(suite.get(table, &key).await, None, "in its second");
    for query in [Query::new(&pk), Query::new(&pk).index(BY_GROUP), Query::new(&pk).index(BY_TITLE)] {
        assert_eq!(suite.all(table, query).await, Vec::new());
    }
    suite.write(vec![Write::insert(table, row(&pk, "a"))]).await;
}
