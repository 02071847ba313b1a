//! What a handler has done, by its subscription and the event's id: delivered twice, done once (S003-111).

use std::sync::LazyLock;

use tidings_core::envelope::Envelope;
use tidings_core::time::Timestamp;
use tidings_store::{Error, Item, Key, KeyKind, Store, Table, Write};
use uuid::Uuid;

/// How long it is remembered; longer than anything waits in a dead-letter queue for its second chance, as a rule.
const KEPT_SECONDS: i64 = 90 * 86_400;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-handled", "handler", KeyKind::S).sort("event", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// Whether the handler has done this event.
pub async fn is_done(store: &dyn Store, handler: &str, envelope: &Envelope) -> Result<bool, Error> {
    Ok(store.get(table(), &Key::with_sort(handler, name(envelope))).await?.is_some())
}

/// The write that says so; it fails if somebody was faster.
#[must_use]
pub fn done(handler: &str, envelope: &Envelope, now: Timestamp) -> Write {
    let until = now.as_second().saturating_add(KEPT_SECONDS);
    Write::insert(table(), Item::new().with("handler", handler).with("event", name(envelope)).with("ttl", until))
}

/// An event's id belongs to its source.
fn name(envelope: &Envelope) -> String {
    let name = format!("{}\n{}", envelope.source.as_deref().unwrap_or_default(), envelope.event_id);
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string()
}
