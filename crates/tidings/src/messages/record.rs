//! A message as it is stored: the seed's attributes, and what Tidings adds to find its way (S002-01 to S002-29).
//!
//! `rules::react` writes messages in the transaction of the event that causes them; delivery takes them from there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tidings_core::message::{Attempt, Delivery, Status};
use tidings_core::time::{self, IsoMillis, Timestamp};
use tidings_store::{Attributes, Error, Item, Key, KeyKind, Name, Packed, Packer, Table, Value};
use uuid::Uuid;

use crate::channel::{audit_log, stream};
use crate::config::Secret;

/// The type of a message that a rule makes.
pub const ALERT_NOTIFICATION: &str = "alert_notification";

/// The shape of new records (S002-80).
pub const SCHEMA_VERSION: &str = "1.0";

/// The channels a message can leave by.
pub const CHANNELS: [&str; 7] = ["email", "ntfy", "webhook", "queue", "ticket", stream::CHANNEL, audit_log::CHANNEL];

/// Copies of one mail; a rule's notice to more addresses is several messages. As many can be named when one is sent again.
pub const COPIES: usize = 100;

/// Before the key of a message that has ended; no key has it.
const ENDED: char = '\u{1}';

/// `2026-11-15T12:34:56.789`.
const LISTED_BYTES: usize = 23;

/// Room for most messages as bytes.
const PACKED_BYTES: usize = 1024;

/// Partitions of `due-index` for each channel, so that none is hot on DynamoDB.
pub const DUE_PARTS: u8 = 4;

/// Messages by id; those that wait for an attempt are also in `due-index`, by the time of it.
#[must_use]
pub fn table(stage: &str) -> Table {
    let created = || Some(("created_date".into(), KeyKind::S));
    Table::new(format!("rez-agent-messages-{stage}"), "message_id", KeyKind::S)
        .index("stage-created_date-index", ("stage".into(), KeyKind::S), created())
        .index("status-created_date-index", ("status".into(), KeyKind::S), created())
        .index("message_type-created_date-index", ("message_type".into(), KeyKind::S), created())
        .index("correlation-index", ("correlation_id".into(), KeyKind::S), created())
        .index("cancel_key-index", ("cancel_key".into(), KeyKind::S), created())
        .index("due-index", ("due".into(), KeyKind::S), Some(("next_attempt_at".into(), KeyKind::S)))
        .ttl("ttl")
        // Neither is ever another one; those of one millisecond stand together.
        .lists_in("stage-created_date-index", LISTED_BYTES)
        .lists_in("message_type-created_date-index", LISTED_BYTES)
}

#[must_use]
pub fn key(message_id: &str) -> Key {
    Key::new(message_id)
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
    pub payload: Map<String, Json>,
    pub updated_date: Timestamp,
    pub processing_started_at: Option<Timestamp>,
    pub processing_completed_at: Option<Timestamp>,
    /// Status, attempts and what follows from them; `core` decides about it.
    pub delivery: Delivery,
    pub correlation_id: String,
    /// The W3C trace of the request it came from, if that is not the correlation id's, as `core::trace::carried` has it.
    pub trace_id: Option<String>,
    /// Second since 1970 at which it ceases to exist; one that waits is given up before.
    pub ttl: i64,
    /// `email`, `ntfy`, `webhook`, `queue`, `ticket`, or `dynamodb-stream` or `azure-devops` for what came from
    /// there and goes back.
    pub channel: String,
    /// Where it goes, in the channel's own terms; never a secret.
    pub target: Map<String, Json>,
    /// Signs a webhook. Kept apart from `target`, which is shown.
    pub secret: Option<Secret>,
    /// A secret that is encrypted with a key we do not have.
    pub lost_secret: Option<Vec<u8>>,
    pub event_id: Option<String>,
    pub rule: Option<String>,
    /// The first attempt is not made before.
    pub deliver_at: Timestamp,
    pub retry_of: Option<String>,
    /// When it was put in line for a worker.
    pub queued_at: Option<Timestamp>,
    /// By which somebody may cancel it (SX-16).
    pub cancel_key: Option<String>,
    /// The quiet hours that put it off.
    pub put_off_by: Option<String>,
    /// Who is sending it right now, and until when that is believed.
    pub lease: Option<Lease>,
    /// E-mail: those of whom it is decided. The others are pending.
    pub recipients: BTreeMap<String, Recipient>,
    /// Counts the writes, so that of two who read the same one writes.
    pub revision: i64,
    /// Of which shape the record is; one that somebody else made may say nothing.
    pub schema_version: Option<String>,
}

/// The right to send a message, for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub owner: String,
    pub until: Timestamp,
}

/// What became of one recipient's copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    pub delivered: bool,
    /// What the other side answered.
    pub detail: String,
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

/// Seconds that a message is kept from the moment at which it may leave, at the least: it is tried, and can be looked at.
const LEAST_SECONDS: i64 = 86_400;

/// The second up to which a message is kept that may not leave before this moment.
pub fn kept_from(leaves: Timestamp) -> i64 {
    leaves.as_second().saturating_add(LEAST_SECONDS)
}

impl Message {
    #[must_use]
    pub fn new(new: NewMessage<'_>, now: Timestamp) -> Self {
        let now = to_millis(now);
        let deliver_at = new.deliver_at.map_or(now, |at| to_millis(at).max(now));
        Self {
            message_id: new.message_id.to_string(),
            created_date: now,
            created_by: new.created_by,
            stage: new.stage.to_owned(),
            message_type: new.message_type.to_owned(),
            payload: new.payload,
            updated_date: now,
            processing_started_at: None,
            processing_completed_at: None,
            delivery: Delivery::default(),
            correlation_id: new.correlation_id.to_owned(),
            trace_id: None,
            ttl: now.as_second().saturating_add(new.keep_seconds).max(kept_from(deliver_at)),
            channel: new.channel.to_owned(),
            target: new.target,
            secret: new.secret,
            lost_secret: None,
            event_id: new.event_id.map(ToOwned::to_owned),
            rule: new.rule.map(ToOwned::to_owned),
            deliver_at,
            retry_of: None,
            queued_at: None,
            cancel_key: None,
            put_off_by: None,
            lease: None,
            recipients: BTreeMap::new(),
            revision: 0,
            schema_version: Some(SCHEMA_VERSION.to_owned()),
        }
    }

    /// When somebody has to look at it again: for its next attempt, or because whoever sends it may have died. `None`
    /// once it is final, and then it is in no `due-index`.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        if self.delivery.status.is_final() {
            return None;
        }
        let lease = self.lease.as_ref().map(|lease| lease.until);
        Some(lease.or(self.delivery.next_attempt_at).unwrap_or(self.deliver_at))
    }

    /// The partition of `due-index` in which the message waits.
    #[must_use]
    pub fn due_part(&self) -> String {
        let sum = self.message_id.bytes().fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte));
        due_part(&self.channel, sum % DUE_PARTS)
    }

    /// The recipients of an e-mail of whom nothing is decided yet.
    #[must_use]
    pub fn pending_recipients(&self) -> Vec<String> {
        let to = self.target.get("to").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        to.filter(|to| !self.recipients.contains_key(*to)).map(ToOwned::to_owned).collect()
    }

    /// The message, or several of at most [`COPIES`] recipients each: every one has an item, in which what becomes of all
    /// of them has room. Their ids follow from that of the first.
    #[must_use]
    pub fn parted(self) -> Vec<Self> {
        let to = match self.target.get("to") {
            Some(Json::Array(to)) if to.len() > COPIES => to.clone(),
            _ => return vec![self],
        };
        let first = Uuid::parse_str(&self.message_id).unwrap_or_default();
        let part = |(number, to): (usize, &[Json])| {
            let mut part = self.clone();
            part.target.insert("to".to_owned(), to.to_vec().into());
            if number > 0 {
                part.message_id = Uuid::new_v5(&first, number.to_string().as_bytes()).to_string();
            }
            part
        };
        to.chunks(COPIES).enumerate().map(part).collect()
    }

    /// The same item as bytes, of a message that has no secret: for one that is to be stored and not looked at. `None` if
    /// there is anything unusual about it.
    #[must_use]
    pub fn packed(&self, table: &Table) -> Option<Packed> {
        if self.secret.is_some() || self.lost_secret.is_some() {
            return None;
        }
        let (delivery, due) = (&self.delivery, self.due_at());
        let is_final = delivery.status.is_final();
        let at = |at: Option<Timestamp>| at.map(IsoMillis);
        // In the order of their names.
        Packer::new(table, PACKED_BYTES)
            .with_some("attempts", (!delivery.attempts.is_empty()).then_some(&delivery.attempts))
            .with_some("cancel_key", self.cancel_key.as_ref().map(|key| cancel_part(key, is_final)))
            .with("channel", &self.channel)
            .with("correlation_id", &self.correlation_id)
            .with("created_by", &self.created_by)
            .with("created_date", &IsoMillis(self.created_date))
            .with_some("deliver_at", at(Some(self.deliver_at).filter(|deliver_at| *deliver_at > self.created_date)))
            .with_some("due", due.map(|_| self.due_part()))
            .with_some("error_message", delivery.error_message.as_ref())
            .with_some("event_id", self.event_id.as_ref())
            .with_some("lease_owner", self.lease.as_ref().map(|lease| &lease.owner))
            .with("message_id", &self.message_id)
            .with("message_type", &self.message_type)
            .with_some("next_attempt_at", at(due))
            .with_some("notification_id", delivery.notification_id.as_ref())
            .with("payload", &self.payload)
            .with_some("processing_completed_at", at(self.processing_completed_at))
            .with_some("processing_started_at", at(self.processing_started_at))
            .with_some("put_off_by", self.put_off_by.as_ref())
            .with_some("queued_at", at(self.queued_at))
            .with_some("recipients", (!self.recipients.is_empty()).then_some(&self.recipients))
            .with("retry_count", &delivery.retry_count)
            .with_some("retry_of", self.retry_of.as_ref())
            .with("revision", &self.revision)
            .with_some("rule", self.rule.as_ref())
            .with_some("schema_version", self.schema_version.as_ref())
            .with("stage", &self.stage)
            .with("status", delivery.status.as_str())
            .with("target", &self.target)
            .with_some("trace_id", self.trace_id.as_ref())
            .with("ttl", &self.ttl)
            .with("updated_date", &IsoMillis(self.updated_date))
            .finish()
    }

    pub fn to_item(&self) -> Result<Item, Error> {
        self.with_fixed(self.moving()?.0)
    }

    /// What a change can touch, and with it the attributes that stay as they were made.
    fn with_fixed(&self, moving: impl IntoIterator<Item = (Name, Value)>) -> Result<Item, Error> {
        let text = |text: &String| Some(Value::from(text));
        let some = |text: &Option<String>| text.as_ref().map(Value::from);
        let secret = self.secret.as_ref().map(|secret| Value::from(secret.expose()));
        // In the order of their names, as they are kept: two sorted runs are soon one.
        let fixed = [
            ("channel", text(&self.channel)),
            ("correlation_id", text(&self.correlation_id)),
            ("created_by", text(&self.created_by)),
            ("created_date", Some(time::iso_millis(self.created_date).into())),
            ("event_id", some(&self.event_id)),
            ("message_id", text(&self.message_id)),
            ("message_type", text(&self.message_type)),
            ("payload", Some(stored(&self.payload)?)),
            ("retry_of", some(&self.retry_of)),
            ("rule", some(&self.rule)),
            ("schema_version", some(&self.schema_version)),
            ("stage", text(&self.stage)),
            ("target", Some(stored(&self.target)?)),
            ("target_secret", self.lost_secret.clone().map(Value::from).or(secret)),
            ("trace_id", some(&self.trace_id)),
        ];
        let fixed = fixed.into_iter().filter_map(|(name, value)| Some((name.into(), value?)));
        Ok(Item(Attributes::of_two(fixed, moving)))
    }

    /// Of its attributes, those that a change of the message can touch; all others stay as they were made.
    pub fn moving(&self) -> Result<Item, Error> {
        let updated = time::iso_millis(self.updated_date);
        // Much of it happens at one and the same time.
        let text = |at| if at == self.updated_date { updated.clone() } else { time::iso_millis(at) };
        let at = |at: Option<Timestamp>| at.map(text);
        let delivery = &self.delivery;
        let attempts = (!delivery.attempts.is_empty()).then(|| Value::from_record(&delivery.attempts)).transpose()?;
        let recipients = (!self.recipients.is_empty()).then(|| Value::from_record(&self.recipients)).transpose()?;
        let due = self.due_at();
        // In the order of their names, as they are kept.
        Ok(Item::new()
            .with_some("attempts", attempts)
            .with_some("cancel_key", self.cancel_key.as_ref().map(|key| cancel_part(key, delivery.status.is_final())))
            .with_some("deliver_at", (self.deliver_at > self.created_date).then(|| time::iso_millis(self.deliver_at)))
            .with_some("due", due.map(|_| self.due_part()))
            .with_some("error_message", delivery.error_message.as_ref())
            .with_some("lease_owner", self.lease.as_ref().map(|lease| &lease.owner))
            .with_some("next_attempt_at", at(due))
            .with_some("notification_id", delivery.notification_id.as_ref())
            .with_some("processing_completed_at", at(self.processing_completed_at))
            .with_some("processing_started_at", at(self.processing_started_at))
            .with_some("put_off_by", self.put_off_by.as_ref())
            .with_some("queued_at", at(self.queued_at))
            .with_some("recipients", recipients)
            .with("retry_count", delivery.retry_count)
            .with("revision", self.revision)
            .with("status", delivery.status.as_str())
            .with("ttl", self.ttl)
            .with("updated_date", updated))
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        read(item).ok_or_else(|| Error::Corrupt("a stored message cannot be read".to_owned()))
    }
}

/// What [`Value::from_record`] makes of it, without asking each value what it is.
fn stored(fields: &Map<String, Json>) -> Result<Value, Error> {
    let mut attributes = Attributes::with_capacity(fields.len());
    for (name, value) in fields {
        attributes.insert(name.clone(), stored_value(value)?);
    }
    Ok(Value::M(attributes))
}

fn stored_value(value: &Json) -> Result<Value, Error> {
    match value {
        Json::String(text) => Ok(Value::from(text)),
        Json::Array(values) => Ok(Value::L(values.iter().map(stored_value).collect::<Result<_, _>>()?)),
        Json::Object(fields) => stored(fields),
        Json::Null | Json::Bool(_) | Json::Number(_) => Value::from_record(value),
    }
}

/// A partition of `due-index`, from 0 to [`DUE_PARTS`].
#[must_use]
pub fn due_part(channel: &str, part: u8) -> String {
    format!("{channel}#{part}")
}

/// The partition of `cancel_key-index` for messages of a key: those that can still be called off are apart from those that
/// have ended, of which a key may have any number.
#[must_use]
pub fn cancel_part(key: &str, ended: bool) -> String {
    if ended { format!("{ENDED}{key}") } else { key.to_owned() }
}

/// As it comes back from the store.
#[must_use]
pub fn to_millis(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

fn read(item: &Item) -> Option<Message> {
    let text = |name: &str| item.str(name).map(ToOwned::to_owned);
    let at = |name: &str| item.str(name).and_then(|text| text.parse::<Timestamp>().ok());
    let map = |name: &str| item.get(name)?.to_record::<Map<String, Json>>().ok();
    let created_date = at("created_date")?;
    let lease = text("lease_owner").zip(at("next_attempt_at")).map(|(owner, until)| Lease { owner, until });
    Some(Message {
        message_id: text("message_id")?,
        created_date,
        created_by: text("created_by")?,
        stage: text("stage")?,
        message_type: text("message_type")?,
        payload: map("payload")?,
        updated_date: at("updated_date")?,
        processing_started_at: at("processing_started_at"),
        processing_completed_at: at("processing_completed_at"),
        delivery: read_delivery(item, lease.is_some())?,
        correlation_id: text("correlation_id")?,
        trace_id: text("trace_id"),
        ttl: item.int("ttl")?,
        // A message that somebody else put in the seed's table has neither of these.
        channel: text("channel").unwrap_or_else(|| "ntfy".to_owned()),
        target: map("target").unwrap_or_default(),
        secret: item.str("target_secret").map(Secret::new),
        lost_secret: match item.get("target_secret") {
            Some(Value::B(sealed)) => Some(sealed.clone()),
            _ => None,
        },
        event_id: text("event_id"),
        rule: text("rule"),
        deliver_at: at("deliver_at").unwrap_or(created_date),
        retry_of: text("retry_of"),
        queued_at: at("queued_at"),
        cancel_key: item.str("cancel_key").map(|key| key.trim_start_matches(ENDED).to_owned()),
        put_off_by: text("put_off_by"),
        lease,
        recipients: item.get("recipients").and_then(|value| value.to_record().ok()).unwrap_or_default(),
        revision: item.int("revision").unwrap_or(0),
        schema_version: text("schema_version"),
    })
}

fn read_delivery(item: &Item, leased: bool) -> Option<Delivery> {
    let text = |name: &str| item.str(name).map(ToOwned::to_owned);
    let status = item.str("status")?;
    let status = Status::ALL.into_iter().find(|known| known.as_str() == status)?;
    let waits = status == Status::Processing && !leased;
    Some(Delivery {
        status,
        retry_count: item.int("retry_count").and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        next_attempt_at: item.str("next_attempt_at").filter(|_| waits).and_then(|at| at.parse().ok()),
        error_message: text("error_message"),
        notification_id: text("notification_id"),
        attempts: match item.get("attempts") {
            Some(attempts) => attempts.to_record::<Vec<Attempt>>().ok()?,
            None => Vec::new(),
        },
    })
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
