//! Dead letters: what was given up, with the reason and every attempt, where somebody will look (SX-08).

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidings_core::time::{Timestamp, iso_millis};
use tidings_store::{Error, Item, Key, KeyKind, Query, Store, Table, Write};

use super::record::Message;

/// The index partition of messages; queues will have theirs.
const SOURCE: &str = "message";

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-dead-letters", "id", KeyKind::S)
            .index("source-index", ("source".into(), KeyKind::S), Some(("time".into(), KeyKind::S)))
            .ttl("ttl")
    });
    &TABLE
}

/// A message that was given up.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetter {
    /// The message's.
    pub id: String,
    /// `message`.
    pub source: String,
    pub time: String,
    pub reason: String,
    pub channel: String,
    pub message_type: String,
    pub stage: String,
    pub correlation_id: String,
    /// Every attempt, the last one last.
    pub attempts: Vec<serde_json::Value>,
    pub ttl: i64,
}

/// The write that keeps a message that was given up.
///
/// # Errors
///
/// If an attempt cannot be written.
pub fn letter(message: &Message, reason: &str, now: Timestamp) -> Result<Write, Error> {
    let attempts = message.delivery.attempts.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
    let letter = DeadLetter {
        id: message.message_id.clone(),
        source: SOURCE.to_owned(),
        time: iso_millis(now),
        reason: reason.to_owned(),
        channel: message.channel.clone(),
        message_type: message.message_type.clone(),
        stage: message.stage.clone(),
        correlation_id: message.correlation_id.clone(),
        attempts: attempts.map_err(|error| Error::Invalid(error.to_string()))?,
        ttl: message.ttl,
    };
    Ok(Write::put(table(), Item::from_record(&letter)?))
}

/// One page, newest first.
pub async fn page(
    store: &dyn Store,
    limit: usize,
    after: Option<Item>,
) -> Result<(Vec<DeadLetter>, Option<Item>), Error> {
    let query = Query::new(SOURCE).index("source-index").descending().limit(limit).after(after);
    let page = store.query(table(), &query).await?;
    let letters = page.items.iter().map(Item::to_record).collect::<Result<_, _>>()?;
    Ok((letters, page.next))
}

pub async fn get(store: &dyn Store, id: &str) -> Result<Option<DeadLetter>, Error> {
    if id.is_empty() || id.len() > 64 {
        return Ok(None);
    }
    store.get(table(), &Key::new(id)).await?.map(|item| item.to_record()).transpose()
}
