//! Patterns, case by case. Every case is asked three ways, and all must agree: the pattern alone, the plain evaluator
//! on a parsed event, and a rule set in which the rule stands among others.
//!
//! Together these prove S001-14, S001-16, S003-74 and SX-11 as far as the pattern language goes.

mod agree;
mod anything_but;
mod arrays;
mod changed;
mod events;
mod exact;
mod exists;
mod limits;
mod nets;
mod numeric;
mod or;
mod refused;
mod rule_set;
mod text;
mod wildcard;

use tidings_core::pattern::{Pattern, RuleSet, Scratch};

pub const YES: bool = true;
pub const NO: bool = false;

/// A pattern, an event, and whether they match.
#[track_caller]
pub fn check(pattern: &str, event: &str, expected: bool) {
    let compiled = Pattern::parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    assert_eq!(compiled.matches(event), Ok(expected), "alone: {pattern} on {event}");
    let tree = serde_json::from_str(event).unwrap_or_else(|error| panic!("{event}: {error}"));
    assert_eq!(compiled.naive_matches(&tree), expected, "naive: {pattern} on {event}");
    assert_eq!(in_a_set(&compiled, event), expected, "in a set: {pattern} on {event}");
}

/// One row for each event: the pattern, the event, the answer.
#[track_caller]
pub fn check_all(rows: &[(&str, &str, bool)]) {
    rows.iter().for_each(|(pattern, event, expected)| check(pattern, event, *expected));
}

/// Rows for a single field `a`: the list in the pattern, the value in the event, the answer.
#[track_caller]
pub fn check_field(rows: &[(&str, &str, bool)]) {
    for (list, value, expected) in rows {
        check(&format!(r#"{{"a":{list}}}"#), &format!(r#"{{"a":{value}}}"#), *expected);
    }
}

/// The rule among neighbours that share its fields, and again after it was taken out and put back.
fn in_a_set(pattern: &Pattern, event: &str) -> bool {
    let mut rules = RuleSet::new();
    let mut scratch = Scratch::new();
    for (id, text) in NEIGHBOURS.iter().enumerate() {
        rules.insert(id + 1, &Pattern::parse(text).unwrap());
    }
    rules.insert(0, pattern);
    let first = rules.matches(event, &mut scratch).unwrap().contains(&&0);
    assert!(rules.remove(&0));
    assert!(!rules.matches(event, &mut scratch).unwrap().contains(&&0), "matched after it was removed");
    rules.insert(0, pattern);
    assert_eq!(rules.matches(event, &mut scratch).unwrap().contains(&&0), first, "matched differently the second time");
    first
}

const NEIGHBOURS: [&str; 7] = [
    r#"{"a":["x"]}"#,
    r#"{"a":[{"prefix":"a"},{"exists":false}]}"#,
    r#"{"a":{"b":[{"anything-but":"c"}]}}"#,
    r#"{"a":[{"numeric":[">",0,"<",10]}],"b":["y"]}"#,
    r#"{"old":{"x":[{"changed":true}]}}"#,
    r#"{"$or":[{"a":[1]},{"b":[{"wildcard":"*x*"}]}]}"#,
    r#"{"a":[{"equals-ignore-case":"ABC"}],"c":[{"exists":true}]}"#,
];

/// A pattern that is refused: where, and a part of why.
#[track_caller]
pub fn refuse(pattern: &str, path: &str, reason: &str) {
    let error = Pattern::parse(pattern).err().unwrap_or_else(|| panic!("accepted: {pattern}"));
    assert_eq!(error.path, path, "{pattern}: {error}");
    assert!(error.message.contains(reason), "{pattern}: {error}");
    assert_eq!(error.to_string(), format!("{}: {}", error.path, error.message));
}
