//! What delivery remembers about destinations: webhook targets that asked not to be called any more, and hosts whose
//! messages are parked.

use std::sync::LazyLock;

use ring::digest::{SHA256, digest};
use tidings_core::envelope::Envelope;
use tidings_core::time::{Timestamp, iso_millis};
use tidings_store::{Change, Condition, Error, Item, Key, KeyKind, Query, Store, Table, Write};
use uuid::Uuid;

use crate::messages::record::Message;
use crate::rules::builtin::BuiltIn;

const DISABLED: &str = "disabled";
/// The event that says that a target was disabled, and where it comes from.
pub const DISABLED_EVENT: &str = "webhook.disabled";
pub const SOURCE: &str = "tidings/delivery";

/// Who hears of it: whom the monitors tell, and in the same ways.
pub const RULES: &[BuiltIn] = &[BuiltIn {
    name: "webhook-disabled",
    json: r#"{
        "pattern": {"eventType": ["webhook.disabled"], "source": ["tidings/delivery"]},
        "targets": [{"channel": "inbox", "users": ["devops-team"]}, {"channel": "ntfy"}],
        "title": "A webhook target is disabled: {{ data.destination }}",
        "text": "{{ data.summary }}\n\nNothing is sent there any more. To call it again: DELETE /channels/webhook/disabled/{{ data.targetId }}"
    }"#,
}];

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-destinations", "kind", KeyKind::S).sort("id", KeyKind::S));
    &TABLE
}

/// A target's id: its URL may hold a password, its hash does not.
#[must_use]
pub fn id_of(url: &str) -> String {
    digest(&SHA256, url.as_bytes()).as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn url_of(message: &Message) -> Option<&str> {
    message.target.get("url").and_then(serde_json::Value::as_str).filter(|_| message.channel == "webhook")
}

/// Why a message's target is not called any more, if that is so.
pub async fn disabled(store: &dyn Store, message: &Message) -> Result<Option<String>, Error> {
    let Some(url) = url_of(message) else { return Ok(None) };
    let item = store.get(table(), &Key::with_sort(DISABLED, id_of(url))).await?;
    Ok(item.map(|item| {
        let since = item.str("since").unwrap_or_default();
        let reason = item.str("reason").unwrap_or_default();
        let again = format!("DELETE /channels/webhook/disabled/{}", id_of(url));
        format!("the target is disabled since {since}: {reason}. To call it again: {again}")
    }))
}

/// The target's id, and the write that disables it, unless it is.
#[must_use]
pub fn disable(message: &Message, destination: &str, reason: &str, now: Timestamp) -> Option<(String, Write)> {
    let id = id_of(url_of(message)?);
    let item = Item::new()
        .with("kind", DISABLED)
        .with("id", &id)
        .with("destination", destination)
        .with("reason", reason)
        .with("since", iso_millis(now))
        .with("message_id", &message.message_id);
    Some((id, Write::insert(table(), item)))
}

/// What tells of it, for whoever has a rule for it; one is built in.
#[must_use]
pub fn disabled_event(message: &Message, id: &str, destination: &str, reason: &str, now: Timestamp) -> Envelope {
    let name = format!("webhook disabled\n{id}\n{}", message.message_id);
    let correlation_id = if message.correlation_id.is_empty() { &message.message_id } else { &message.correlation_id };
    let data = serde_json::json!({
        "targetId": id,
        "destination": destination,
        "reason": reason,
        "messageId": message.message_id,
        "messageType": message.message_type,
        "rule": message.rule,
        "summary": format!("{destination} asked not to be called any more: {reason}"),
    });
    Envelope {
        event_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string(),
        event_type: DISABLED_EVENT.to_owned(),
        event_version: "1.0".to_owned(),
        event_timestamp: now,
        correlation_id: correlation_id.clone(),
        source: Some(SOURCE.to_owned()),
        subject: Some(destination.to_owned()),
        data: data.to_string(),
        extensions: Vec::new(),
    }
}

/// The write that lets a target be called again.
#[must_use]
pub fn enable(id: &str) -> Write {
    Write::delete(table(), Key::with_sort(DISABLED, id)).when(Condition::Exists)
}

/// A page of the disabled targets.
pub async fn list(store: &dyn Store, limit: usize, after: Option<Item>) -> Result<(Vec<Item>, Option<Item>), Error> {
    let page = store.query(table(), &Query::new(DISABLED).limit(limit).after(after)).await?;
    Ok((page.items, page.next))
}

/// The partition of `due-index` in which a destination's parked messages wait.
#[must_use]
pub fn parked_part(channel: &str, destination: &str) -> String {
    format!("{channel}!{}", id_of(destination))
}

/// Notes that messages are parked; part of the transaction that parks them.
#[must_use]
pub fn note_parked(channel: &str, destination: &str) -> Write {
    let key = Key::with_sort(parked_kind(channel), destination);
    Write::update(table(), key, vec![Change::Add("moves".into(), 1)])
}

/// The destinations with parked messages, and how often something was parked there.
pub async fn parked(store: &dyn Store, channel: &str) -> Result<Vec<(String, i64)>, Error> {
    let mut found = Vec::new();
    let mut query = Query::new(parked_kind(channel)).limit(500);
    loop {
        let page = store.query(table(), &query).await?;
        found.extend(page.items.iter().filter_map(|item| Some((item.str("id")?.to_owned(), item.int("moves")?))));
        if page.next.is_none() {
            return Ok(found);
        }
        query = query.after(page.next);
    }
}

/// How often something was parked for a destination; `None`: nothing is.
pub async fn moves(store: &dyn Store, channel: &str, destination: &str) -> Result<Option<i64>, Error> {
    let item = store.get(table(), &Key::with_sort(parked_kind(channel), destination)).await?;
    Ok(item.and_then(|item| item.int("moves")))
}

/// Forgets a destination that has nothing parked, unless somebody parked something since `moves` was read.
#[must_use]
pub fn forget_parked(channel: &str, destination: &str, moves: i64) -> Write {
    let key = Key::with_sort(parked_kind(channel), destination);
    Write::delete(table(), key).when(Condition::Equals("moves".into(), moves.into()))
}

fn parked_kind(channel: &str) -> String {
    format!("parked#{channel}")
}
