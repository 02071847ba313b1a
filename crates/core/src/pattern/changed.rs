//! `{"changed": …}`, our own operator: is a field's value the same under the old and the new image?
//!
//! The module's documentation says when it matches. Below an array there may be several values at one path: then all
//! of them are compared, in order.

use serde_json::Value;

use super::number::Num;

const SIDES: [(&str, &str); 4] =
    [("OldImage", "NewImage"), ("oldImage", "newImage"), ("old", "new"), ("before", "after")];

/// The same field under the other image; `None` if no segment of the path names one.
pub(super) fn other_side(path: &[Box<str>]) -> Option<Box<[Box<str>]>> {
    let (position, name) = path.iter().enumerate().find_map(|(i, segment)| Some((i, counterpart(segment)?)))?;
    let mut other: Box<[Box<str>]> = path.into();
    *other.get_mut(position)? = name.into();
    Some(other)
}

fn counterpart(segment: &str) -> Option<&'static str> {
    SIDES.iter().find_map(|&(old, new)| match segment {
        _ if segment == old => Some(new),
        _ if segment == new => Some(old),
        _ => None,
    })
}

/// Equality by value: `serde_json` alone tells 300 from 300.0.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Num::from_json(a) == Num::from_json(b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}
