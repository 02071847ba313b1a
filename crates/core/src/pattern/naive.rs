//! The plain evaluator: one pattern against one parsed event, field by field.
//!
//! It shares the tests on single values with the indexed matcher and nothing else: not the walk over the text, not the
//! index, not the way objects inside arrays are kept together. The tests hold the one against the other.

use serde_json::Value;

use super::changed::same;
use super::compile::Compiled;
use super::number::Num;
use super::predicate::{Changed, Field, Scalar};

pub(super) fn matches(pattern: &Compiled, event: &Value) -> bool {
    event.is_object() && pattern.any(|fields| combination_matches(pattern, fields, event))
}

fn combination_matches(pattern: &Compiled, fields: &mut dyn Iterator<Item = usize>, event: &Value) -> bool {
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut through_array = false;
    for field in fields.filter_map(|i| pattern.fields.get(i)) {
        if whole_event(field, event) {
            continue;
        }
        let mut arrays = false;
        if !any_leaf(event, &field.path, &mut arrays, &|leaf| field.accepts(leaf)) {
            return false;
        }
        through_array |= arrays;
        open.push((&field.path, field));
    }
    // Every field has a value that will do. Only where arrays were crossed may these be values of different elements.
    !through_array || open.len() < 2 || together(event, &open)
}

/// A field that is still to be found, and what is left of its path.
type Open<'a> = (&'a [Box<str>], &'a Field);

/// Whether the values for all fields can be found so that no two lie in different elements of one array.
fn together(value: &Value, open: &[Open<'_>]) -> bool {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<Option<&str>> = open.iter().map(|(path, _)| path.first().map(|key| &**key)).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.iter().all(|key| {
                let Some(inner) = key.and_then(|key| members.get(key)) else { return false };
                let below: Vec<Open<'_>> = open
                    .iter()
                    .filter_map(|(path, field)| path.split_first().map(|(first, rest)| (first, rest, *field)))
                    .filter_map(|(first, rest, field)| (Some(&**first) == *key).then_some((rest, field)))
                    .collect();
                together(inner, &below)
            })
        }
        Value::Array(items) => {
            let direct = |(path, field): &Open<'_>| {
                path.is_empty() && items.iter().filter_map(scalar).any(|leaf| field.accepts(leaf))
            };
            let left: Vec<Open<'_>> = open.iter().filter(|open| !direct(open)).copied().collect();
            left.is_empty()
                || items.iter().filter(|item| item.is_object() || item.is_array()).any(|item| together(item, &left))
        }
        leaf => {
            open.iter().all(|(path, field)| path.is_empty() && scalar(leaf).is_some_and(|leaf| field.accepts(leaf)))
        }
    }
}

/// The alternatives that look at all values of a path at once.
fn whole_event(field: &Field, event: &Value) -> bool {
    let gone = field.absent && !any_leaf(event, &field.path, &mut false, &|_| true);
    gone || field.changed.as_deref().is_some_and(|changed| changed_matches(&field.path, changed, event))
}

fn changed_matches(path: &[Box<str>], changed: &Changed, event: &Value) -> bool {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    values(event, path, &mut here);
    values(event, &changed.other, &mut there);
    if here.is_empty() && there.is_empty() {
        return false;
    }
    let equal = here.len() == there.len() && here.iter().zip(&there).all(|(a, b)| same(a, b));
    if equal { changed.same } else { changed.differs }
}

/// All values at a path, whole, in order; the steps of the path lead through arrays, its end does not.
fn values<'a>(value: &'a Value, path: &[Box<str>], found: &mut Vec<&'a Value>) {
    match (value, path.split_first()) {
        (_, None) => found.push(value),
        (Value::Object(members), Some((key, rest))) => {
            if let Some(inner) = members.get(&**key) {
                values(inner, rest, found);
            }
        }
        (Value::Array(items), Some(_)) => items.iter().for_each(|item| values(item, path, found)),
        _ => {}
    }
}

/// Whether any leaf at a path satisfies `test`; notes whether an array was crossed on the way to one.
fn any_leaf(value: &Value, path: &[Box<str>], arrays: &mut bool, test: &dyn Fn(Scalar<'_>) -> bool) -> bool {
    match (value, path.split_first()) {
        (Value::Object(members), Some((key, rest))) => {
            members.get(&**key).is_some_and(|inner| any_leaf(inner, rest, arrays, test))
        }
        (Value::Array(items), _) => {
            *arrays = true;
            items.iter().any(|item| any_leaf(item, path, arrays, test))
        }
        (leaf, None) => scalar(leaf).is_some_and(test),
        _ => false,
    }
}

fn scalar(value: &Value) -> Option<Scalar<'_>> {
    match value {
        Value::Null => Some(Scalar::Null),
        Value::Bool(value) => Some(Scalar::Bool(*value)),
        Value::Number(number) => Num::from_json(number).map(Scalar::Number),
        Value::String(text) => Some(Scalar::Text(text)),
        Value::Array(_) | Value::Object(_) => None,
    }
}
