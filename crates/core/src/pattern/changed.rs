//! `{"changed": …}`, our own operator: is a field's value the same under the old and the new image?
//!
//! The module's documentation says when it matches. Below an array there may be several values at one path: then all
//! of them are compared, in order.

use serde_json::Value;

use super::number::Num;

const SIDES: [(&str, &str); 4] =
    [("OldImage", "NewImage"), ("oldImage", "newImage"), ("old", "new"), ("before", "after")];

/// The segments of a field's path.
type Path = Box<[Box<str>]>;

/// The same field under the other image; `None` if no segment of the path names one.
pub(super) fn other_side(path: &[Box<str>]) -> Option<Path> {
    let (position, name) = path.iter().enumerate().find_map(|(i, segment)| Some((i, counterpart(segment)?)))?;
    let mut other: Path = path.into();
    *other.get_mut(position)? = name.into();
    Some(other)
}

/// The same field under the old image and under the new one.
pub(super) fn both_sides(path: &[Box<str>]) -> Option<(Path, Path)> {
    let other = other_side(path)?;
    let segment = path.iter().find(|segment| counterpart(segment).is_some())?;
    let here_is_old = SIDES.iter().any(|(old, _)| **segment == **old);
    Some(if here_is_old { (path.into(), other) } else { (other, path.into()) })
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
