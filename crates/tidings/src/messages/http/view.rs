//! Messages as they are shown: the seed's attribute names, then what Tidings adds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tidings_core::message::{Attempt, CANCELLED, Status};
use tidings_core::time::{IsoMillis, Timestamp};
use tidings_core::trace;

use crate::mask;
use crate::messages::record::{Message, Recipient};

/// A message.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MessageView<'a> {
    message_id: &'a str,
    #[schemars(with = "String")]
    created_date: IsoMillis,
    created_by: &'a str,
    stage: &'a str,
    message_type: &'a str,
    /// `created`, `queued`, `processing`, `completed` or `failed`.
    status: &'static str,
    /// The same in the words that all of Tidings shares: also `scheduled`, `cancelled` and `dead_lettered`.
    state: &'static str,
    payload: &'a Map<String, Value>,
    #[schemars(with = "String")]
    updated_date: IsoMillis,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    processing_started_at: Option<IsoMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    processing_completed_at: Option<IsoMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'a str>,
    retry_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    notification_id: Option<&'a str>,
    correlation_id: &'a str,
    /// The W3C trace that was given beside the correlation id.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    /// Second since 1970 at which it ceases to exist: `retention.messages_days` after it was made, a day after the moment at
    /// which it may leave (`deliver_at`, the end of quiet hours) at the earliest, and an hour after it ended. One that still
    /// waits an hour before is given up, with a dead letter.
    ttl: i64,
    channel: &'a str,
    target: Cow<'a, Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    deliver_at: Option<IsoMillis>,
    /// While it waits for a time: not before this. Left out while it waits for its turn, or for a destination that is left
    /// alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    next_attempt_at: Option<IsoMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_of: Option<&'a str>,
    /// When it was put in line for a worker; one that is taken up at once has the time of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    queued_at: Option<IsoMillis>,
    /// By which it can be cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    /// The quiet hours for which it was put off.
    #[serde(skip_serializing_if = "Option::is_none")]
    put_off_by: Option<&'a str>,
    #[schemars(with = "Vec<Value>")]
    attempts: &'a [Attempt],
    /// E-mail: what became of each copy that is decided.
    #[serde(skip_serializing_if = "is_empty")]
    #[schemars(with = "Map<String, Value>")]
    recipients: &'a BTreeMap<String, Recipient>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_version: Option<&'a str>,
}

impl<'a> From<&'a Message> for MessageView<'a> {
    fn from(message: &'a Message) -> Self {
        let text = |at: Option<Timestamp>| at.map(IsoMillis);
        let delivery = &message.delivery;
        // Whoever was due when he was put in line waits for no time that is known here.
        let is_in_line = |due: Timestamp| delivery.status == Status::Queued && due <= message.updated_date;
        let due = message.due_at().filter(|due| message.lease.is_none() && !is_in_line(*due));
        Self {
            message_id: &message.message_id,
            created_date: IsoMillis(message.created_date),
            created_by: &message.created_by,
            stage: &message.stage,
            message_type: &message.message_type,
            status: delivery.status.as_str(),
            state: state_of(message),
            payload: &message.payload,
            updated_date: IsoMillis(message.updated_date),
            processing_started_at: text(message.processing_started_at),
            processing_completed_at: text(message.processing_completed_at),
            error_message: delivery.error_message.as_deref(),
            retry_count: delivery.retry_count,
            notification_id: delivery.notification_id.as_deref(),
            correlation_id: &message.correlation_id,
            trace_id: message.trace_id.as_deref().map(|carried| trace::parts(carried).0),
            ttl: message.ttl,
            channel: &message.channel,
            target: shown(&message.target),
            event_id: message.event_id.as_deref(),
            rule: message.rule.as_deref(),
            deliver_at: (message.deliver_at > message.created_date).then_some(IsoMillis(message.deliver_at)),
            next_attempt_at: text(due),
            retry_of: message.retry_of.as_deref(),
            queued_at: text(message.queued_at),
            key: message.cancel_key.as_deref(),
            put_off_by: message.put_off_by.as_deref(),
            attempts: &delivery.attempts,
            recipients: &message.recipients,
            schema_version: message.schema_version.as_deref(),
        }
    }
}

/// Whether it was called off, which is a way to fail.
pub(super) fn is_cancelled(message: &Message) -> bool {
    message.delivery.error_message.as_deref() == Some(CANCELLED)
}

/// SX-07: what is not to go yet, what was called off, and what was given up have names of their own.
fn state_of(message: &Message) -> &'static str {
    let delivery = &message.delivery;
    match delivery.status {
        Status::Created if message.deliver_at > message.created_date => "scheduled",
        Status::Failed if is_cancelled(message) => "cancelled",
        Status::Failed => "dead_lettered",
        status => status.as_str(),
    }
}

/// The path of many a webhook's URL is its password: only where it leads is shown.
pub(super) fn shown(target: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    let Some(url) = target.get("url") else { return Cow::Borrowed(target) };
    let masked = mask::url(url.as_str().unwrap_or_default());
    let mut target = target.clone();
    target.insert("url".to_owned(), masked.into());
    Cow::Owned(target)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a field over so")]
fn is_empty(recipients: &&BTreeMap<String, Recipient>) -> bool {
    recipients.is_empty()
}
