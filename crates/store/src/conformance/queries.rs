//! Queries: the order of keys, every range, both directions, and the walls between partitions.

use super::suite::{BY_CODE, BY_GROUP, BY_OWNER, Suite, row, texts};
use crate::{Item, KeyValue, Query, Range, Table, Write};

/// Texts, ascending by their bytes in UTF-8; the last two would change places in UTF-16.
const TEXTS: &[&str] = &[
    "\u{0}",
    "\u{0}\u{0}",
    "\u{1}",
    "#",
    "#a",
    "0",
    "10",
    "2",
    "A",
    "B",
    "a",
    "a\u{0}",
    "a\u{0}b",
    "a#",
    "a0",
    "aa",
    "b",
    "\u{7f}",
    "\u{80}",
    "é",
    "\u{ff}",
    "世",
    "\u{ffee}",
    "\u{1f44b}",
];

/// Numbers, ascending.
const NUMBERS: &[&str] = &[
    "-9.9999999999999999999999999999999999999E+125",
    "-1e100",
    "-12345678901234567890",
    "-100",
    "-99.5",
    "-12",
    "-11.5",
    "-2",
    "-1",
    "-0.5",
    "-0.05",
    "-1e-130",
    "0",
    "1e-130",
    "0.05",
    "0.5",
    "0.51",
    "1",
    "1.0000000000000000000000000000000000001",
    "2",
    "9",
    "10",
    "11.5",
    "100",
    "12345678901234567890",
    "1e100",
];

/// Bytes, ascending.
const BYTES: &[&[u8]] = &[
    &[0],
    &[0, 0],
    &[0, 1],
    &[0, 0xFF],
    &[1],
    &[1, 0],
    &[0x7F],
    &[0x80],
    &[0xFE],
    &[0xFF],
    &[0xFF, 0],
    &[0xFF, 0xFF],
    &[0xFF, 0xFF, 0],
];

pub async fn text_is_in_the_order_of_its_bytes(suite: &Suite) {
    let keys: Vec<KeyValue> = texts(TEXTS);
    every_range(suite, &suite.tables.text, None, suite.own("p").into(), &keys).await;
}

pub async fn numbers_are_in_the_order_of_their_values(suite: &Suite) {
    every_range(suite, &suite.tables.numbers, None, suite.own("p").into(), &numbers()).await;
}

pub async fn bytes_are_in_order(suite: &Suite) {
    every_range(suite, &suite.tables.bytes, None, suite.own("p").into_bytes().into(), &bytes()).await;
}

pub async fn index_numbers_are_in_the_order_of_their_values(suite: &Suite) {
    every_range(suite, &suite.tables.text, Some(BY_GROUP), suite.own("g").into(), &numbers()).await;
}

pub async fn index_bytes_are_in_order(suite: &Suite) {
    every_range(suite, &suite.tables.text, Some(BY_CODE), suite.own("g").into(), &bytes()).await;
}

fn numbers() -> Vec<KeyValue> {
    NUMBERS.iter().map(|text| KeyValue::N(text.parse().expect("a number"))).collect()
}

fn bytes() -> Vec<KeyValue> {
    BYTES.iter().map(|bytes| KeyValue::B(bytes.to_vec())).collect()
}

/// Asks for every range with bounds out of `keys`, which are in order, and expects that stretch of them.
async fn every_range(suite: &Suite, table: &Table, index: Option<&str>, partition: KeyValue, keys: &[KeyValue]) {
    let (pk_name, sk_name) = match index {
        Some(BY_GROUP) => ("group", "rank"),
        Some(_) => ("group", "code"),
        None => ("pk", "sk"),
    };
    // Not in order, so that the order comes from the store.
    let shuffled = (0..keys.len()).filter_map(|n| keys.get((n * 7 + 3) % keys.len()).map(|key| (n, key)));
    let items = shuffled.map(|(n, key)| {
        let item = match index {
            Some(_) => row(&suite.own("p"), &format!("{n:03}")),
            None => Item::new(),
        };
        item.with(pk_name, partition.clone()).with(sk_name, key.clone())
    });
    assert!(!keys.len().is_multiple_of(7), "the shuffle would miss some keys");
    suite.put_all(table, items).await;

    let expect = async |range: Range, expected: &[&KeyValue]| {
        let mut query = Query::new(partition.clone()).range(range.clone());
        query.index = index.map(str::to_owned);
        for (query, reverse) in [(query.clone(), false), (query.descending(), true)] {
            let items = suite.all(table, query).await;
            let mut found: Vec<_> =
                items.iter().filter_map(|i| i.get(sk_name).and_then(KeyValue::from_value)).collect();
            if reverse {
                found.reverse();
            }
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{range:?}, descending: {reverse}");
        }
    };
    let stretch = |from: usize, to: usize| keys.iter().skip(from).take(to - from).collect::<Vec<_>>();
    let count = keys.len();
    expect(Range::All, &stretch(0, count)).await;
    for (n, key) in keys.iter().enumerate() {
        expect(Range::Equal(key.clone()), &stretch(n, n + 1)).await;
        expect(Range::Above(key.clone()), &stretch(n + 1, count)).await;
        expect(Range::AtLeast(key.clone()), &stretch(n, count)).await;
        expect(Range::Below(key.clone()), &stretch(0, n)).await;
        expect(Range::AtMost(key.clone()), &stretch(0, n + 1)).await;
        for (m, high) in keys.iter().enumerate().skip(n).step_by(4) {
            expect(Range::Between(key.clone(), high.clone()), &stretch(n, m + 1)).await;
        }
    }
}

pub async fn a_prefix_finds_what_starts_so(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let last = "ab\u{10ffff}";
    let keys = ["a", "ab", "ab\u{0}", "ab#", "abc", last, "ac", "b", "é", "éa", "ê", "\u{10ffff}", "\u{10ffff}a"];
    suite.put_all(table, keys.map(|key| row(&pk, key))).await;
    for (prefix, expected) in [
        ("a", vec!["a", "ab", "ab\u{0}", "ab#", "abc", last, "ac"]),
        ("ab", vec!["ab", "ab\u{0}", "ab#", "abc", last]),
        ("abc", vec!["abc"]),
        ("abcd", vec![]),
        ("é", vec!["é", "éa"]),
        ("\u{10ffff}", vec!["\u{10ffff}", "\u{10ffff}a"]),
        ("B", vec![]),
    ] {
        let query = Query::new(&pk).prefix(prefix);
        assert_eq!(suite.sorts(table, query.clone()).await, texts(&expected), "{prefix:?}");
        assert_eq!(suite.sorts(table, query.clone().limit(1)).await, texts(&expected), "{prefix:?} one by one");
        let mut expected = expected;
        expected.reverse();
        assert_eq!(suite.sorts(table, query.descending()).await, texts(&expected), "{prefix:?} descending");
    }
}

pub async fn a_query_keeps_to_its_partition(suite: &Suite) {
    let table = &suite.tables.text;
    let names = ["a", "ab", "abc", "a#", "a#b", "a\u{0}", "a\u{0}b", "a\u{ff}", "a\u{10ffff}", "b"];
    let sort_keys = ["\u{0}", "#", "b", "bc", "\u{10ffff}"];
    let partitions = names.map(|name| suite.own(name));
    for pk in &partitions {
        suite.put_all(table, sort_keys.map(|sort| row(pk, sort).with("group", pk).with("rank", 1))).await;
    }
    for pk in &partitions {
        let expected: Vec<Item> =
            sort_keys.iter().map(|sort| row(pk, sort).with("group", pk).with("rank", 1)).collect();
        assert_eq!(suite.all(table, Query::new(pk)).await, expected, "{pk:?}");
        let reversed: Vec<_> = expected.iter().rev().cloned().collect();
        assert_eq!(suite.all(table, Query::new(pk).descending()).await, reversed, "{pk:?} descending");
        let mut found = suite.all(table, Query::new(pk).index(BY_GROUP)).await;
        found.sort_by_key(|item| table.key_of(item).expect("the item has its keys"));
        assert_eq!(found, expected, "{pk:?} by index");
        for range in [Range::AtLeast("b".into()), Range::AtMost("b".into()), Range::Prefix("b".into())] {
            let found = suite.all(table, Query::new(pk).range(range.clone())).await;
            assert!(found.iter().all(|item| item.str("pk") == Some(pk)), "{pk:?} {range:?}");
        }
    }
}

pub async fn a_query_keeps_to_its_partition_of_bytes(suite: &Suite) {
    let table = &suite.tables.bytes;
    let ends: [&[u8]; 8] = [&[], &[0], &[0, 0], &[0, 0xFF], &[1], &[0xFF], &[0xFF, 0], &[0xFF, 0xFF]];
    let sort_keys: [&[u8]; 4] = [&[0], &[0, 0xFF], &[0xFF], &[0xFF, 0xFF]];
    let partitions: Vec<Vec<u8>> = ends.iter().map(|end| [suite.own("p").as_bytes(), end].concat()).collect();
    let items = |pk: &Vec<u8>| {
        let pk = pk.clone();
        sort_keys.map(|sort| Item::new().with("pk", pk.clone()).with("sk", sort.to_vec())).to_vec()
    };
    for pk in &partitions {
        suite.write(items(pk).into_iter().map(|item| Write::put(table, item)).collect()).await;
    }
    for pk in &partitions {
        let mut expected = items(pk);
        assert_eq!(suite.all(table, Query::new(pk.clone()).limit(3)).await, expected, "{pk:?}");
        expected.reverse();
        assert_eq!(suite.all(table, Query::new(pk.clone()).limit(3).descending()).await, expected, "{pk:?}");
    }
}

pub async fn an_empty_partition_gives_an_empty_page(suite: &Suite) {
    let pk = suite.own("p");
    let (text, plain) = (&suite.tables.text, &suite.tables.plain);
    for (table, query) in [
        (text, Query::new(&pk)),
        (text, Query::new(&pk).descending()),
        (text, Query::new(&pk).prefix("a")),
        (text, Query::new(&pk).index(BY_GROUP)),
        (text, Query::new(&pk).index(BY_OWNER)),
        (plain, Query::new(&pk)),
    ] {
        assert_eq!(suite.all(table, query).await, Vec::new());
    }
}

pub async fn a_table_without_sort_key_gives_the_one_item(suite: &Suite) {
    let table = &suite.tables.plain;
    let pk = suite.own("p");
    let item = Item::new().with("pk", &pk).with("v", 1);
    suite.put(table, item.clone()).await;
    suite.put(table, Item::new().with("pk", format!("{pk}x"))).await;
    for query in [Query::new(&pk), Query::new(&pk).descending(), Query::new(&pk).limit(1)] {
        assert_eq!(suite.all(table, query).await, vec![item.clone()]);
    }
    let number = suite.own_number("p");
    let item = Item::new().with("pk", number).with("v", 1);
    suite.put(&suite.tables.counted, item.clone()).await;
    assert_eq!(suite.all(&suite.tables.counted, Query::new(number)).await, vec![item]);
}

pub async fn ranges_that_cannot_be_are_refused(suite: &Suite) {
    let pk = suite.own("p");
    let (text, numbers, plain) = (&suite.tables.text, &suite.tables.numbers, &suite.tables.plain);
    let query = || Query::new(&pk);
    for (why, table, query) in [
        ("a limit of 0", text, query().limit(0)),
        ("a number as partition", text, Query::new(1)),
        ("a number as bound of text", text, query().range(Range::AtLeast(1.into()))),
        ("text as bound of numbers", numbers, query().range(Range::Equal("1".into()))),
        ("an empty bound", text, query().range(Range::Above("".into()))),
        ("bounds the wrong way round", text, query().range(Range::Between("b".into(), "a".into()))),
        ("numbers the wrong way round", numbers, query().range(Range::Between(10.into(), 9.into()))),
        ("bounds of two types", text, query().range(Range::Between("a".into(), 1.into()))),
        ("an empty prefix", text, query().prefix("")),
        ("a prefix that is too long", text, query().prefix("x".repeat(1025))),
        ("a prefix of numbers", numbers, query().prefix("1")),
        ("a range without sort key", plain, query().range(Range::AtLeast("a".into()))),
        ("a prefix without sort key", plain, query().prefix("a")),
        ("a range in an index without sort key", text, query().index(BY_OWNER).range(Range::Equal("a".into()))),
    ] {
        suite.query_refused(why, table, &query).await;
    }
}
