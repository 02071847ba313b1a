//! Single items: written, read, replaced, removed; every type of value and of key.

use super::suite::{BY_GROUP, BY_TITLE, Suite, row};
use crate::{Attributes, Change, Condition, Item, Key, KeyValue, Number, Query, Value, Write};

pub async fn puts_gets_overwrites_and_deletes(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    assert_eq!(suite.get(table, &key).await, None);

    let first = row(&pk, "a").with("n", 1).with("only", "first");
    suite.put(table, first.clone()).await;
    assert_eq!(suite.get(table, &key).await, Some(first));

    let second = row(&pk, "a").with("n", 2);
    suite.put(table, second.clone()).await;
    assert_eq!(suite.get(table, &key).await, Some(second), "a put replaces the whole item");
    assert_eq!(suite.get(table, &Key::with_sort(&pk, "b")).await, None);

    suite.write(vec![Write::delete(table, key.clone())]).await;
    assert_eq!(suite.get(table, &key).await, None);
}

pub async fn deleting_nothing_is_no_error(suite: &Suite) {
    let key = Key::with_sort(suite.own("p"), "a");
    suite.write(vec![Write::delete(&suite.tables.text, key.clone())]).await;
    suite.write(vec![Write::delete(&suite.tables.plain, Key::new(suite.own("p")))]).await;
    assert_eq!(suite.get(&suite.tables.text, &key).await, None);
}

// S002-77
pub async fn a_read_sees_the_last_write(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    for n in 0..50 {
        let item = row(&pk, "a").with("n", n).with("group", &pk).with("rank", n);
        suite.put(table, item.clone()).await;
        assert_eq!(suite.get(table, &key).await, Some(item.clone()), "by get, after write {n}");
        assert_eq!(suite.all(table, crate::Query::new(&pk)).await, vec![item], "by query, after write {n}");
    }
}

pub async fn every_type_of_value_comes_back(suite: &Suite) {
    let pk = suite.own("p");
    let map: Attributes = [("ключ".into(), Value::from("значение")), ("null".into(), Value::Null)].into();
    let list = vec![Value::M(map.clone()), Value::L(Vec::new()), Value::L(vec![Value::L(vec![Value::from(-1)])])];
    let nested = Value::M([("list".into(), Value::L(list)), ("map".into(), Value::M(map))].into());
    let item = row(&pk, "a")
        .with("text", "Grüße, 世界 👋\u{0}\n\"\\")
        .with("empty text", "")
        .with("bytes", vec![0, 1, 0x7F, 0x80, 0xFF])
        .with("empty bytes", Vec::<u8>::new())
        .with("number", -17)
        .with("yes", true)
        .with("no", false)
        .with("null", Value::Null)
        .with("list", vec![Value::from("a"), Value::from(1), Value::Null, Value::from(true)])
        .with("empty list", Vec::<Value>::new())
        .with("empty map", Attributes::new())
        .with("nested", nested)
        .with("имя", "a name in another script");
    suite.put(&suite.tables.text, item.clone()).await;
    assert_eq!(suite.get(&suite.tables.text, &Key::with_sort(&pk, "a")).await, Some(item.clone()));
    assert_eq!(suite.all(&suite.tables.text, crate::Query::new(&pk)).await, vec![item]);
}

/// What is packed before it is stored is an item like any other, in the table and in its indexes.
pub async fn a_packed_item_is_stored_as_any_other(suite: &Suite) {
    let table = &suite.tables.text;
    let (pk, expires) = (suite.own("p"), suite.now() + 1000);
    let list = || vec![Some("a"), None, Some("")];
    let map = || [("k", list()), ("l", Vec::new())];
    let packed = || {
        let maps: std::collections::BTreeMap<_, _> = map().into();
        crate::Packer::new(table, 0)
            .with("expires", &expires)
            .with("group", &pk)
            .with_some("kind", None::<&str>)
            .with("map", &maps)
            .with("pk", &pk)
            .with("rank", &-7)
            .with("sk", "a")
            .with_some("title", Some("t"))
            .with("yes", &true)
            .finish()
            .expect("an item of the table")
    };
    let values =
        |list: Vec<Option<&str>>| Value::L(list.into_iter().map(|one| one.map_or(Value::Null, Value::from)).collect());
    let maps: Attributes = map().into_iter().map(|(name, list)| (name.into(), values(list))).collect();
    let item = row(&pk, "a").with("expires", expires).with("group", &pk).with("map", Value::M(maps));
    let item = item.with("rank", -7).with("title", "t").with("yes", true);
    assert_eq!((packed().item().expect("an item"), packed().size()), (item.clone(), item.size()));
    assert_eq!((packed().str("title"), packed().str("rank"), packed().str("kind")), (Some("t"), None, None));

    suite.write(vec![Write::insert_packed(packed())]).await;
    let again = suite.store.transact(vec![Write::insert_packed(packed())]).await;
    assert!(again.is_err_and(|error| error.conflict_on(0).is_some()), "it is there already");
    let key = Key::with_sort(&pk, "a");
    assert_eq!(suite.get(table, &key).await, Some(item.clone()));
    for (index, of) in [(BY_GROUP, &pk), (BY_TITLE, &pk)] {
        assert_eq!(suite.all(table, Query::new(of.as_str()).index(index)).await, vec![item.clone()], "{index}");
    }
    // It is changed and goes as any other.
    suite.write(vec![Write::update(table, key.clone(), vec![Change::Set("rank".into(), 8.into())])]).await;
    let changed = item.with("rank", 8);
    assert_eq!(suite.all(table, Query::new(pk.as_str()).index(BY_GROUP)).await, vec![changed]);
    suite.write(vec![Write::delete(table, key)]).await;
    assert_eq!(suite.all(table, Query::new(pk.as_str()).index(BY_GROUP)).await, vec![]);
}

pub async fn numbers_come_back_exactly(suite: &Suite) {
    let pk = suite.own("p");
    let nines = "9".repeat(38);
    let texts = [
        "0",
        "-1",
        "0.1",
        "-0.000001",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "12345678901234567890.123456789012345678",
        "1E-130",
        "-1E-130",
        "9.9999999999999999999999999999999999999E+125",
        "-9.9999999999999999999999999999999999999E+125",
        &nines,
    ];
    let item = texts.iter().fold(row(&pk, "a"), |item, text| item.with(format!("n {text}"), number(text)));
    suite.put(&suite.tables.text, item.clone()).await;
    assert_eq!(suite.get(&suite.tables.text, &Key::with_sort(&pk, "a")).await, Some(item));
}

pub async fn keys_may_be_text_numbers_or_bytes(suite: &Suite) {
    let (pk, n) = (suite.own("p"), suite.own_number("p"));
    let bytes = [pk.as_bytes(), &[0, 0xFF]].concat();
    let cases: [(_, KeyValue, Option<KeyValue>); 5] = [
        (&suite.tables.text, KeyValue::from(&pk), Some("a".into())),
        (&suite.tables.numbers, KeyValue::from(&pk), Some(KeyValue::N(number("-1.5")))),
        (&suite.tables.bytes, bytes.into(), Some(vec![0].into())),
        (&suite.tables.plain, KeyValue::from(&pk), None),
        (&suite.tables.counted, n.into(), None),
    ];
    for (table, partition, sort) in cases {
        let key = Key { partition, sort };
        let item = table.key_item(&key).with("v", 1);
        suite.put(table, item.clone()).await;
        assert_eq!(suite.get(table, &key).await, Some(item), "{key:?} of {}", table.name());
        suite.write(vec![Write::delete(table, key.clone())]).await;
        assert_eq!(suite.get(table, &key).await, None, "{key:?} of {}", table.name());
    }
}

/// Keys whose parts, put one after the other, look the same.
pub async fn items_with_similar_keys_stay_apart(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let keys = [
        ("", "b"),
        ("a", "b"),
        ("ab", "b"),
        ("a", "bb"),
        ("a#", "b"),
        ("a", "#b"),
        ("a\u{0}", "b"),
        ("a", "\u{0}b"),
        ("a\u{0}\u{0}", "b"),
        ("a\u{0}\u{1}", "b"),
        ("a\u{ff}", "b"),
        ("a", "\u{ff}b"),
        ("a", "b\u{0}"),
        ("a", "b\u{0}\u{ff}"),
    ];
    let items: Vec<Item> =
        keys.iter().zip(0i64..).map(|((p, s), n)| row(&format!("{pk}{p}"), s).with("n", n)).collect();
    suite.write(items.iter().map(|item| Write::insert(table, item.clone())).collect()).await;
    for item in &items {
        let key = table.key_of(item).expect("the item has its keys");
        assert_eq!(suite.get(table, &key).await.as_ref(), Some(item), "{key:?}");
    }
}

fn number(text: &str) -> Number {
    text.parse().expect("the text is a number")
}

/// A key that is known to be unused needs no look: the item is there, and in its indexes.
pub async fn a_fresh_put_stores_the_item(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    suite.write(vec![Write::put(table, row(&pk, "a")).when(Condition::Fresh)]).await;
    assert_eq!(suite.get(table, &Key::with_sort(&pk, "a")).await, Some(row(&pk, "a")));
}
