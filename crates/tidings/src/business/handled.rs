//! What a handler has done, by its subscription and the event's id: delivered twice, done once (S003-111).

use std::sync::LazyLock;

use tidings_core::envelope::Envelope;
use tidings_core::time::{self, Timestamp};
use tidings_store::{Error, Item, Key, KeyKind, Store, Table, Write};
use uuid::Uuid;

use crate::rules::Outcome;

/// How long it is remembered; longer than anything waits in a dead-letter queue for its second chance, as a rule.
const KEPT_SECONDS: i64 = 90 * 86_400;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let correlation = ("correlation_id".into(), KeyKind::S);
        Table::new("tidings-handled", "handler", KeyKind::S)
            .sort("event", KeyKind::S)
            .index("correlation-index", correlation, Some(("at".into(), KeyKind::S)))
            .ttl("ttl")
    });
    &TABLE
}

/// Whether the handler has done this event.
pub async fn is_done(store: &dyn Store, handler: &str, envelope: &Envelope) -> Result<bool, Error> {
    Ok(store.get(table(), &Key::with_sort(handler, name(envelope))).await?.is_some())
}

/// The write that says so; it fails if somebody was faster.
#[must_use]
pub fn done(handler: &str, envelope: &Envelope, now: Timestamp) -> Write {
    Write::insert(table(), record(handler, envelope, now))
}

/// The same, and whom was told what, for the timeline.
#[must_use]
pub fn told(handler: &str, envelope: &Envelope, now: Timestamp, outcome: &Outcome) -> Write {
    let record = record(handler, envelope, now)
        .with("correlation_id", &envelope.correlation_id)
        .with("at", time::iso_micros(now))
        .with("event_id", &envelope.event_id)
        .with("outcome", serde_json::to_string(outcome).unwrap_or_default());
    Write::insert(table(), record)
}

fn record(handler: &str, envelope: &Envelope, now: Timestamp) -> Item {
    let until = now.as_second().saturating_add(KEPT_SECONDS);
    Item::new().with("handler", handler).with("event", name(envelope)).with("ttl", until)
}

/// What the handler told of an event, if it did.
pub async fn outcome(
    store: &dyn Store,
    handler: &str,
    source: Option<&str>,
    event_id: &str,
) -> Result<Option<Outcome>, Error> {
    let record = store.get(table(), &Key::with_sort(handler, name_of(source, event_id))).await?;
    Ok(record.as_ref().and_then(outcome_of))
}

/// What a record tells.
#[must_use]
pub fn outcome_of(record: &Item) -> Option<Outcome> {
    record.str("outcome").and_then(|text| serde_json::from_str(text).ok())
}

fn name(envelope: &Envelope) -> String {
    name_of(envelope.source.as_deref(), &envelope.event_id)
}

/// An event's id belongs to its source.
fn name_of(source: Option<&str>, event_id: &str) -> String {
    let name = format!("{}\n{event_id}", source.unwrap_or_default());
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string()
}
