//! Dead letters: what was given up, with the reason, every attempt and the message itself, where somebody will look; and
//! what can be done about them: send again, as it was or changed, or throw away (SX-08).
//!
//! A letter that is sent again goes: a new message takes its place in the same transaction, and the failed one stays
//! failed. `edit` says what may be changed on the way, `job` does it to many.

pub mod edit;
pub mod job;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tidings_core::message::Attempt;
use tidings_core::time::{Timestamp, iso_millis};
use tidings_store::query::cursor_of;
use tidings_store::{Condition, Error, Item, Key, KeyKind, Query, Range, Store, Table, Value, Write, limits};

use super::record::Message;
use crate::app::Services;

/// The index partition of all letters, in the order of time.
pub const SOURCE: &str = "message";
/// Letters looked at for one page at the most, so that a filter that fits little still answers soon.
const LOOKED_AT: usize = 10_000;
/// How often a node looks for work that another one left behind.
const JOBS_EVERY: Duration = Duration::from_secs(2);
/// Bytes of a letter beside the message in it.
const BESIDE_BYTES: usize = 6 * 1024;
/// Attempts in a letter that has no room for its message.
const LAST_ATTEMPTS: usize = 20;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-dead-letters", "id", KeyKind::S)
            .index("source-index", ("source".into(), KeyKind::S), Some(("time".into(), KeyKind::S)))
            .index("correlation-index", ("correlation_id".into(), KeyKind::S), Some(("time".into(), KeyKind::S)))
            .ttl("ttl")
    });
    &TABLE
}

/// A message that was given up.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The message's.
    pub id: String,
    pub time: String,
    pub reason: String,
    pub channel: String,
    pub message_type: String,
    pub stage: String,
    pub correlation_id: String,
    /// Every attempt, the last one last.
    pub attempts: Vec<Attempt>,
    pub ttl: i64,
    /// As it was given up. Absent if it had no room beside it; then it is where messages are.
    pub message: Option<Message>,
    /// Of a message of the bus, which is where the bus keeps it.
    pub bus: Option<OnBus>,
}

/// A letter of the bus: whose dead letter it is, and which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnBus {
    /// The queue or subscription.
    pub path: String,
    /// Of the line of dead letters: another one after a purge.
    pub generation: String,
    pub number: u64,
}

impl OnBus {
    /// What an item says that knows of one.
    #[must_use]
    pub fn from_item(item: &Item) -> Option<Self> {
        let number = item.int("number").and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
        let (path, generation) = item.str("path").zip(item.str("generation"))?;
        Some(Self { path: path.to_owned(), generation: generation.to_owned(), number })
    }
}

/// Which letters somebody wants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    pub channel: Option<String>,
    pub message_type: Option<String>,
    /// Of the bus alone: a queue's or subscription's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

/// Starts the worker that carries on what is to be done to many.
pub fn start(services: &Services) {
    let worker = services.clone();
    let wake = Arc::clone(&services.messages.new_letter_job);
    services.workers.spawn_woken("dead-letters", JOBS_EVERY, wake, move || {
        let services = worker.clone();
        async move { work(&services).await.map_err(|error| error.to_string()) }
    });
}

/// Does what is to be done to many.
pub async fn work(services: &Services) -> Result<(), Error> {
    let clerk = job::Clerk {
        store: Arc::clone(&services.store),
        messages: Arc::clone(&services.messages),
        bus: Arc::clone(&services.bus),
        stop: services.workers.stopping(),
    };
    clerk.activate(&services.audit, &*services.clock).await
}

/// The write that keeps a message that was given up, for as long as messages are kept from now on. Whether it has room is
/// for the caller to see.
///
/// # Errors
///
/// If the message cannot be written.
pub fn letter(message: &Message, reason: &str, now: Timestamp) -> Result<Write, Error> {
    let whole = Value::M(message.to_item()?.0);
    Ok(Write::put(table(), beside(message, reason, now).with("message", whole)))
}

/// The same for one that is where messages are: if it has no room in the letter, or is nested too deep for it, the letter
/// has its last attempts instead.
///
/// # Errors
///
/// If the message cannot be written.
pub fn fitting_letter(message: &Message, reason: &str, now: Timestamp) -> Result<Write, Error> {
    let whole = message.to_item()?;
    let is_deep = whole.0.iter().any(|(_, value)| value.depth() + 1 >= limits::NESTING);
    let item = beside(message, reason, now);
    if !is_deep && whole.size() + BESIDE_BYTES <= limits::ITEM_BYTES {
        return Ok(Write::put(table(), item.with("message", Value::M(whole.0))));
    }
    let attempts = &message.delivery.attempts;
    let last = attempts.get(attempts.len().saturating_sub(LAST_ATTEMPTS)..).unwrap_or_default();
    Ok(Write::put(table(), item.with("attempts", Value::from_record(&last)?)))
}

fn beside(message: &Message, reason: &str, now: Timestamp) -> Item {
    let kept = message.ttl.saturating_sub(message.deliver_at.as_second());
    Item::new()
        .with("id", &message.message_id)
        .with("source", SOURCE)
        .with("time", iso_millis(now))
        .with("reason", reason)
        .with("channel", &message.channel)
        .with("message_type", &message.message_type)
        .with("stage", &message.stage)
        .with_some("correlation_id", found_by(&message.correlation_id))
        .with("ttl", now.as_second().saturating_add(kept).max(message.ttl))
}

/// A correlation id as a letter has it: part of a key, so that a letter without one that can be is found by all else.
#[must_use]
pub fn found_by(correlation_id: &str) -> Option<&str> {
    Some(correlation_id).filter(|id| (1..=limits::PARTITION_KEY_BYTES).contains(&id.len()))
}

/// The write that takes a letter away, if it is still there.
#[must_use]
pub fn discard(id: &str) -> Write {
    Write::delete(table(), Key::new(id)).when(Condition::Exists)
}

/// One page, newest first. A page that looked at much and found little may be short, and still have a cursor.
pub async fn page(
    store: &dyn Store,
    filter: &Filter,
    limit: usize,
    mut after: Option<Item>,
) -> Result<(Vec<DeadLetter>, Option<Item>), Error> {
    let (partition, index) = match &filter.correlation_id {
        Some(id) => (id.as_str(), "correlation-index"),
        None => (SOURCE, "source-index"),
    };
    let by = table().index_named(index)?;
    let (mut found, mut looked_at) = (Vec::new(), 0);
    loop {
        let query = Query::new(partition).index(index).range(filter.range()).descending().limit(limit).after(after);
        let page = store.query(table(), &query).await?;
        looked_at += page.items.len();
        for item in &page.items {
            let letter = DeadLetter::from_item(item)?;
            if !filter.fits(&letter) {
                continue;
            }
            found.push(letter);
            if found.len() >= limit {
                return Ok((found, Some(cursor_of(table(), Some(by), item))));
            }
        }
        after = page.next;
        if after.is_none() || looked_at >= LOOKED_AT {
            return Ok((found, after));
        }
    }
}

/// The oldest ones that are not younger than `until`, from a place on.
pub async fn oldest(
    store: &dyn Store,
    until: &str,
    limit: usize,
    after: Option<Item>,
) -> Result<(Vec<DeadLetter>, Option<Item>), Error> {
    let range = Range::AtMost(until.into());
    let query = Query::new(SOURCE).index("source-index").range(range).limit(limit).after(after);
    let page = store.query(table(), &query).await?;
    Ok((page.items.iter().map(DeadLetter::from_item).collect::<Result<_, _>>()?, page.next))
}

pub async fn get(store: &dyn Store, id: &str) -> Result<Option<DeadLetter>, Error> {
    if id.is_empty() || id.len() > 64 {
        return Ok(None);
    }
    store.get(table(), &Key::new(id)).await?.map(|item| DeadLetter::from_item(&item)).transpose()
}

impl DeadLetter {
    fn from_item(item: &Item) -> Result<Self, Error> {
        let text = |name: &str| item.str(name).unwrap_or_default().to_owned();
        let message = match item.get("message") {
            Some(Value::M(attributes)) => Some(Message::from_item(&Item(attributes.clone()))?),
            _ => None,
        };
        let attempts = match (&message, item.get("attempts")) {
            (Some(message), _) => message.delivery.attempts.clone(),
            (None, Some(attempts)) => attempts.to_record()?,
            (None, None) => Vec::new(),
        };
        Ok(Self {
            id: text("id"),
            time: text("time"),
            reason: text("reason"),
            channel: text("channel"),
            message_type: text("message_type"),
            stage: text("stage"),
            correlation_id: text("correlation_id"),
            attempts,
            ttl: item.int("ttl").unwrap_or_default(),
            bus: OnBus::from_item(item),
            message,
        })
    }

    /// What the letter is about, as a pattern sees it.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let message = self.message.as_ref();
        let shown = |map: Option<&Map<String, Json>>| map.cloned().unwrap_or_default();
        serde_json::json!({
            "id": self.id, "source": SOURCE, "time": self.time, "reason": self.reason, "channel": self.channel,
            "message_type": self.message_type, "stage": self.stage, "correlation_id": self.correlation_id,
            "rule": message.and_then(|message| message.rule.as_deref()),
            "created_by": message.map(|message| message.created_by.as_str()),
            "payload": shown(message.map(|message| &message.payload)),
            "target": shown(message.map(|message| &message.target)),
            "attempts": self.attempts.last().map_or(0, |last| last.number),
            "code": self.attempts.last().and_then(|attempt| attempt.code),
        })
    }
}

impl DeadLetter {
    /// The same of a letter of the bus, with what its message holds.
    #[must_use]
    pub fn on_bus_json(&self, mut message: Json) -> Json {
        if let (Json::Object(seen), Json::Object(own)) = (&mut message, self.to_json()) {
            let path = self.bus.as_ref().map(|at| at.path.as_str());
            seen.extend(own.into_iter().filter(|(name, _)| !["payload", "target"].contains(&name.as_str())));
            seen.insert("path".to_owned(), path.into());
            seen.insert("source".to_owned(), crate::bus::letters::CHANNEL.into());
        }
        message
    }
}

impl Filter {
    /// Whether a letter is one of these, wherever it was found.
    fn covers(&self, letter: &DeadLetter) -> bool {
        let is_after = |from: Timestamp| *letter.time >= *iso_millis(from);
        let is_before = |to: Timestamp| *letter.time <= *iso_millis(to);
        self.fits(letter)
            && self.correlation_id.as_deref().is_none_or(|id| id == letter.correlation_id)
            && self.from.is_none_or(is_after)
            && self.to.is_none_or(is_before)
    }

    fn range(&self) -> Range {
        let text = |at: Option<Timestamp>| at.map(|at| iso_millis(at).into());
        match (text(self.from), text(self.to)) {
            (Some(low), Some(high)) => Range::Between(low, high),
            (Some(low), None) => Range::AtLeast(low),
            (None, Some(high)) => Range::AtMost(high),
            (None, None) => Range::All,
        }
    }

    fn fits(&self, letter: &DeadLetter) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        let path = letter.bus.as_ref().map_or("", |at| at.path.as_str());
        same(&self.channel, &letter.channel) && same(&self.message_type, &letter.message_type) && same(&self.path, path)
    }
}
