//! Updates: each change, on items that are there and on ones that are not.

use super::suite::{Suite, row};
use crate::{Attributes, Change, Item, Key, Query, Value, Write};

fn set(name: &'static str, value: impl Into<Value>) -> Change {
    Change::Set(name.into(), value.into())
}

fn remove(name: &'static str) -> Change {
    Change::Remove(name.into())
}

fn add(name: &'static str, by: i64) -> Change {
    Change::Add(name.into(), by)
}

fn append(name: &'static str, values: &[&str]) -> Change {
    Change::Append(name.into(), list(values))
}

fn list(values: &[&str]) -> Vec<Value> {
    values.iter().copied().map(Value::from).collect()
}

pub async fn an_update_changes_what_it_names(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    let item = row(&pk, "a").with("stays", "s").with("goes", "g").with("changes", 1).with("count", 40);
    suite.put(table, item.with("list", list(&["a"]))).await;
    let changes = vec![
        set("changes", "text now"),
        set("new", Attributes::from([("k".into(), Value::from(1))])),
        remove("goes"),
        remove("was never there"),
        add("count", 2),
        append("list", &["b", "c"]),
    ];
    suite.write(vec![Write::update(table, key.clone(), changes)]).await;
    let expected = row(&pk, "a")
        .with("stays", "s")
        .with("changes", "text now")
        .with("new", Attributes::from([("k".into(), Value::from(1))]))
        .with("count", 42)
        .with("list", list(&["a", "b", "c"]));
    assert_eq!(suite.get(table, &key).await, Some(expected));

    suite.write(vec![Write::update(table, key.clone(), vec![add("count", -100), append("list", &[])])]).await;
    let item = suite.get(table, &key).await.expect("the item is there");
    assert_eq!((item.int("count"), item.get("list")), (Some(-58), Some(&Value::L(list(&["a", "b", "c"])))));
}

pub async fn an_update_creates_what_is_not_there(suite: &Suite) {
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    suite.write(vec![Write::update(&suite.tables.text, key.clone(), vec![set("v", "x")])]).await;
    assert_eq!(suite.get(&suite.tables.text, &key).await, Some(row(&pk, "a").with("v", "x")));

    let key = Key::new(suite.own_number("p"));
    suite.write(vec![Write::update(&suite.tables.counted, key.clone(), vec![remove("v")])]).await;
    let item = suite.tables.counted.key_item(&key);
    assert_eq!(suite.get(&suite.tables.counted, &key).await, Some(item), "just the key");
}

pub async fn adding_and_appending_start_from_nothing(suite: &Suite) {
    let table = &suite.tables.plain;
    let pk = suite.own("p");
    let changes = || vec![add("count", -3), append("list", &["a"])];
    suite.write(vec![Write::update(table, Key::new(&pk), changes())]).await;
    let item = Item::new().with("pk", &pk);
    let expected = item.clone().with("count", -3).with("list", list(&["a"]));
    assert_eq!(suite.get(table, &Key::new(&pk)).await, Some(expected));
    suite.write(vec![Write::update(table, Key::new(&pk), changes())]).await;
    let expected = item.with("count", -6).with("list", list(&["a", "a"]));
    assert_eq!(suite.get(table, &Key::new(&pk)).await, Some(expected));
}

pub async fn additions_are_exact(suite: &Suite) {
    let table = &suite.tables.plain;
    let number = |text: &str| Value::N(text.parse().expect("a number"));
    for (n, (start, by, sum)) in [
        ("0.5", 1, Some("1.5")),
        ("-2.5", 2, Some("-0.5")),
        ("1e20", -1, Some("99999999999999999999")),
        ("9223372036854775807", 1, Some("9223372036854775808")),
        ("-9223372036854775808", i64::MIN, Some("-18446744073709551616")),
        ("1e-130", 0, Some("1e-130")),
        // More digits than a number has.
        ("1e-37", 10, None),
        ("1e125", 1, None),
    ]
    .into_iter()
    .enumerate()
    {
        let key = Key::new(suite.own(&n.to_string()));
        let item = |text: &str| table.key_item(&key).with("n", number(text));
        suite.put(table, item(start)).await;
        let writes = vec![Write::update(table, key.clone(), vec![add("n", by)])];
        match sum {
            Some(_) => suite.write(writes).await,
            None => suite.refused(&format!("{start} + {by}"), writes).await,
        }
        assert_eq!(suite.get(table, &key).await, Some(item(sum.unwrap_or(start))), "{start} + {by}");
    }
}

pub async fn an_update_that_cannot_be_made_changes_nothing(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    let item = row(&pk, "a").with("s", "1").with("n", 1).with("null", Value::Null);
    suite.put(table, item.clone()).await;
    for (why, change) in [
        ("adding to text", add("s", 1)),
        ("adding to null", add("null", 1)),
        ("appending to text", append("s", &["x"])),
        ("appending to a number", append("n", &["x"])),
        ("a number for a text index key", set("group", 1)),
        ("text for a number index key", set("rank", "1")),
        ("a list for a text index key", set("group", vec![Value::from("x")])),
        ("an empty index key", set("group", "")),
        ("an empty index key of bytes", set("code", Vec::<u8>::new())),
    ] {
        let writes = vec![
            Write::put(table, row(&pk, "b")),
            Write::update(table, key.clone(), vec![set("v", "new"), change]),
            Write::put(&suite.tables.plain, Item::new().with("pk", &pk)),
        ];
        suite.refused(why, writes).await;
        assert_eq!(suite.all(table, Query::new(&pk)).await, vec![item.clone()], "after {why}");
        assert_eq!(suite.get(&suite.tables.plain, &Key::new(&pk)).await, None, "after {why}");
    }
}

pub async fn an_update_cannot_change_the_key(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    suite.put(table, row(&pk, "a")).await;
    for change in [set("pk", "x"), set("sk", "b"), set("sk", "a"), remove("sk"), add("pk", 1), append("sk", &["x"])] {
        let why = format!("{change:?}");
        suite.refused(&why, vec![Write::update(table, key.clone(), vec![set("v", 1), change])]).await;
    }
    assert_eq!(suite.all(table, Query::new(&pk)).await, vec![row(&pk, "a")]);
}

pub async fn an_update_names_each_attribute_once(suite: &Suite) {
    let table = &suite.tables.text;
    let key = Key::with_sort(suite.own("p"), "a");
    for changes in [vec![set("v", 1), set("v", 2)], vec![set("v", 1), remove("v")], vec![add("v", 1), add("v", 1)]] {
        suite.refused("one attribute twice", vec![Write::update(table, key.clone(), changes)]).await;
    }
    assert_eq!(suite.get(table, &key).await, None);
}

pub async fn an_update_needs_a_change(suite: &Suite) {
    let key = Key::with_sort(suite.own("p"), "a");
    suite.refused("an update of nothing", vec![Write::update(&suite.tables.text, key, Vec::new())]).await;
}
