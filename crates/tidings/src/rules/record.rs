//! Stored rules: one item for each, and one that counts the changes, by which other nodes learn of them.

use std::sync::LazyLock;

use tidings_core::time::{self, Timestamp};
use tidings_store::{Condition, Error, Item, Key, KeyKind, Table, Value, Write};

use super::read;
use super::rule::Rule;
use crate::secrets::vault::HOW_TO_READ;

/// All rules are in one partition, in the order of their names.
pub const RULES: &str = "rule";
const VERSION: &str = "version";
/// A node that is away longer than this reads all rules anew.
const TOMBSTONE_SECONDS: i64 = 30 * 86_400;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-rules", "kind", KeyKind::S)
            .sort("name", KeyKind::S)
            .index("revision-index", ("kind".into(), KeyKind::S), Some(("revision".into(), KeyKind::N)))
            .ttl("ttl")
    });
    &TABLE
}

/// A rule as it was found in the store.
#[derive(Debug)]
pub enum Stored {
    Rule(Box<Rule>),
    /// It was deleted not long ago.
    Gone(String),
}

#[must_use]
pub fn version_key() -> Key {
    Key::with_sort(VERSION, VERSION)
}

/// The number of changes so far.
#[must_use]
pub fn revision_of(version: Option<&Item>) -> i64 {
    version.and_then(|item| item.int("revision")).unwrap_or(0)
}

/// Counts a change, unless another one came first.
fn count(before: i64) -> Write {
    let item = Item::new().with("kind", VERSION).with("name", VERSION).with("revision", before + 1);
    let unchanged = match before {
        0 => Condition::NotExists,
        _ => Condition::Equals("revision".into(), before.into()),
    };
    Write::put(table(), item).when(unchanged)
}

/// The writes that store a rule as change number `before + 1`.
#[must_use]
pub fn put(rule: &Rule, before: i64, now: Timestamp) -> Vec<Write> {
    let item = Item::new()
        .with("kind", RULES)
        .with("name", &rule.name)
        .with("rule", rule.stored())
        .with("revision", before + 1)
        .with("updated_at", time::iso_millis(now));
    vec![count(before), Write::put(table(), item)]
}

/// The writes that delete a rule. Its name stays for a while, so that other nodes hear of it.
#[must_use]
pub fn delete(name: &str, before: i64, now: Timestamp) -> Vec<Write> {
    let item = Item::new()
        .with("kind", RULES)
        .with("name", name)
        .with("revision", before + 1)
        .with("deleted", true)
        .with("ttl", now.as_second().saturating_add(TOMBSTONE_SECONDS));
    vec![count(before), Write::put(table(), item)]
}

pub fn from_item(item: &Item) -> Result<Stored, Error> {
    let name = item.str("name").unwrap_or_default();
    if item.get("deleted").is_some() {
        return Ok(Stored::Gone(name.to_owned()));
    }
    if let Some(Value::B(_)) = item.get("rule") {
        return Err(Error::Open(format!("the rule `{name}` {HOW_TO_READ}")));
    }
    let rule = item.str("rule").and_then(|text| parse(name, text));
    let corrupt = || Error::Corrupt(format!("the stored rule `{name}` cannot be read"));
    Ok(Stored::Rule(Box::new(rule.ok_or_else(corrupt)?)))
}

/// A rule from the text that [`Rule::stored`] gave.
#[must_use]
pub fn parse(name: &str, text: &str) -> Option<Rule> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    read::stored(name, json.as_object()?).ok()
}
