//! Conditions: when they hold, and what becomes of the transaction when one does not.

use super::suite::{Suite, row};
use crate::error::FailedCondition;
use crate::{Change, Condition, Item, Key, Query, Value, Write};
use Condition::{All, Differs, Equals, Exists, Greater, HasAttribute, LacksAttribute, Less, NotExists};

fn equals(name: &'static str, value: impl Into<Value>) -> Condition {
    Equals(name.into(), value.into())
}

fn differs(name: &'static str, value: impl Into<Value>) -> Condition {
    Differs(name.into(), value.into())
}

fn less(name: &'static str, value: impl Into<Value>) -> Condition {
    Less(name.into(), value.into())
}

fn greater(name: &'static str, value: impl Into<Value>) -> Condition {
    Greater(name.into(), value.into())
}

/// An item with an attribute of every type.
fn sample(pk: &str) -> Item {
    row(pk, "there")
        .with("n", 5)
        .with("s", "m")
        .with("b", vec![5])
        .with("yes", true)
        .with("null", Value::Null)
        .with("list", vec![Value::from(1), Value::from("x")])
        .with("map", Value::M([("k".into(), Value::from(1))].into()))
}

/// Proves each condition on an item that is there and on one that is not.
async fn check_all(suite: &Suite, cases: Vec<(Condition, bool, bool)>) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    suite.put(table, sample(&pk)).await;
    for (condition, there, missing) in cases {
        for (sort, holds) in [("there", there), ("missing", missing)] {
            let check = Write::check(table, Key::with_sort(&pk, sort), condition.clone());
            let result = suite.store.transact(vec![check]).await;
            assert_eq!(result.is_ok(), holds, "{condition:?} of the item that is {sort}: {result:?}");
            if !holds {
                let failed = [FailedCondition { write: 0, found: there_or_not(&pk, sort) }];
                assert!(
                    matches!(&result, Err(crate::Error::Conflict { failed: f }) if *f == failed),
                    "{condition:?} of the item that is {sort}: {result:?}"
                );
            }
        }
    }
}

fn there_or_not(pk: &str, sort: &str) -> Option<Item> {
    (sort == "there").then(|| sample(pk))
}

pub async fn every_condition_holds_when_it_should(suite: &Suite) {
    let half: Value = Value::N("5.0".parse().expect("a number"));
    // condition, of the item that is there, of none
    let cases = vec![
        (Exists, true, false),
        (NotExists, false, true),
        (equals("n", 5), true, false),
        (equals("n", half), true, false),
        (equals("n", 6), false, false),
        (equals("n", "5"), false, false),
        (equals("s", "m"), true, false),
        (equals("s", "M"), false, false),
        (equals("b", vec![5]), true, false),
        (equals("yes", true), true, false),
        (equals("yes", false), false, false),
        (equals("null", Value::Null), true, false),
        (equals("absent", Value::Null), false, false),
        (equals("list", vec![Value::from(1), Value::from("x")]), true, false),
        (equals("list", vec![Value::from("x"), Value::from(1)]), false, false),
        (equals("map", Value::M([("k".into(), Value::from(1))].into())), true, false),
        (equals("map", Value::M([("k".into(), Value::from(2))].into())), false, false),
        (equals("sk", "there"), true, false),
        (differs("n", 5), false, true),
        (differs("n", 6), true, true),
        (differs("n", "5"), true, true),
        (differs("absent", 1), true, true),
        (less("n", 6), true, false),
        (less("n", 5), false, false),
        (less("n", 4), false, false),
        (less("n", "6"), false, false),
        (less("s", "n"), true, false),
        (less("s", "m"), false, false),
        (less("s", "ma"), true, false),
        (less("b", vec![6]), true, false),
        (less("b", vec![5, 0]), true, false),
        (less("b", vec![5]), false, false),
        (less("yes", 6), false, false),
        (less("absent", 6), false, false),
        (greater("n", 4), true, false),
        (greater("n", -10), true, false),
        (greater("n", 5), false, false),
        (greater("n", 10), false, false),
        (greater("s", "M"), true, false),
        (greater("s", "m"), false, false),
        (greater("s", 1), false, false),
        (greater("b", vec![4, 0xFF]), true, false),
        (greater("b", vec![0xFF]), false, false),
        (greater("absent", 0), false, false),
        (HasAttribute("n".into()), true, false),
        (HasAttribute("null".into()), true, false),
        (HasAttribute("absent".into()), false, false),
        (LacksAttribute("n".into()), false, true),
        (LacksAttribute("null".into()), false, true),
        (LacksAttribute("absent".into()), true, true),
    ];
    check_all(suite, cases).await;
}

pub async fn conditions_nest(suite: &Suite) {
    let (yes, no, any) = (|| equals("n", 5), || equals("n", 6), Condition::any);
    let cases = vec![
        (All(vec![yes(), equals("s", "m")]), true, false),
        (All(vec![yes(), no()]), false, false),
        (any(vec![no(), yes()]), true, false),
        (any(vec![no(), equals("s", "x")]), false, false),
        (any(vec![NotExists, yes()]), true, true),
        (All(vec![any(vec![no(), yes()]), any(vec![yes(), no()])]), true, false),
        (any(vec![All(vec![yes(), no()]), All(vec![no(), yes()])]), false, false),
        (any(vec![All(vec![NotExists]), All(vec![any(vec![All(vec![yes()])])])]), true, true),
        (All(vec![greater("n", 4), less("n", 6), HasAttribute("s".into()), LacksAttribute("x".into())]), true, false),
        (All(vec![Condition::None, yes()]), true, false),
        (any(vec![Condition::None, no()]), true, true),
        (All(Vec::new()), true, true),
        (any(Vec::new()), false, false),
    ];
    check_all(suite, cases).await;
}

pub async fn every_kind_of_write_obeys_its_condition(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let key = Key::with_sort(&pk, "a");
    let item = row(&pk, "a").with("n", 1);
    suite.put(table, item.clone()).await;
    let set = || vec![Change::Set("n".into(), 2.into())];
    for write in [
        Write::put(table, row(&pk, "a").with("n", 2)),
        Write::update(table, key.clone(), set()),
        Write::delete(table, key.clone()),
    ] {
        suite.conflict("the item has another number", vec![write.clone().when(equals("n", 7))]).await;
        assert_eq!(suite.get(table, &key).await, Some(item.clone()), "after {write:?}");
        suite.write(vec![write.clone().when(equals("n", 1))]).await;
        assert_ne!(suite.get(table, &key).await, Some(item.clone()), "after {write:?}");
        suite.put(table, item.clone()).await;
    }
    let other = Key::with_sort(&pk, "b");
    suite.conflict("there is no such item", vec![Write::update(table, other.clone(), set()).when(Exists)]).await;
    suite.conflict("there is no such item", vec![Write::delete(table, other.clone()).when(Exists)]).await;
    assert_eq!(suite.get(table, &other).await, None);
    suite.write(vec![Write::delete(table, other).when(NotExists)]).await;
}

pub async fn an_insert_refuses_what_is_there(suite: &Suite) {
    let table = &suite.tables.plain;
    let pk = suite.own("p");
    let first = Item::new().with("pk", &pk).with("n", 1);
    suite.write(vec![Write::insert(table, first.clone())]).await;
    let again = Write::insert(table, Item::new().with("pk", &pk).with("n", 2));
    let failed = suite.conflict("the item is there", vec![again]).await;
    assert_eq!(failed, vec![FailedCondition { write: 0, found: Some(first.clone()) }]);
    assert_eq!(suite.get(table, &Key::new(&pk)).await, Some(first));
}

pub async fn a_failed_condition_stops_the_whole_transaction(suite: &Suite) {
    let (text, plain) = (&suite.tables.text, &suite.tables.plain);
    let pk = suite.own("p");
    let old = row(&pk, "old").with("n", 1).with("group", &pk).with("rank", 1);
    suite.put(text, old.clone()).await;
    let mut writes = vec![
        Write::put(text, row(&pk, "new").with("group", &pk).with("rank", 2)),
        Write::update(text, Key::with_sort(&pk, "old"), vec![Change::Add("n".into(), 1)]),
        Write::put(plain, Item::new().with("pk", &pk)),
        Write::check(text, Key::with_sort(&pk, "none"), Exists),
    ];
    // Wherever the failing write stands.
    for _ in 0..writes.len() {
        suite.conflict("there is no such item", writes.clone()).await;
        assert_eq!(suite.all(text, Query::new(&pk)).await, vec![old.clone()]);
        let index = Query::new(&pk).index(super::suite::BY_GROUP);
        assert_eq!(suite.all(text, index).await, vec![old.clone()]);
        assert_eq!(suite.get(plain, &Key::new(&pk)).await, None);
        writes.rotate_left(1);
    }
}

pub async fn a_conflict_names_every_failed_write_and_what_it_found(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    let there = row(&pk, "there").with("n", 1);
    suite.put(table, there.clone()).await;
    let writes = vec![
        Write::put(table, row(&pk, "fine")),
        Write::insert(table, row(&pk, "there")),
        Write::delete(table, Key::with_sort(&pk, "fine too")).when(NotExists),
        Write::update(table, Key::with_sort(&pk, "none"), vec![Change::Add("n".into(), 1)]).when(Exists),
    ];
    let failed = suite.conflict("two of the writes", writes).await;
    let expected = vec![FailedCondition { write: 1, found: Some(there) }, FailedCondition { write: 3, found: None }];
    assert_eq!(failed, expected);
}

pub async fn conditions_see_the_items_before_the_transaction(suite: &Suite) {
    let table = &suite.tables.text;
    let pk = suite.own("p");
    suite.put(table, row(&pk, "a").with("n", 1)).await;
    // Were writes seen one by one, the second condition would meet what the first write did.
    let swap = vec![
        Write::put(table, row(&pk, "b").with("n", 1)).when(NotExists),
        Write::delete(table, Key::with_sort(&pk, "a")).when(equals("n", 1)),
    ];
    suite.write(swap.clone()).await;
    assert_eq!(suite.all(table, Query::new(&pk)).await, vec![row(&pk, "b").with("n", 1)]);
    assert_eq!(suite.conflict("everything has changed", swap).await.len(), 2);
}

pub async fn a_check_needs_a_condition(suite: &Suite) {
    let key = Key::with_sort(suite.own("p"), "a");
    suite.refused("a check of nothing", vec![Write::check(&suite.tables.text, key, Condition::None)]).await;
}
