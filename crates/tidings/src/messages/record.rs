//! A message as it is stored: the seed's attributes, and what Tidings adds to find its way (S002-01 to S002-29).
//!
//! `rules::react` writes messages in the transaction of the event that causes them; delivery takes them from there.

use serde_json::{Map, Value as Json};
use tidings_core::time::{self, Timestamp};
use tidings_store::{Error, Item, Key, KeyKind, Table, Value};
use uuid::Uuid;

use crate::config::Secret;

/// The type of a message that a rule makes.
pub const ALERT_NOTIFICATION: &str = "alert_notification";

/// Parts of `due-index`: spreads what waits over as many partitions, so that none is hot on DynamoDB.
pub const DUE_PARTS: u8 = 8;

/// Messages by id; those that wait for an attempt are also in `due-index`, by the time of it.
#[must_use]
pub fn table(stage: &str) -> Table {
    let created = || Some(("created_date".into(), KeyKind::S));
    Table::new(format!("rez-agent-messages-{stage}"), "message_id", KeyKind::S)
        .index("stage-created_date-index", ("stage".into(), KeyKind::S), created())
        .index("status-created_date-index", ("status".into(), KeyKind::S), created())
        .index("message_type-created_date-index", ("message_type".into(), KeyKind::S), created())
        .index("correlation-index", ("correlation_id".into(), KeyKind::S), created())
        .index("due-index", ("due".into(), KeyKind::S), Some(("next_attempt_at".into(), KeyKind::S)))
        .ttl("ttl")
}

#[must_use]
pub fn key(message_id: &str) -> Key {
    Key::new(message_id)
}

/// How far a message has come; forward only (S002-43 to S002-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    Created,
    Queued,
    Processing,
    Completed,
    Failed,
}

impl Status {
    pub const ALL: [Self; 5] = [Self::Created, Self::Queued, Self::Processing, Self::Completed, Self::Failed];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether nothing more happens to the message.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// One message to one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub message_id: String,
    /// Milliseconds count, no more: text order is time order.
    pub created_date: Timestamp,
    /// `rule:<name>`, `scheduler` or `user:<email>`.
    pub created_by: String,
    pub stage: String,
    pub message_type: String,
    pub status: Status,
    pub payload: Map<String, Json>,
    pub updated_date: Timestamp,
    pub processing_started_at: Option<Timestamp>,
    pub processing_completed_at: Option<Timestamp>,
    pub error_message: Option<String>,
    pub retry_count: u32,
    /// What the receiving service calls it.
    pub notification_id: Option<String>,
    pub correlation_id: String,
    /// Second since 1970 at which it ceases to exist.
    pub ttl: i64,
    /// `email`, `ntfy`, `webhook`, `queue` or `ticket`.
    pub channel: String,
    /// Where it goes, in the channel's own terms; never a secret.
    pub target: Map<String, Json>,
    /// Signs a webhook. Kept apart from `target`, which is shown.
    pub secret: Option<Secret>,
    pub event_id: Option<String>,
    pub rule: Option<String>,
    /// When it is due; `None` once it is final, and then it is in no `due-index`.
    pub next_attempt_at: Option<Timestamp>,
    pub retry_of: Option<String>,
}

/// What must be said of a message to make it; the rest follows.
#[derive(Debug, Clone)]
pub struct NewMessage<'a> {
    pub message_id: Uuid,
    pub created_by: String,
    pub stage: &'a str,
    pub message_type: &'a str,
    pub payload: Map<String, Json>,
    pub correlation_id: &'a str,
    pub channel: &'a str,
    pub target: Map<String, Json>,
    pub secret: Option<Secret>,
    pub event_id: Option<&'a str>,
    pub rule: Option<&'a str>,
    pub deliver_at: Option<Timestamp>,
    pub keep_seconds: i64,
}

impl Message {
    #[must_use]
    pub fn new(new: NewMessage<'_>, now: Timestamp) -> Self {
        Self {
            message_id: new.message_id.to_string(),
            created_date: now,
            created_by: new.created_by,
            stage: new.stage.to_owned(),
            message_type: new.message_type.to_owned(),
            status: Status::Created,
            payload: new.payload,
            updated_date: now,
            processing_started_at: None,
            processing_completed_at: None,
            error_message: None,
            retry_count: 0,
            notification_id: None,
            correlation_id: new.correlation_id.to_owned(),
            ttl: now.as_second().saturating_add(new.keep_seconds),
            channel: new.channel.to_owned(),
            target: new.target,
            secret: new.secret,
            event_id: new.event_id.map(ToOwned::to_owned),
            rule: new.rule.map(ToOwned::to_owned),
            next_attempt_at: Some(new.deliver_at.unwrap_or(now)),
            retry_of: None,
        }
    }

    /// The partition of `due-index` in which the message waits.
    #[must_use]
    pub fn due_part(&self) -> String {
        due_part(self.message_id.bytes().fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte)) % DUE_PARTS)
    }

    pub fn to_item(&self) -> Result<Item, Error> {
        let at = |at: Option<Timestamp>| at.map(time::iso_millis);
        Ok(Item::new()
            .with("message_id", &self.message_id)
            .with("created_date", time::iso_millis(self.created_date))
            .with("created_by", &self.created_by)
            .with("stage", &self.stage)
            .with("message_type", &self.message_type)
            .with("status", self.status.as_str())
            .with("payload", Value::from_record(&self.payload)?)
            .with("updated_date", time::iso_millis(self.updated_date))
            .with_some("processing_started_at", at(self.processing_started_at))
            .with_some("processing_completed_at", at(self.processing_completed_at))
            .with_some("error_message", self.error_message.as_ref())
            .with("retry_count", self.retry_count)
            .with_some("notification_id", self.notification_id.as_ref())
            .with("correlation_id", &self.correlation_id)
            .with("ttl", self.ttl)
            .with("channel", &self.channel)
            .with("target", Value::from_record(&self.target)?)
            .with_some("target_secret", self.secret.as_ref().map(Secret::expose))
            .with_some("event_id", self.event_id.as_ref())
            .with_some("rule", self.rule.as_ref())
            .with_some("due", self.next_attempt_at.map(|_| self.due_part()))
            .with_some("next_attempt_at", at(self.next_attempt_at))
            .with_some("retry_of", self.retry_of.as_ref()))
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        read(item).ok_or_else(|| Error::Corrupt("a stored message cannot be read".to_owned()))
    }
}

/// A partition of `due-index`, from 0 to [`DUE_PARTS`].
#[must_use]
pub fn due_part(part: u8) -> String {
    format!("due#{part}")
}

fn read(item: &Item) -> Option<Message> {
    let text = |name: &str| item.str(name).map(ToOwned::to_owned);
    let at = |name: &str| item.str(name).and_then(|text| text.parse::<Timestamp>().ok());
    let map = |name: &str| item.get(name)?.to_record::<Map<String, Json>>().ok();
    Some(Message {
        message_id: text("message_id")?,
        created_date: at("created_date")?,
        created_by: text("created_by")?,
        stage: text("stage")?,
        message_type: text("message_type")?,
        status: Status::parse(item.str("status")?)?,
        payload: map("payload")?,
        updated_date: at("updated_date")?,
        processing_started_at: at("processing_started_at"),
        processing_completed_at: at("processing_completed_at"),
        error_message: text("error_message"),
        retry_count: item.int("retry_count").and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        notification_id: text("notification_id"),
        correlation_id: text("correlation_id")?,
        ttl: item.int("ttl")?,
        channel: text("channel")?,
        target: map("target")?,
        secret: item.str("target_secret").map(Secret::new),
        event_id: text("event_id"),
        rule: text("rule"),
        next_attempt_at: at("next_attempt_at"),
        retry_of: text("retry_of"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message() -> Message {
        let object = |json: Json| json.as_object().unwrap().clone();
        let new = NewMessage {
            message_id: Uuid::from_u128(7),
            created_by: "rule:prod".to_owned(),
            stage: "dev",
            message_type: ALERT_NOTIFICATION,
            payload: object(json!({ "title": "T", "text": "x", "tags": ["a"], "n": 1.5 })),
            correlation_id: "c-1",
            channel: "webhook",
            target: object(json!({ "url": "https://h.example/" })),
            secret: Some(Secret::new("hush")),
            event_id: Some("e-1"),
            rule: Some("prod"),
            deliver_at: None,
            keep_seconds: 90 * 86_400,
        };
        Message::new(new, "2026-01-02T03:04:05.678Z".parse().unwrap())
    }

    // S002-03, S002-16, S002-17
    #[test]
    fn a_message_has_the_seeds_attributes_and_comes_back_whole() {
        let message = message();
        let item = message.to_item().unwrap();
        table("dev").check_item(&item).unwrap();
        assert_eq!(item.str("created_date"), Some("2026-01-02T03:04:05.678Z"));
        assert_eq!(item.str("status"), Some("created"));
        assert_eq!(item.int("ttl"), Some(message.created_date.as_second() + 90 * 86_400));
        assert_eq!(Message::from_item(&item).unwrap(), message);
        assert!(Message::from_item(&Item::new()).is_err());
    }

    #[test]
    fn a_final_message_is_not_due_and_a_secret_is_not_shown() {
        let message = Message { next_attempt_at: None, status: Status::Completed, ..message() };
        assert!(message.to_item().unwrap().get("due").is_none());
        assert!(!format!("{message:?}").contains("hush"));
        assert!((0..DUE_PARTS).any(|part| due_part(part) == message.due_part()));
    }
}
