//! Messages as the batch calls and peeking show them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tidings_core::json::is_plain;
use tidings_core::time::IsoMillis;
use uuid::Uuid;

use crate::bus::message::{Attempt, Dead, Stored};
use crate::bus::state::Taken;

/// A message, of which nothing is copied to be shown.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    lock_token: Option<Token>,
    sequence_number: u64,
    /// The number it had where it was first enqueued.
    enqueued_sequence_number: u64,
    message_id: &'a str,
    delivery_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    locked_until: Option<IsoMillis>,
    #[schemars(with = "String")]
    enqueued_at: IsoMillis,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    expires_at: Option<IsoMillis>,
    correlation_id: Option<&'a str>,
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to_session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    content_type: Option<&'a str>,
    properties: &'a BTreeMap<String, Value>,
    /// The body as text; in base64 if it is none.
    #[serde(serialize_with = "long_text")]
    body: Cow<'a, str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    body_is_base64: bool,
    /// When a scheduled message is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub scheduled_for: Option<IsoMillis>,
    /// How earlier deliveries ended, the last ten.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attempts: &'a Vec<Attempt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<&'a Dead>,
    /// The dead letter it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    resubmitted_from: Option<&'a str>,
}

/// A lock's token, which is shown as text.
pub(super) struct Token(pub Uuid);

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }
}

/// A text that may be long, and mostly has nothing to escape: that is seen several letters at a time.
fn long_text<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let quoted = is_plain(text).then(|| ["\"", text, "\""].concat());
    match quoted.and_then(|quoted| RawValue::from_string(quoted).ok()) {
        Some(raw) => raw.serialize(serializer),
        None => serializer.serialize_str(text),
    }
}

/// Messages that were received, each shown as it is written.
pub(super) struct Messages<'a>(pub &'a [Taken]);

impl Messages<'_> {
    /// About how many bytes they have as JSON.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|taken| taken.held.message.message.body.len() + 512).sum()
    }
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(MessageView::from))
    }
}

impl<'a> From<&'a Stored> for MessageView<'a> {
    fn from(stored: &'a Stored) -> Self {
        let message = &stored.message;
        let text = std::str::from_utf8(&message.body).ok();
        Self {
            lock_token: None,
            sequence_number: stored.sequence,
            enqueued_sequence_number: stored.enqueued_sequence.unwrap_or(stored.sequence),
            message_id: &message.id,
            delivery_count: stored.deliveries,
            locked_until: None,
            enqueued_at: IsoMillis(stored.enqueued_at),
            expires_at: stored.expires_at.map(IsoMillis),
            correlation_id: message.correlation_id.as_deref(),
            subject: message.subject.as_deref(),
            session_id: message.session_id.as_deref(),
            partition_key: message.partition_key.as_deref(),
            to: message.to.as_deref(),
            reply_to: message.reply_to.as_deref(),
            reply_to_session_id: message.reply_to_session_id.as_deref(),
            key: message.key.as_deref(),
            content_type: message.content_type.as_deref(),
            properties: &message.properties,
            body_is_base64: text.is_none(),
            body: text.map_or_else(|| base64::prelude::BASE64_STANDARD.encode(&message.body).into(), Cow::Borrowed),
            scheduled_for: None,
            attempts: &stored.attempts,
            dead_letter: stored.dead.as_ref(),
            resubmitted_from: stored.resubmitted_from.as_deref(),
        }
    }
}

impl<'a> From<&'a Taken> for MessageView<'a> {
    fn from(taken: &'a Taken) -> Self {
        Self {
            lock_token: Some(Token(taken.token)),
            delivery_count: taken.held.deliveries,
            locked_until: Some(IsoMillis(taken.held.locked_until)),
            ..Self::from(&*taken.held.message)
        }
    }
}
