//! Windows in which a rule does not say the same again: a marker that expires.

use std::sync::LazyLock;

use tidings_core::time::Timestamp;
use tidings_store::{Item, KeyKind, Table, Write};
use uuid::Uuid;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new("tidings-rule-windows", "id", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// The write that opens a window; it fails while one is open.
#[must_use]
pub fn marker(rule: &str, key: &str, seconds: u64, now: Timestamp) -> Write {
    let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{rule}\n{key}").as_bytes());
    let expires_at = now.as_second().saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX));
    let item = Item::new().with("id", id.to_string()).with("rule", rule).with("ttl", expires_at);
    Write::insert(table(), item)
}
