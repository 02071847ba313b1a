//! What the comparison tries: few keys and values, so that operations meet, and those that tend to go wrong.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop, prop_oneof};
use proptest::sample::select;
use tidings_core::time::Clock;
use tidings_store::conformance::Tables;
use tidings_store::conformance::suite::{BY_CODE, BY_GROUP, BY_KIND, BY_OWNER, BY_TITLE};
use tidings_store::item::Name;
use tidings_store::{Change, Condition, Item, Key, KeyValue, Number, Query, Range, Table, Value, Write};

use super::Op;
use crate::support::clock;

const PARTITIONS: &[&str] = &["a", "ab", "a\u{0}"];
const SORTS: &[&str] = &["a", "a#", "a\u{0}", "ab", "b", "é"];
/// Keys that items of crowds have, too.
const TEXT_SORTS: &[&str] =
    &["a", "a#", "a\u{0}", "ab", "b", "é", "a0-0", "a0-2", "a1-1", "a2-0", "é0-1", "é1-3", "é2-2"];
const NUMBERS: &[&str] = &["-10", "-1.5", "-1e-7", "0", "0.5", "3", "20", "1e20"];
const BYTES: &[&[u8]] = &[&[0], &[0, 0xFF], &[1], &[0xFF], &[0xFF, 0]];
const ATTRIBUTES: &[&str] = &["kind", "group", "rank", "owner", "title", "code", "expires", "n", "s", "list"];

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let tables = Tables::default();
    let question = || prop_oneof![2 => Just((tables.text.clone(), None)), 5 => select(questions(&tables))];
    let query = || question().prop_flat_map(query_of);
    let op = prop_oneof![
        10 => vec(write(), 1..6).prop_map(Op::Transact),
        10 => vec(write(), 1..6).prop_map(|writes| Op::Transact(each_item_once(writes))),
        2 => select(tables.all()).prop_flat_map(|table| key(&table).prop_map(move |key| Op::Get(table.clone(), key))),
        8 => query().prop_map(|(table, query)| Op::Pages(table, query)),
        6 => query().prop_map(|(table, query)| Op::Page(table, query)),
        6 => Just(Op::Next),
        1 => (1..8u64).prop_map(Op::Advance),
    ];
    // Something to find and to run into, before anything else.
    let first = vec(vec(put(&tables.text), 1..4).prop_map(|puts| Op::Transact(each_item_once(puts))), 0..12);
    (crowds(&tables.text), first, vec(op, 1..40))
        .prop_map(|(crowds, first, rest)| crowds.into_iter().chain(first).chain(rest).collect())
}

/// New items that come together, some of which are refused. No two have the same key.
fn crowds(table: &Table) -> impl Strategy<Value = Vec<Op>> + use<> {
    let table = table.clone();
    let item = (vec(attribute(), 0..8), option::weighted(0.9, 1..40i64), prop::bool::weighted(0.1));
    let kind = option::weighted(0.7, select(PARTITIONS));
    let crowd = (select(PARTITIONS), select(["a", "é"].as_slice()), kind, vec(item, 1..12));
    let start = clock().now().as_second();
    vec(crowd, 0..4).prop_map(move |crowds| {
        let mut ops = Vec::new();
        for (number, (partition, letter, kind, items)) in crowds.into_iter().enumerate() {
            let mut crowd = Vec::new();
            for (place, (attributes, expires, is_refused)) in items.into_iter().enumerate() {
                let key = Key::with_sort(partition, format!("{letter}{number}-{place}"));
                let item =
                    attributes.into_iter().fold(table.key_item(&key), |item, (name, value)| item.with(name, value));
                let item = item.with_some("kind", kind).with_some("expires", expires.map(|second| start + second));
                let refused = Write::check(&table, Key::with_sort("a", "none"), Condition::Exists);
                let put = Write::put(&table, item).when(Condition::Fresh);
                crowd.push(if is_refused { vec![refused, put] } else { vec![put] });
            }
            ops.push(Op::Each(crowd));
        }
        ops
    })
}

/// Queries that together see all there is, by table and by index.
pub fn everything() -> Vec<(Table, Query)> {
    let tables = Tables::default();
    let mut queries = Vec::new();
    for (table, index) in questions(&tables) {
        let partitions: Vec<KeyValue> = match partition_kind(&table, index) {
            Kind::Text => PARTITIONS.iter().map(|text| (*text).into()).collect(),
            Kind::Number => NUMBERS.iter().map(|text| KeyValue::N(number(text))).collect(),
            Kind::Bytes => BYTES.iter().map(|bytes| bytes.to_vec().into()).collect(),
        };
        for partition in partitions {
            let mut query = Query::new(partition).limit(7);
            query.index = index.map(str::to_owned);
            queries.extend([(table.clone(), query.clone()), (table.clone(), query.descending())]);
        }
    }
    queries
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Bytes,
}

/// What can be asked: tables, and the indexes of the one that has them.
fn questions(tables: &Tables) -> Vec<(Table, Option<&'static str>)> {
    let indexes = [BY_GROUP, BY_OWNER, BY_CODE, BY_KIND, BY_TITLE].map(|index| (tables.text.clone(), Some(index)));
    tables.all().into_iter().map(|table| (table, None)).chain(indexes).collect()
}

fn partition_kind(table: &Table, index: Option<&str>) -> Kind {
    let tables = Tables::default();
    match index {
        None if *table == tables.bytes => Kind::Bytes,
        None if *table == tables.counted => Kind::Number,
        _ => Kind::Text,
    }
}

fn sort_kind(table: &Table, index: Option<&str>) -> Option<Kind> {
    let tables = Tables::default();
    match index {
        Some(BY_GROUP) => Some(Kind::Number),
        Some(BY_CODE) => Some(Kind::Bytes),
        Some(BY_OWNER) => None,
        Some(_) => Some(Kind::Text),
        None if *table == tables.text => Some(Kind::Text),
        None if *table == tables.numbers => Some(Kind::Number),
        None if *table == tables.bytes => Some(Kind::Bytes),
        None => None,
    }
}

fn key_value(kind: Kind, texts: &'static [&'static str]) -> BoxedStrategy<KeyValue> {
    match kind {
        Kind::Text => select(texts).prop_map(KeyValue::from).boxed(),
        Kind::Number => select(NUMBERS).prop_map(|text| KeyValue::N(number(text))).boxed(),
        Kind::Bytes => select(BYTES).prop_map(|bytes| KeyValue::B(bytes.to_vec())).boxed(),
    }
}

fn key(table: &Table) -> BoxedStrategy<Key> {
    let partition = key_value(partition_kind(table, None), PARTITIONS);
    match sort_kind(table, None) {
        Some(kind) => (partition, key_value(kind, TEXT_SORTS)).prop_map(|(p, s)| Key::with_sort(p, s)).boxed(),
        None => partition.prop_map(Key::new).boxed(),
    }
}

/// The table with the indexes more often than the others.
fn table() -> impl Strategy<Value = Table> {
    let tables = Tables::default();
    prop_oneof![5 => Just(tables.text.clone()), 1 => select(tables.all())]
}

fn put(table: &Table) -> impl Strategy<Value = Write> + use<> {
    let table = table.clone();
    (key(&table), vec(attribute(), 0..8)).prop_map(move |(key, attributes)| {
        let item = attributes.into_iter().fold(table.key_item(&key), |item, (name, value)| item.with(name, value));
        Write::put(&table, item)
    })
}

fn write() -> impl Strategy<Value = Write> {
    table().prop_flat_map(|table| {
        let put = put(&table);
        let update = (key(&table), vec(change(), 1..4)).prop_map({
            let table = table.clone();
            move |(key, changes)| Write::update(&table, key, changes)
        });
        let delete = key(&table).prop_map({
            let table = table.clone();
            move |key| Write::delete(&table, key)
        });
        let check = key(&table).prop_map(move |key| Write::check(&table, key, Condition::Exists));
        let write = prop_oneof![10 => put, 8 => update, 3 => delete, 1 => check];
        (write, option::weighted(0.2, condition())).prop_map(|(write, condition)| match condition {
            Some(condition) => write.when(condition),
            None => write,
        })
    })
}

fn each_item_once(writes: Vec<Write>) -> Vec<Write> {
    let mut seen = Vec::new();
    let mut writes = writes;
    writes.retain(|write| {
        let item = (write.table().name().to_owned(), write.key().ok());
        let new = !seen.contains(&item);
        seen.push(item);
        new
    });
    writes
}

fn attribute() -> impl Strategy<Value = (Name, Value)> {
    let text = |name: &'static str, from: &'static [&'static str]| {
        select(from).prop_map(move |text| (Name::from(name), Value::from(text)))
    };
    let start = clock().now().as_second();
    prop_oneof![
        16 => text("group", PARTITIONS),
        8 => text("kind", PARTITIONS),
        16 => select(NUMBERS).prop_map(|text| ("rank".into(), Value::N(number(text)))),
        8 => text("owner", PARTITIONS),
        8 => text("title", SORTS),
        8 => select(BYTES).prop_map(|bytes| ("code".into(), Value::B(bytes.to_vec()))),
        4 => (-3..40i64).prop_map(move |second| ("expires".into(), Value::from(start + second))),
        8 => (-3..3i64).prop_map(|n| ("n".into(), Value::from(n))),
        8 => text("s", SORTS),
        8 => vec(plain_value(), 0..3).prop_map(|list| ("list".into(), Value::L(list))),
        // Of the wrong type, or empty where it must not be.
        1 => (select(ATTRIBUTES), plain_value()).prop_map(|(name, value)| (name.into(), value)),
    ]
}

fn plain_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        Just(Value::from("")),
        select(SORTS).prop_map(Value::from),
        (-3..3i64).prop_map(Value::from),
        Just(Value::M([("k".into(), Value::L(vec![Value::from("v")]))].into())),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let name = || prop_oneof![3 => Just("n"), 1 => select(ATTRIBUTES), 1 => Just("rank")].prop_map(Name::from);
    let list = prop_oneof![4 => Just("list"), 1 => Just("s")].prop_map(Name::from);
    prop_oneof![
        5 => attribute().prop_map(|(name, value)| Change::Set(name, value)),
        2 => select(ATTRIBUTES).prop_map(|name| Change::Remove(name.into())),
        3 => (name(), -3..3i64).prop_map(|(name, by)| Change::Add(name, by)),
        2 => (list, vec(plain_value(), 0..3)).prop_map(|(name, values)| Change::Append(name, values)),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let leaf = prop_oneof![
        Just(Condition::None),
        Just(Condition::Exists),
        Just(Condition::NotExists),
        attribute().prop_map(|(name, value)| Condition::Equals(name, value)),
        attribute().prop_map(|(name, value)| Condition::Differs(name, value)),
        attribute().prop_map(|(name, value)| Condition::Less(name, value)),
        attribute().prop_map(|(name, value)| Condition::Greater(name, value)),
        select(ATTRIBUTES).prop_map(|name| Condition::HasAttribute(name.into())),
        select(ATTRIBUTES).prop_map(|name| Condition::LacksAttribute(name.into())),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![vec(inner.clone(), 0..3).prop_map(Condition::All), vec(inner, 0..3).prop_map(Condition::any)]
    })
}

fn query_of((table, index): (Table, Option<&'static str>)) -> impl Strategy<Value = (Table, Query)> {
    let partition = key_value(partition_kind(&table, index), PARTITIONS);
    let range = match sort_kind(&table, index) {
        Some(kind) => range(kind).boxed(),
        None => prop_oneof![9 => Just(Range::All), 1 => range(Kind::Text)].boxed(),
    };
    (partition, range, any::<bool>(), 1..6usize, option::weighted(0.05, cursor())).prop_map(
        move |(partition, range, descending, limit, after)| {
            let index = index.map(str::to_owned);
            (table.clone(), Query { index, partition, range, descending, limit, after })
        },
    )
}

/// A cursor that no page gave: right by chance, wrong mostly.
fn cursor() -> impl Strategy<Value = Item> {
    let keys = (key(&Tables::default().text), vec(attribute(), 0..3));
    keys.prop_map(|(key, attributes)| {
        attributes.into_iter().fold(Tables::default().text.key_item(&key), |item, (name, value)| item.with(name, value))
    })
}

fn range(kind: Kind) -> impl Strategy<Value = Range> {
    let bound = move || key_value(kind, TEXT_SORTS);
    prop_oneof![
        8 => Just(Range::All),
        1 => bound().prop_map(Range::Equal),
        1 => select(["a", "é", "", "a\u{0}"].as_slice()).prop_map(|prefix| Range::Prefix(prefix.to_owned())),
        2 => (bound(), bound()).prop_map(|(low, high)| Range::Between(low, high)),
        1 => bound().prop_map(Range::Above),
        1 => bound().prop_map(Range::AtLeast),
        1 => bound().prop_map(Range::Below),
        1 => bound().prop_map(Range::AtMost),
    ]
}

fn number(text: &str) -> Number {
    text.parse().expect("the text is a number")
}
