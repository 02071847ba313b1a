//! What became of the messages of the bus (S003-84): one small row for each, found by correlation id and by message id.
//!
//! A row is written in the transaction that ends its message, so it costs no commit of its own; a message that is
//! scheduled or deferred has one from then on. Whoever waits or is locked has none yet: that is known in memory. A message
//! without a correlation id is found by its own, for which it needs no entry in the index: its row has no `id`.

use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidings_core::time::{self, Timestamp};
use tidings_store::{Condition, Error, Item, Key, KeyKind, Query, Table, Write};

use super::layout::Place;
use super::line::Line;
use super::message::Stored;
use super::state::Held;

/// The table, by correlation id in the order of time.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-bus-history", "correlation_id", KeyKind::S)
            .sort("at", KeyKind::S)
            .index("message-index", ("id".into(), KeyKind::S), Some(("at".into(), KeyKind::S)))
            .ttl("ttl")
            // Most correlation ids are made when a message is sent, from the time.
            .ordered()
    });
    &TABLE
}

/// Bytes of an id that a key can hold.
const ID_BYTES: usize = 1024;
const SUBJECT_CHARS: usize = 128;
/// Attributes of a row at most.
const ROW_ATTRIBUTES: usize = 9;

/// How a message ended, or what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Scheduled,
    Deferred,
    Completed,
    DeadLettered,
    /// Its time was over, and nobody wanted it among the dead letters.
    Expired,
    /// It was scheduled, and will not come.
    Cancelled,
    /// Sent back from the dead letters: a new message.
    Resubmitted,
    /// Taken out of the dead letters for good.
    Removed,
}

impl End {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Deferred => "deferred",
            Self::Completed => "completed",
            Self::DeadLettered => "dead-lettered",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Resubmitted => "resubmitted",
            Self::Removed => "removed",
        }
    }
}

/// What is known of a message.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fate {
    pub message_id: String,
    /// The queue or subscription.
    pub path: String,
    /// The number it was first given there.
    pub sequence_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// `waiting`, `locked`, `scheduled`, `deferred`, `completed`, `dead-lettered`, `expired`, `cancelled`, `resubmitted`
    /// (from the dead letters) or `removed` (from them, for good).
    pub state: String,
    pub deliveries: u32,
    pub sent_at: String,
    /// When it came to its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why it was dead-lettered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where a message's row is: when it was sent, to where, and which one it was there.
#[must_use]
pub fn place(path: &str, message: &Stored) -> String {
    let path = message.dead.as_ref().map_or(path, |dead| dead.source.as_str());
    let number = message.enqueued_sequence.unwrap_or(message.sequence);
    let sent = message.accepted_at.unwrap_or(message.enqueued_at);
    let mut place = String::with_capacity(time::ISO_MICROS + path.len() + NUMBER_CHARS);
    time::push_iso_micros(&mut place, sent);
    place.push('#');
    place.push_str(path);
    place.push('#');
    place.push_str(&number.to_string());
    place
}

/// Characters of a number, and of what is around it.
const NUMBER_CHARS: usize = 22;

/// Under which a message is found: it may have come without a correlation id.
pub(super) fn correlation(message: &Stored) -> &str {
    message.message.correlation_id.as_deref().filter(|id| !id.is_empty()).unwrap_or(&message.message.id)
}

impl Line {
    /// The row of a message that was completed.
    pub(super) fn completed_row(&self, held: &Held) -> Option<Write> {
        let end = if self.is_of_dead_letters() { End::Removed } else { End::Completed };
        // Only one that waited for something has a row already.
        let fresh = end == End::Completed
            && held.message.accepted_at.is_none()
            && matches!(held.place, Place::Lane(..))
            && held.message.attempts.is_empty();
        let row = self.row(&held.message, end, held.deliveries);
        if fresh { row.map(|write| write.when(Condition::Fresh)) } else { row }
    }

    /// The row of a message that came to this; none if the entity keeps none.
    pub(super) fn row(&self, message: &Stored, end: End, deliveries: u32) -> Option<Write> {
        let (key, id) = (correlation(message), &message.message.id);
        let good = |id: &str| !id.is_empty() && id.len() <= ID_BYTES;
        if !self.settings().history || !good(key) || !good(id) {
            return None;
        }
        let now = self.shared.clock.now();
        // Of one that is scheduled for long after, from then on.
        let kept_from = now.max(message.enqueued_at).as_second();
        let deliveries = message.dead.as_ref().map_or(deliveries, |dead| dead.deliveries);
        let subject =
            message.message.subject.as_deref().map(|text| text.chars().take(SUBJECT_CHARS).collect::<String>());
        // In the order of the names, in which an item keeps them.
        let item = Item::with_room(ROW_ATTRIBUTES)
            .with("at", place(&self.path, message))
            .with("correlation_id", key)
            .with_some("id", (id != key).then_some(id))
            .with("n", deliveries)
            .with_some("reason", message.dead.as_ref().map(|dead| &dead.reason))
            .with("since", now.as_microsecond())
            .with("state", end.as_str())
            .with_some("subject", subject)
            .with("ttl", kept_from.saturating_add(self.shared.history_seconds()));
        Some(Write::put(table(), item))
    }
}

impl Fate {
    pub fn from_item(item: &Item) -> Result<Self, Error> {
        let corrupt = || Error::Corrupt("a row of the bus's history cannot be read".to_owned());
        let mut parts = item.str("at").ok_or_else(corrupt)?.split('#');
        let (Some(sent_at), Some(path), Some(number)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(corrupt());
        };
        let text = |name: &str| item.str(name).map(ToOwned::to_owned);
        let since = item.int("since").and_then(|micros| Timestamp::from_microsecond(micros).ok());
        Ok(Self {
            message_id: text("id").or_else(|| text("correlation_id")).ok_or_else(corrupt)?,
            path: path.to_owned(),
            sequence_number: number.parse().map_err(|_| corrupt())?,
            subject: text("subject"),
            state: text("state").ok_or_else(corrupt)?,
            deliveries: item.int("n").and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            sent_at: sent_at.to_owned(),
            since: since.map(time::iso_micros),
            reason: text("reason"),
        })
    }

    /// Where the row of one that waits or is locked would be.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}#{}#{}", self.sent_at, self.path, self.sequence_number)
    }

    fn of_live(path: &str, message: &Stored, deliveries: u32, locked: bool) -> Self {
        Self {
            message_id: message.message.id.clone(),
            path: path.to_owned(),
            sequence_number: message.enqueued_sequence.unwrap_or(message.sequence),
            subject: message.message.subject.clone(),
            state: if locked { "locked" } else { "waiting" }.to_owned(),
            deliveries,
            sent_at: time::iso_micros(message.accepted_at.unwrap_or(message.enqueued_at)),
            since: None,
            reason: None,
        }
    }
}

impl super::Bus {
    /// Messages of a correlation id that wait or are locked: those in the memory of this process, which are the next ones
    /// of every queue that it has.
    #[must_use]
    pub fn live(&self, wanted: &str) -> Vec<Fate> {
        let mut found = Vec::new();
        for line in self.lines().iter().filter(|line| !line.is_of_dead_letters()) {
            let mut add = |message: &Arc<Stored>, deliveries: u32, locked: bool| {
                if correlation(message) == wanted {
                    found.push(Fate::of_live(&line.path, message, deliveries, locked));
                }
            };
            let state = line.state();
            for (_, message) in state.front.ready().chain(state.main.ready()) {
                add(message, message.deliveries, false);
            }
            state.all_held().for_each(|held| add(&held.message, held.deliveries, true));
        }
        found.sort_by_cached_key(Fate::place);
        found
    }

    /// What became of the messages of an id in a queue or subscription, the latest first.
    pub async fn fates(&self, path: &str, message_id: &str, limit: usize) -> Result<Vec<Fate>, Error> {
        let mut fates = Vec::new();
        for query in rows_of(message_id) {
            let mut query = query.limit(100);
            let mut found = 0;
            while found < limit {
                let page = self.shared.store.query(table(), &query).await?;
                for item in &page.items {
                    let fate = Fate::from_item(item)?;
                    if fate.path == path && fate.message_id == message_id {
                        fates.push(fate);
                        found += 1;
                    }
                }
                if page.next.is_none() {
                    break;
                }
                query = query.after(page.next);
            }
        }
        let place = |fate: &Fate| (fate.sent_at.clone(), fate.sequence_number);
        fates.sort_by_key(|fate| std::cmp::Reverse(place(fate)));
        fates.truncate(limit);
        Ok(fates)
    }

    /// The correlation id of the latest message of this id that ended.
    pub async fn correlation_of(&self, message_id: &str) -> Result<Option<String>, Error> {
        if message_id.is_empty() || message_id.len() > ID_BYTES {
            return Ok(None);
        }
        let [indexed, own] = rows_of(message_id);
        let page = self.shared.store.query(table(), &indexed.limit(1)).await?;
        if let Some(row) = page.items.first() {
            return Ok(row.str("correlation_id").map(ToOwned::to_owned));
        }
        let page = self.shared.store.query(table(), &own.limit(100)).await?;
        Ok(page.items.iter().any(|row| row.str("id").is_none()).then(|| message_id.to_owned()))
    }

    /// Whether a message has a row.
    pub async fn has_row(&self, correlation_id: &str, place: &str) -> Result<bool, Error> {
        Ok(self.shared.store.get(table(), &Key::with_sort(correlation_id, place)).await?.is_some())
    }
}

/// Where the rows of messages of an id are, the latest first: in the index, or under the id itself, where other messages
/// that follow from it may be, too.
fn rows_of(message_id: &str) -> [Query; 2] {
    [Query::new(message_id).index("message-index"), Query::new(message_id)].map(Query::descending)
}
