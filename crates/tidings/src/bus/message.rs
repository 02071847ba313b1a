//! Messages of the bus: what a sender gives, and what is stored of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidings_core::time::Timestamp;
use tidings_store::{Error, Item, Value};

use super::once::Mark;

/// What a sender sends. `Message::default()` with an `id` and a `body` is one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Message {
    #[serde(rename = "messageId")]
    pub id: String,
    #[serde(skip)]
    pub body: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Also called label; dotted keys are matched with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_session_id: Option<String>,
    /// Messages of one session leave an ordered entity one at a time, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    /// The business key under which a scheduled message can be cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Strings, numbers, booleans and nulls by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// When it is to be enqueued; absent or past: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<Timestamp>,
    /// Of one that was sent with an `Idempotency-Key`: left beside it when it is sent, and not part of it.
    #[serde(skip)]
    pub mark: Option<Box<Mark>>,
}

/// A message in a line. The fields of `message` stand beside the others in what is stored: `head`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Stored {
    #[serde(skip)]
    pub message: Message,
    #[serde(rename = "seq")]
    pub sequence: u64,
    /// The number it had where it was first enqueued, if that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enqueued_sequence: Option<u64>,
    pub enqueued_at: Timestamp,
    /// When it was sent, of one that was scheduled for later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Deliveries so far.
    #[serde(skip_serializing_if = "is_zero")]
    pub deliveries: u32,
    /// Of these, the ones that ended with the message deferred: they did not fail.
    #[serde(skip_serializing_if = "is_zero")]
    pub deferrals: u32,
    /// How the deliveries ended, the last ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead: Option<Dead>,
    /// Of a resubmitted one: the dead letter it comes from, as path and number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resubmitted_from: Option<String>,
    /// Of a deferred one that was abandoned: who asks for it sooner gets nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Waits for another delivery, not for its first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub returning: bool,
}

/// How one delivery ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    pub delivery: u32,
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// `abandoned`, `expired` (the lock), `deferred`, `failed` or `lost` (nobody knows).
    pub outcome: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Why and when a message was dead-lettered (S003-98).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dead {
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub source: String,
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Deliveries it had before.
    pub deliveries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub first_failure: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_failure: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_consumer: Option<String>,
}

/// Characters of a text that is a property of the broker, and of an address.
pub const TEXT_CHARS: usize = 128;
pub const ADDRESS_CHARS: usize = 1024;
/// Custom properties of one message, and characters of a name.
pub const PROPERTIES: usize = 256;
pub const NAME_CHARS: usize = 128;
/// Attempts that are kept.
pub const ATTEMPTS: usize = 10;
/// Characters of a reason or description that are kept.
pub const REASON_CHARS: usize = 1024;

/// How a delivery ends that neither succeeded nor failed.
pub const DEFERRED: &str = "deferred";

/// The reasons the broker itself gives, as Service Bus spells them.
pub const MAX_DELIVERIES: &str = "MaxDeliveryCountExceeded";
pub const EXPIRED: &str = "TTLExpiredException";

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Message {
    /// A message with an id and a body of JSON.
    pub fn json(id: impl Into<String>, body: &Json) -> Self {
        Self {
            id: id.into(),
            body: Bytes::from(body.to_string()),
            content_type: Some("application/json".to_owned()),
            ..Self::default()
        }
    }

    /// Bytes of everything but the body.
    #[must_use]
    pub fn property_bytes(&self) -> usize {
        let texts = [
            Some(&self.id),
            self.content_type.as_ref(),
            self.correlation_id.as_ref(),
            self.subject.as_ref(),
            self.to.as_ref(),
            self.reply_to.as_ref(),
            self.reply_to_session_id.as_ref(),
            self.session_id.as_ref(),
            self.partition_key.as_ref(),
            self.key.as_ref(),
        ];
        let own: usize = texts.into_iter().flatten().map(String::len).sum();
        let value = |value: &Json| match value {
            Json::String(text) => text.len(),
            _ => 8,
        };
        own + self.properties.iter().map(|(name, json)| name.len() + value(json)).sum::<usize>()
    }

    /// What a scheduled message can be cancelled by: its business key and its id (S003-30).
    pub fn cancel_keys(&self) -> impl Iterator<Item = &str> {
        let key = self.key.as_deref().filter(|key| *key != self.id);
        key.into_iter().chain(std::iter::once(self.id.as_str()))
    }

    /// What messages of one kind share that must stay in order.
    #[must_use]
    pub fn order_key(&self) -> &str {
        self.session_id.as_deref().or(self.partition_key.as_deref()).unwrap_or_default()
    }
}

impl Stored {
    /// About what it takes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.message.body.len() + self.message.property_bytes() + 256
    }

    /// What kind of message it is: its subject, else the property `eventType`.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        let message = &self.message;
        let named = |name: &str| name.eq_ignore_ascii_case("eventType");
        let property = || message.properties.iter().find(|(name, _)| named(name)).and_then(|(_, json)| json.as_str());
        message.subject.as_deref().or_else(property)
    }

    /// Whether it has failed as often as it may once so many deliveries are over. One that nobody knows the end of
    /// counts as failed, one that ended with the message deferred does not.
    #[must_use]
    pub fn is_exhausted(&self, deliveries: u32, most: Option<u32>) -> bool {
        most.is_some_and(|most| deliveries.saturating_sub(self.deferrals) >= most)
    }

    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// The item under a key that the layout gives.
    pub fn to_item(&self, line: String, at: String) -> Result<Item, Error> {
        let head = self.head().map_err(|e| Error::Invalid(format!("a message cannot be stored: {e}")))?;
        Ok(Item::with_room(4)
            .with("at", at)
            .with("body", self.message.body.to_vec())
            .with("head", head)
            .with("line", line))
    }

    /// Everything but the body, as one object.
    fn head(&self) -> Result<String, serde_json::Error> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        serde_json::to_writer(&mut head, &self.message)?;
        // Both have at least one field.
        let joint = head.len() - 1;
        serde_json::to_writer(&mut head, self)?;
        head.drain(joint..=joint);
        if let Some(joint) = head.get_mut(joint) {
            *joint = b',';
        }
        String::from_utf8(head).map_err(serde::ser::Error::custom)
    }

    /// The same read: each half takes its own fields out of it.
    fn from_head(head: &str) -> Result<Self, serde_json::Error> {
        let message = serde_json::from_str(head)?;
        Ok(Self { message, ..serde_json::from_str(head)? })
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        let head = item.str("head").ok_or_else(|| Error::Corrupt("a message of the bus has no head".to_owned()))?;
        let mut stored =
            Self::from_head(head).map_err(|e| Error::Corrupt(format!("a message of the bus cannot be read: {e}")))?;
        if let Some(Value::B(body)) = item.get("body") {
            stored.message.body = Bytes::from(body.clone());
        }
        Ok(stored)
    }

    /// Notes how a delivery ended.
    pub fn note(&mut self, attempt: Attempt) {
        if self.attempts.len() >= ATTEMPTS {
            self.attempts.remove(0);
        }
        self.attempts.push(attempt);
    }

    /// The message as it stands among the dead letters.
    #[must_use]
    pub fn dead_letter(&self, reason: &str, description: Option<&str>, source: &str, now: Timestamp) -> Self {
        let mut dead = self.clone();
        let cut = |text: &str| text.chars().take(REASON_CHARS).collect::<String>();
        let (reason, description) = (cut(reason), description.map(cut));
        let properties = &mut dead.message.properties;
        properties.insert("DeadLetterReason".to_owned(), reason.clone().into());
        if let Some(description) = &description {
            properties.insert("DeadLetterErrorDescription".to_owned(), description.clone().into());
        }
        let mut failures = self.attempts.iter().filter(|attempt| attempt.outcome != DEFERRED);
        let first_failure = failures.next().map(|attempt| attempt.at);
        dead.dead = Some(Dead {
            reason,
            description,
            source: source.to_owned(),
            at: now,
            deliveries: self.deliveries,
            first_failure,
            last_failure: failures.next_back().map(|attempt| attempt.at).or(first_failure),
            last_consumer: self.attempts.iter().rev().find_map(|attempt| attempt.consumer.clone()),
        });
        dead.enqueued_sequence = Some(self.enqueued_sequence.unwrap_or(self.sequence));
        dead.deliveries = 0;
        dead.deferrals = 0;
        dead.expires_at = None;
        dead.returning = false;
        dead
    }
}

/// Room for what most messages have beside their bodies.
const HEAD_BYTES: usize = 384;

/// A message under the position it has in its line.
pub type Placed = (u64, Arc<Stored>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_stored_as_one_object() {
        let message = Message {
            id: "m-1".to_owned(),
            subject: Some("\"order\", paid".to_owned()),
            properties: BTreeMap::from([("a".to_owned(), Json::from(1))]),
            ttl: Some(Duration::from_secs(7)),
            ..Message::default()
        };
        let attempt = Attempt {
            delivery: 1,
            at: Timestamp::UNIX_EPOCH,
            outcome: "expired".into(),
            consumer: None,
            reason: None,
            description: None,
        };
        let stored = Stored { message, sequence: 7, deliveries: 1, attempts: vec![attempt], ..Stored::default() };
        for stored in [stored, Stored::default()] {
            let head = stored.head().unwrap();
            assert!(serde_json::from_str::<Json>(&head).unwrap().is_object(), "{head}");
            assert_eq!(Stored::from_head(&head).unwrap(), stored);
        }
    }

    /// As it was written from the start: stores are opened by later versions.
    #[test]
    fn what_is_stored_has_one_form() {
        let message = Message { id: "m".to_owned(), content_type: Some("text/plain".to_owned()), ..Message::default() };
        let stored = Stored { message, sequence: 3, enqueued_at: Timestamp::UNIX_EPOCH, ..Stored::default() };
        let head = r#"{"messageId":"m","contentType":"text/plain","seq":3,"enqueuedAt":"1970-01-01T00:00:00Z"}"#;
        assert_eq!(stored.head().unwrap(), head);
    }
}
