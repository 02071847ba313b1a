//! Filters of the bus, case by case, as seen from outside. Together these prove S003-74 (properties) and S003-76.

mod actions;
mod agree;
mod correlation;
mod keys;
mod like;
mod refused;
mod sql;

use tidings_core::filter::{Filter, Properties, SqlFilter, System, Value};

/// What an SQL filter says of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
    /// It cannot be decided.
    Fails,
}

/// A message from JSON: members that begin with `sys.` are the broker's.
#[track_caller]
pub fn message(json: &str) -> Properties {
    let members: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).unwrap();
    let mut message = Properties::default();
    for (name, value) in &members {
        let value = Value::from_json(value).unwrap().into_owned();
        match name.strip_prefix("sys.") {
            Some(name) => drop(message.system.insert(System::named(name).unwrap(), value)),
            None => drop(message.user.insert(name.clone(), value)),
        }
    }
    message
}

/// An SQL text, a message, and the answer.
#[track_caller]
pub fn check(sql: &str, json: &str, expected: Answer) {
    let filter = SqlFilter::parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let message = message(json);
    let answer = match filter.evaluate(&message) {
        Ok(true) => Answer::Yes,
        Ok(false) => Answer::No,
        Err(_) => Answer::Fails,
    };
    assert_eq!(answer, expected, "{sql} on {json}: {:?}", filter.evaluate(&message));
    assert_eq!(Filter::Sql(filter.clone()).matches(&message), expected == Answer::Yes, "{sql} on {json}");
    assert_eq!(filter.text(), sql);
}

#[track_caller]
pub fn check_all(rows: &[(&str, &str, Answer)]) {
    rows.iter().for_each(|(sql, json, expected)| check(sql, json, *expected));
}
