//! DynamoDB's limits, each at one below, at, and one above (SX-27).
//!
//! The figures stand here once more, so that a change of a constant does not go unnoticed.

use super::suite::{BY_GROUP, BY_TITLE, Suite, row};
use crate::{Change, Error, Item, Key, KeyValue, Query, Table, Value, Write};

pub async fn a_key_must_be_complete_and_of_its_type(suite: &Suite) {
    let (text, numbers, plain) = (&suite.tables.text, &suite.tables.numbers, &suite.tables.plain);
    let pk = suite.own("p");
    for (why, table, item) in [
        ("no partition key", text, Item::new().with("sk", "a")),
        ("no sort key", text, Item::new().with("pk", &pk)),
        ("no key at all", text, Item::new().with("v", 1)),
        ("a number for a text partition key", text, Item::new().with("pk", 1).with("sk", "a")),
        ("a number for a text sort key", text, Item::new().with("pk", &pk).with("sk", 1)),
        ("bytes for a text sort key", text, Item::new().with("pk", &pk).with("sk", vec![1])),
        ("text for a number sort key", numbers, row(&pk, "1")),
        ("a truth for a sort key", text, Item::new().with("pk", &pk).with("sk", true)),
        ("null for a partition key", plain, Item::new().with("pk", Value::Null)),
        ("a list for a partition key", plain, Item::new().with("pk", vec![Value::from("a")])),
        ("text for a number partition key", &suite.tables.counted, Item::new().with("pk", &pk)),
    ] {
        suite.refused(why, vec![Write::put(table, item)]).await;
    }
    for (why, table, key) in [
        ("no sort key", text, Key::new(&pk)),
        ("a sort key too many", plain, Key::with_sort(&pk, "a")),
        ("a number for a text partition key", text, Key::with_sort(1, "a")),
        ("a number for a text sort key", text, Key::with_sort(&pk, 1)),
        ("text for a number sort key", numbers, Key::with_sort(&pk, "1")),
        ("text for bytes", &suite.tables.bytes, Key::with_sort(&pk, "1")),
    ] {
        key_refused(suite, why, table, &key).await;
    }
}

pub async fn a_key_must_not_be_empty(suite: &Suite) {
    let (text, bytes) = (&suite.tables.text, &suite.tables.bytes);
    let pk = suite.own("p");
    key_refused(suite, "an empty partition key", text, &Key::with_sort("", "a")).await;
    key_refused(suite, "an empty sort key", text, &Key::with_sort(&pk, "")).await;
    key_refused(suite, "an empty partition key", &suite.tables.plain, &Key::new("")).await;
    key_refused(suite, "empty bytes", bytes, &Key::with_sort(Vec::new(), vec![1])).await;
    key_refused(suite, "empty bytes", bytes, &Key::with_sort(pk.into_bytes(), Vec::new())).await;
    suite.query_refused("an empty partition", text, &Query::new("")).await;
}

pub async fn a_partition_key_has_at_most_2048_bytes(suite: &Suite) {
    let most = 2048;
    for bytes in [most - 1, most, most + 1] {
        let key = Key::with_sort(suite.own_of("p", bytes), "a");
        key_allowed(suite, bytes <= most, &suite.tables.text, &key).await;
        let key = Key::new(suite.own_of("p", bytes));
        key_allowed(suite, bytes <= most, &suite.tables.plain, &key).await;
        let key = Key::with_sort(suite.own_of("p", bytes).into_bytes(), vec![1]);
        key_allowed(suite, bytes <= most, &suite.tables.bytes, &key).await;
    }
}

pub async fn a_sort_key_has_at_most_1024_bytes(suite: &Suite) {
    let most = 1024;
    let pk = suite.own("p");
    for bytes in [most - 1, most, most + 1] {
        let key = Key::with_sort(&pk, "x".repeat(bytes));
        key_allowed(suite, bytes <= most, &suite.tables.text, &key).await;
        let key = Key::with_sort(pk.clone().into_bytes(), vec![0xFF; bytes]);
        key_allowed(suite, bytes <= most, &suite.tables.bytes, &key).await;
    }
    // It is bytes that count, not characters.
    key_allowed(suite, true, &suite.tables.text, &Key::with_sort(&pk, "é".repeat(most / 2))).await;
    key_allowed(suite, false, &suite.tables.text, &Key::with_sort(&pk, "é".repeat(most / 2 + 1))).await;
}

pub async fn an_index_key_keeps_the_same_limits(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    for (most, attribute) in [(2048, "group"), (1024, "title")] {
        for bytes in [most - 1, most, most + 1] {
            let item = row(&pk, attribute).with("rank", 1).with(attribute, suite.own_of("g", bytes));
            if bytes <= most {
                suite.put(table, item).await;
            } else {
                suite.refused("an index key that is too long", vec![Write::put(table, item)]).await;
            }
        }
    }
    let longest = suite.own_of("g", 2048);
    assert_eq!(suite.all(table, Query::new(longest).index(BY_GROUP)).await.len(), 1);
    assert_eq!(suite.all(table, Query::new(&pk).index(BY_TITLE)).await.len(), 1);
}

pub async fn an_item_has_at_most_400_kib(suite: &Suite) {
    let pk = suite.own("p");
    for bytes in [409_599, 409_600, 409_601] {
        let item = item_of(&pk, "a", bytes);
        if bytes <= 409_600 {
            suite.put(&suite.tables.text, item.clone()).await;
            let found = suite.get(&suite.tables.text, &Key::with_sort(&pk, "a")).await;
            assert!(found == Some(item), "an item of {bytes} bytes did not come back as it was");
        } else {
            suite.refused("an item that is too large", vec![Write::put(&suite.tables.text, item)]).await;
        }
    }
}

pub async fn an_update_cannot_outgrow_an_item(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    let item = item_of(&pk, "a", 409_598);
    suite.put(table, item.clone()).await;
    let set = |value: &str| Write::update(table, key.clone(), vec![Change::Set("v".into(), value.into())]);
    suite.refused("an update to 400 KiB and one byte", vec![set("xx")]).await;
    assert!(suite.get(table, &key).await == Some(item), "a refused update changed the item");
    suite.write(vec![set("x")]).await;
    assert_eq!(suite.get(table, &key).await.map(|item| item.size()), Some(409_600));
}

pub async fn a_transaction_has_1_to_100_writes(suite: &Suite) {
    let table = &suite.tables.text;
    suite.refused("a transaction without writes", Vec::new()).await;
    for count in [99, 100, 101] {
        let pk = suite.own(&count.to_string());
        let writes: Vec<_> = (0..count).map(|n| Write::put(table, row(&pk, &format!("{n:03}")))).collect();
        if count <= 100 {
            suite.write(writes).await;
            assert_eq!(suite.all(table, Query::new(&pk)).await.len(), count);
        } else {
            suite.refused("a transaction of 101 writes", writes).await;
            assert_eq!(suite.all(table, Query::new(&pk)).await, Vec::new(), "a refused transaction wrote something");
        }
    }
}

pub async fn a_transaction_has_at_most_4_mib(suite: &Suite) {
    let table = &suite.tables.text;
    for bytes in [4_194_303, 4_194_304, 4_194_305] {
        let pk = suite.own(&bytes.to_string());
        let whole = bytes / 409_600;
        let mut items: Vec<_> = (0..whole).map(|n| item_of(&pk, &format!("{n:02}"), 409_600)).collect();
        items.push(item_of(&pk, "rest", bytes % 409_600));
        let writes: Vec<_> = items.into_iter().map(|item| Write::put(table, item)).collect();
        let count = writes.len();
        if bytes <= 4_194_304 {
            suite.write(writes).await;
            assert_eq!(suite.all(table, Query::new(&pk)).await.len(), count);
        } else {
            suite.refused("a transaction that is too large", writes).await;
            assert_eq!(suite.all(table, Query::new(&pk)).await, Vec::new(), "a refused transaction wrote something");
        }
    }
}

pub async fn a_transaction_names_an_item_once(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    let put = || Write::put(table, row(&pk, "a"));
    let delete = || Write::delete(table, key.clone());
    let update = || Write::update(table, key.clone(), vec![Change::Set("v".into(), 1.into())]);
    let check = || Write::check(table, key.clone(), crate::Condition::NotExists);
    for (why, writes) in [
        ("two puts of one item", vec![put(), put()]),
        ("a delete and a put of one item", vec![delete(), put()]),
        ("an update and a check of one item", vec![update(), check()]),
        ("one item twice, far apart", vec![put(), Write::put(table, row(&pk, "b")), update()]),
    ] {
        suite.refused(why, writes).await;
    }
    assert_eq!(suite.all(table, Query::new(&pk)).await, Vec::new());
    // The same key in another table is another item.
    suite.write(vec![Write::put(&suite.tables.plain, Item::new().with("pk", &pk)), put()]).await;
}

/// The item itself is the first level.
pub async fn items_nest_at_most_32_levels(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    for levels in [31, 32, 33] {
        for (sort, value) in [("list", nested_lists(levels - 1)), ("map", nested_maps(levels - 1))] {
            let item = row(&pk, sort).with("v", value.clone());
            let key = Key::with_sort(&pk, format!("updated {sort}"));
            let update = Write::update(table, key.clone(), vec![Change::Append("v".into(), vec![value])]);
            if levels <= 32 {
                suite.put(table, item.clone()).await;
                assert_eq!(suite.get(table, &Key::with_sort(&pk, sort)).await, Some(item));
            } else {
                suite.refused("an item that is nested too deep", vec![Write::put(table, item)]).await;
            }
            // The list that is appended to is a level more.
            if levels < 32 {
                suite.write(vec![update]).await;
            } else {
                suite.refused("an update that nests too deep", vec![update]).await;
            }
        }
    }
}

pub async fn an_attribute_has_a_name(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let nameless = || Value::M([("".into(), Value::from(1))].into());
    for item in [
        row(&pk, "a").with("", 1),
        row(&pk, "a").with("v", nameless()),
        row(&pk, "a").with("v", vec![Value::L(vec![nameless()])]),
    ] {
        suite.refused("an attribute without a name", vec![Write::put(table, item)]).await;
    }
    let set = Change::Set("v".into(), nameless());
    suite.refused("an update", vec![Write::update(table, Key::with_sort(&pk, "a"), vec![set])]).await;
    assert_eq!(suite.all(table, Query::new(&pk)).await, Vec::new());
}

fn nested_lists(levels: usize) -> Value {
    (0..levels).fold(Value::from("core"), |value, _| Value::L(vec![value]))
}

fn nested_maps(levels: usize) -> Value {
    (0..levels).fold(Value::from("core"), |value, _| Value::M([("m".into(), value)].into()))
}

/// An item of exactly so many bytes.
pub(super) fn item_of(partition: &str, sort: &str, bytes: usize) -> Item {
    let item = row(partition, sort).with("fill", "");
    let rest = bytes.checked_sub(item.size()).expect("the item is large enough for its keys");
    item.with("fill", "x".repeat(rest))
}

async fn key_allowed(suite: &Suite, allowed: bool, table: &Table, key: &Key) {
    if !allowed {
        return key_refused(suite, "a key that is too long", table, key).await;
    }
    let item = table.key_item(key);
    suite.put(table, item.clone()).await;
    assert_eq!(suite.get(table, key).await, Some(item.clone()));
    let query = Query::new(key.partition.clone());
    let query = match key.sort.clone() {
        Some(sort) => query.range(crate::Range::Equal(sort)),
        None => query,
    };
    assert_eq!(suite.all(table, query).await, vec![item]);
}

/// Every operation must refuse the key.
async fn key_refused(suite: &Suite, why: &str, table: &Table, key: &Key) {
    match suite.store.get(table, key).await {
        Err(Error::Invalid(_)) => {}
        other => panic!("get with {why}: should have been refused as invalid, but gave {other:?}"),
    }
    let change = Change::Set("v".into(), Value::from(1));
    suite.refused(&format!("update with {why}"), vec![Write::update(table, key.clone(), vec![change])]).await;
    suite.refused(&format!("delete with {why}"), vec![Write::delete(table, key.clone())]).await;
    let exists = crate::Condition::Exists;
    suite.refused(&format!("check with {why}"), vec![Write::check(table, key.clone(), exists)]).await;
    if key.sort.is_some() == table.sort_attribute().is_some() {
        suite.refused(&format!("put with {why}"), vec![Write::put(table, table.key_item(key))]).await;
    }
    if let Some(KeyValue::S(sort)) = &key.sort
        && sort.len() > 1024
    {
        let query = Query::new(key.partition.clone()).range(crate::Range::AtLeast(sort.into()));
        suite.query_refused(&format!("query with {why}"), table, &query).await;
    }
}
