//! Secondary indexes: who is in them, and that they follow their items.

use super::suite::{BY_CODE, BY_GROUP, BY_OWNER, BY_TITLE, Suite, row, sorts, texts};
use crate::{Change, Item, Key, Query, Value, Write};

/// The sort keys (in the table) of what an index holds for a partition.
async fn members(suite: &Suite, index: &str, partition: &str) -> Vec<crate::KeyValue> {
    sorts(&suite.all(&suite.tables.text, Query::new(partition).index(index)).await)
}

pub async fn an_index_has_only_the_items_with_its_keys(suite: &Suite) {
    let (pk, group) = (suite.own("p"), suite.own("g"));
    let items = [
        row(&pk, "both").with("group", &group).with("rank", 1),
        row(&pk, "no rank").with("group", &group),
        row(&pk, "no group").with("rank", 1),
        row(&pk, "neither"),
        row(&pk, "code").with("group", &group).with("code", vec![1]),
        row(&pk, "all").with("group", &group).with("rank", 2).with("code", vec![0]),
    ];
    suite.write(items.into_iter().map(|item| Write::put(&suite.tables.text, item)).collect()).await;
    assert_eq!(members(suite, BY_GROUP, &group).await, texts(&["both", "all"]));
    assert_eq!(members(suite, BY_CODE, &group).await, texts(&["all", "code"]));
    assert_eq!(members(suite, BY_GROUP, &pk).await, texts::<&str>(&[]));
}

pub async fn an_entry_moves_with_its_item(suite: &Suite) {
    let table = &suite.tables.text;
    let (pk, one, two) = (suite.own("p"), suite.own("g1"), suite.own("g2"));
    let key = Key::with_sort(&pk, "a");
    let set =
        |name: &'static str, value: Value| Write::update(table, key.clone(), vec![Change::Set(name.into(), value)]);
    suite.put(table, row(&pk, "b").with("group", &one).with("rank", 5)).await;
    suite.put(table, row(&pk, "a").with("group", &one).with("rank", 1)).await;
    assert_eq!(members(suite, BY_GROUP, &one).await, texts(&["a", "b"]));

    suite.write(vec![set("rank", 9.into())]).await;
    assert_eq!(members(suite, BY_GROUP, &one).await, texts(&["b", "a"]), "the sort key changed");
    suite.write(vec![Write::update(table, key.clone(), vec![Change::Add("rank".into(), -7)])]).await;
    assert_eq!(members(suite, BY_GROUP, &one).await, texts(&["a", "b"]), "the sort key was added to");
    suite.write(vec![set("group", Value::from(&two))]).await;
    assert_eq!(members(suite, BY_GROUP, &one).await, texts(&["b"]), "the partition key changed");
    assert_eq!(members(suite, BY_GROUP, &two).await, texts(&["a"]));
    suite.write(vec![Write::update(table, key.clone(), vec![Change::Remove("rank".into())])]).await;
    assert_eq!(members(suite, BY_GROUP, &two).await, texts::<&str>(&[]), "a key attribute was removed");
    suite.write(vec![set("rank", 3.into())]).await;
    assert_eq!(members(suite, BY_GROUP, &two).await, texts(&["a"]), "and came back");

    suite.put(table, row(&pk, "a").with("group", &one).with("rank", 7)).await;
    assert_eq!(members(suite, BY_GROUP, &one).await, texts(&["b", "a"]), "the item was replaced");
    assert_eq!(members(suite, BY_GROUP, &two).await, texts::<&str>(&[]));
}

pub async fn an_entry_goes_with_its_item(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let item = |sort| row(&pk, sort).with("group", &pk).with("rank", 1).with("owner", &pk).with("title", sort);
    suite.write(vec![Write::put(table, item("a")), Write::put(table, item("b")), Write::put(table, item("c"))]).await;
    suite.write(vec![Write::delete(table, Key::with_sort(&pk, "a")), Write::put(table, row(&pk, "c"))]).await;
    for index in [BY_GROUP, BY_OWNER, BY_TITLE] {
        assert_eq!(members(suite, index, &pk).await, texts(&["b"]), "{index}");
    }
}

pub async fn an_index_key_must_be_of_its_type(suite: &Suite) {
    let pk = suite.own("p");
    for (name, value) in [
        ("group", Value::from(1)),
        ("group", vec![1].into()),
        ("group", true.into()),
        ("group", Value::Null),
        ("group", vec![Value::from("a")].into()),
        ("rank", "1".into()),
        ("code", "text".into()),
        ("owner", 1.into()),
        ("title", 1.into()),
    ] {
        let why = format!("{name} as {value:?}");
        suite.refused(&why, vec![Write::put(&suite.tables.text, row(&pk, "a").with(name, value))]).await;
    }
    assert_eq!(suite.all(&suite.tables.text, Query::new(&pk)).await, Vec::new());
}

// S001-46
pub async fn an_index_key_must_not_be_empty(suite: &Suite) {
    let pk = suite.own("p");
    let empty = Value::B(Vec::new());
    for (name, value) in [("group", "".into()), ("owner", "".into()), ("title", "".into()), ("code", empty)] {
        // Alone, and with the index's other key attribute there.
        for item in [row(&pk, "a"), row(&pk, "a").with("rank", 1).with("group", &pk)] {
            let item = item.with(name, value.clone());
            suite.refused(&format!("an empty {name}"), vec![Write::put(&suite.tables.text, item)]).await;
        }
    }
    assert_eq!(suite.all(&suite.tables.text, Query::new(&pk)).await, Vec::new());
}

pub async fn an_index_gives_whole_items(suite: &Suite) {
    let pk = suite.own("p");
    let item = row(&pk, "a").with("group", &pk).with("rank", 1).with("owner", &pk).with("title", "t");
    let item = item.with("code", vec![7]).with("other", vec![Value::from("x")]);
    suite.put(&suite.tables.text, item.clone()).await;
    for index in [BY_GROUP, BY_OWNER, BY_CODE, BY_TITLE] {
        assert_eq!(suite.all(&suite.tables.text, Query::new(&pk).index(index)).await, vec![item.clone()], "{index}");
    }
}

pub async fn an_index_gives_items_as_they_are_now(suite: &Suite) {
    let (table, pk) = (&suite.tables.text, suite.own("p"));
    let key = Key::with_sort(&pk, "a");
    suite.put(table, row(&pk, "a").with("group", &pk).with("rank", 1)).await;
    // Short, longer than what may stand beside an entry, and short again.
    for note in ["one".to_owned(), "x".repeat(500), "two".to_owned()] {
        let change = Change::Set("note".into(), Value::from(&note));
        suite.write(vec![Write::update(table, key.clone(), vec![change])]).await;
        let found = suite.all(table, Query::new(&pk).index(BY_GROUP)).await;
        assert_eq!(found, vec![row(&pk, "a").with("group", &pk).with("rank", 1).with("note", &note)]);
    }
    suite.write(vec![Write::delete(table, key)]).await;
    assert_eq!(suite.all(table, Query::new(&pk).index(BY_GROUP)).await, vec![]);
}

/// Which order such items have is up to the engine; that all of them are there, once, is not.
pub async fn an_index_may_lack_a_sort_key(suite: &Suite) {
    let table = &suite.tables.text;
    let (one, two, owner) = (suite.own("p1"), suite.own("p2"), suite.own("o"));
    let items: Vec<Item> = [&one, &two]
        .into_iter()
        .flat_map(|pk| ["a", "b", "c"].map(|sort| row(pk, sort).with("owner", &owner)))
        .collect();
    suite.put_all(table, items.iter().cloned()).await;
    for limit in [1, 2, 100] {
        let query = Query::new(&owner).index(BY_OWNER).limit(limit);
        for query in [query.clone(), query.descending()] {
            let mut found = suite.all(table, query).await;
            found.sort_by_key(|item| table.key_of(item).expect("the item has its keys"));
            assert_eq!(found, items, "in pages of {limit}");
        }
    }
}

pub async fn a_local_index_keeps_to_its_partition(suite: &Suite) {
    let table = &suite.tables.text;
    let (one, two) = (suite.own("p"), suite.own("pp"));
    let items = [
        row(&one, "a").with("title", "z"),
        row(&one, "b").with("title", "m"),
        row(&one, "c"),
        row(&one, "d").with("title", "a"),
        row(&two, "e").with("title", "b"),
    ];
    suite.write(items.into_iter().map(|item| Write::put(table, item)).collect()).await;
    assert_eq!(members(suite, BY_TITLE, &one).await, texts(&["d", "b", "a"]));
    assert_eq!(members(suite, BY_TITLE, &two).await, texts(&["e"]));
    let query = Query::new(&one).index(BY_TITLE).descending().prefix("m");
    assert_eq!(sorts(&suite.all(table, query).await), texts(&["b"]));
}

pub async fn an_unknown_index_is_refused(suite: &Suite) {
    let pk = suite.own("p");
    suite.query_refused("no such index", &suite.tables.text, &Query::new(&pk).index("by-nothing")).await;
    suite.query_refused("no such index", &suite.tables.plain, &Query::new(&pk).index(BY_GROUP)).await;
}
