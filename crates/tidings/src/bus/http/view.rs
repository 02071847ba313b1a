//! Messages as the batch calls and peeking show them.

use std::collections::BTreeMap;

use base64::Engine as _;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tidings_core::time;

use crate::bus::message::{Attempt, Dead, Stored};
use crate::bus::state::Taken;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageView {
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_token: Option<String>,
    sequence_number: u64,
    /// The number it had where it was first enqueued.
    enqueued_sequence_number: u64,
    message_id: String,
    delivery_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_until: Option<String>,
    enqueued_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    correlation_id: Option<String>,
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    content_type: Option<String>,
    properties: BTreeMap<String, Value>,
    /// The body as text; in base64 if it is none.
    body: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    body_is_base64: bool,
    /// When a scheduled message is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<String>,
    /// How earlier deliveries ended, the last ten.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<Attempt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<Dead>,
    /// The dead letter it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    resubmitted_from: Option<String>,
}

impl From<&Stored> for MessageView {
    fn from(stored: &Stored) -> Self {
        let message = &stored.message;
        let text = std::str::from_utf8(&message.body).ok();
        Self {
            lock_token: None,
            sequence_number: stored.sequence,
            enqueued_sequence_number: stored.enqueued_sequence.unwrap_or(stored.sequence),
            message_id: message.id.clone(),
            delivery_count: stored.deliveries,
            locked_until: None,
            enqueued_at: time::iso_millis(stored.enqueued_at),
            expires_at: stored.expires_at.map(time::iso_millis),
            correlation_id: message.correlation_id.clone(),
            subject: message.subject.clone(),
            session_id: message.session_id.clone(),
            partition_key: message.partition_key.clone(),
            to: message.to.clone(),
            reply_to: message.reply_to.clone(),
            reply_to_session_id: message.reply_to_session_id.clone(),
            key: message.key.clone(),
            content_type: message.content_type.clone(),
            properties: message.properties.clone(),
            body_is_base64: text.is_none(),
            body: text.map_or_else(|| base64::prelude::BASE64_STANDARD.encode(&message.body), ToOwned::to_owned),
            scheduled_for: None,
            attempts: stored.attempts.clone(),
            dead_letter: stored.dead.clone(),
            resubmitted_from: stored.resubmitted_from.clone(),
        }
    }
}

impl From<&Taken> for MessageView {
    fn from(taken: &Taken) -> Self {
        Self {
            lock_token: Some(taken.token.to_string()),
            delivery_count: taken.held.deliveries,
            locked_until: Some(time::iso_millis(taken.held.locked_until)),
            ..Self::from(&*taken.held.message)
        }
    }
}
