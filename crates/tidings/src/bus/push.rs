//! What a push subscription posts: a message of the webhook channel made of a message of the bus, and what the end of the
//! one means for the other. `pump` moves them.

use std::sync::Arc;

use axum::http::HeaderMap;
use base64::Engine as _;
use serde_json::{Map, Value, json};
use tidings_core::message::{AttemptOutcome, Status};
use tidings_store::{Condition, Error};
use uuid::Uuid;

use super::definition::{Definition, Push};
use super::http::broker_properties;
use super::letters;
use super::line::{Line, LineError};
use super::message::{Attempt, MAX_DELIVERIES, Stored};
use super::prepared::Prepared;
use super::state::{Held, Taken};
use super::{Bus, Path};
use crate::config::Secret;
use crate::config::delivery::Override;
use crate::messages::dead::OnBus;
use crate::messages::{Message, Messages, NewMessage};

/// The type of the messages it makes.
pub const MESSAGE_TYPE: &str = "bus_push";
/// Who makes them; what follows is the path. Nobody else has such a name.
const MADE_BY: &str = "bus:";
/// The field of their payload that says how they are tried again.
const POLICY: &str = "policy";
/// The reasons of dead letters that the other side refused, and that could not be sent at all.
const REFUSED: &str = "PushRefused";
const UNFIT: &str = "PushFailed";

/// Whether a message stands for one of the bus, which has the dead letter if it fails.
#[must_use]
pub fn stands_for_another(message: &Message) -> bool {
    message.message_type == MESSAGE_TYPE && message.created_by.starts_with(MADE_BY)
}

/// How a message is tried again that says so itself: as its subscription wants it.
#[must_use]
pub fn own_policy(message: &Message) -> Option<Override> {
    let policy = if stands_for_another(message) { message.payload.get(POLICY)? } else { return None };
    serde_json::from_value(policy.clone()).ok()
}

/// What became of a message that was handed over.
#[derive(Debug, Clone)]
pub enum Ending {
    /// It arrived, after so many attempts.
    Arrived(u32),
    Failed {
        reason: &'static str,
        description: Option<String>,
        attempts: Vec<Attempt>,
    },
    /// It could not be handed over at all, for this reason.
    Unfit(String),
}

impl Ending {
    /// That of a webhook message; `None` while it goes on.
    #[must_use]
    pub fn of(message: &Message) -> Option<Self> {
        let delivery = &message.delivery;
        let count = delivery.tries();
        match delivery.status {
            Status::Completed => Some(Self::Arrived(count.max(1))),
            Status::Failed => {
                let attempt = |attempt: &tidings_core::message::Attempt| Attempt {
                    delivery: attempt.number,
                    at: attempt.ended_at.unwrap_or(attempt.started_at),
                    outcome: "failed".into(),
                    consumer: Some("push".to_owned()),
                    reason: attempt.code.map(|code| code.to_string()),
                    description: attempt.error.clone(),
                };
                let last = delivery.attempts.last().and_then(|attempt| attempt.outcome);
                let most = own_policy(message).and_then(|policy| policy.max_retries).unwrap_or(u32::MAX);
                let tried_out = count > most && last != Some(AttemptOutcome::Permanent);
                Some(Self::Failed {
                    reason: if tried_out { MAX_DELIVERIES } else { REFUSED },
                    description: delivery.error_message.clone(),
                    attempts: delivery.attempts.iter().map(attempt).collect(),
                })
            }
            _ => None,
        }
    }
}

impl Bus {
    /// Whether a message stands for one of the bus that is there no more: purged, or deleted with its subscription. Known
    /// by the line, which is another one then, so that a crash makes no difference.
    pub async fn is_taken_back(&self, message: &Message) -> Result<bool, Error> {
        if !stands_for_another(message) {
            return Ok(false);
        }
        let text = |name: &str| message.payload.get(name).and_then(Value::as_str);
        let sequence = message.payload.get("sequence_number").and_then(Value::as_u64);
        let (Some(path), Some(sequence)) = (text("path").and_then(Path::parse), sequence) else { return Ok(false) };
        let is_there = || {
            let line = self.line(&path);
            line.is_ok_and(|line| line.webhook_id(sequence).to_string() == message.message_id)
        };
        if is_there() {
            return Ok(false);
        }
        // Another node may have made what this one does not know yet.
        self.know_entities().await?;
        Ok(!is_there())
    }
}

impl Line {
    /// Ends a message that was kept for its push endpoint.
    pub(super) async fn end_push(self: &Arc<Self>, taken: &Taken, ending: Ending) -> Result<(), LineError> {
        let mut held = taken.held.clone();
        let mut prepared = Prepared::default();
        prepared.fence(self, held.epoch);
        let arrived = match ending {
            Ending::Arrived(attempts) => {
                held.deliveries = attempts;
                self.complete(&held, &mut prepared);
                true
            }
            Ending::Failed { reason, description, attempts } => {
                let mut message = Stored::clone(&held.message);
                message.deliveries = attempts.last().map_or(0, |attempt| attempt.delivery);
                attempts.into_iter().for_each(|attempt| message.note(attempt));
                self.bury(held.place, &message, reason, description.as_deref(), &mut prepared).await?;
                // Whoever sends the webhook message again finds the letter by it.
                if let Some((dead, number)) = prepared.last_arrival() {
                    let until = self.shared.clock.now().as_second().saturating_add(self.shared.history_seconds());
                    let at = OnBus { path: self.path.clone(), generation: dead.layout.generation().to_owned(), number };
                    let id = self.webhook_id(held.message.sequence);
                    prepared.write(letters::found_by(&id.to_string(), &at, until));
                }
                false
            }
            Ending::Unfit(why) => {
                self.bury(held.place, &held.message, UNFIT, Some(&why), &mut prepared).await?;
                false
            }
        };
        if self.fence.is_shared() {
            // An earlier try may have gone through without a word: nothing is counted twice.
            prepared.demand_first(Condition::Exists);
        }
        self.end_kept(taken.token, &held, arrived, prepared).await
    }

    /// The same for the same message: a second copy is known by it.
    fn webhook_id(&self, sequence: u64) -> Uuid {
        let name = format!("push\n{}\n{sequence}", self.layout.generation());
        Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes())
    }

    pub(super) fn webhook(&self, held: &Held, push: &Push, definition: &Definition, messages: &Messages) -> Message {
        let stored = &held.message;
        let message = &stored.message;
        let text = std::str::from_utf8(&message.body).ok();
        let body = text.map_or_else(|| base64::prelude::BASE64_STANDARD.encode(&message.body), ToOwned::to_owned);
        let payload = json!({
            "body": body,
            "body_is_base64": text.is_none(),
            "content_type": message.content_type,
            "path": self.path,
            "message_id": message.id,
            "sequence_number": stored.sequence,
            "delivery_count": held.deliveries,
            "subject": message.subject,
            "properties": message.properties,
            "broker_properties": broker_properties::shown(held, None),
            POLICY: policy(definition),
        });
        let object = |value: Value| value.as_object().cloned().unwrap_or_else(Map::new);
        let new = NewMessage {
            message_id: self.webhook_id(stored.sequence),
            created_by: format!("{MADE_BY}{}", self.path),
            stage: messages.stage(),
            message_type: MESSAGE_TYPE,
            payload: object(payload),
            correlation_id: message.correlation_id.as_deref().unwrap_or_default(),
            channel: "webhook",
            target: object(json!({ "url": push.url })),
            secret: push.secret.as_deref().map(Secret::new),
            event_id: None,
            rule: None,
            deliver_at: None,
            keep_seconds: messages.keep_seconds(),
        };
        Message::new(new, self.shared.clock.now())
    }
}

/// The subscription's own way: as many attempts as deliveries, and its waits if it has any.
fn policy(definition: &Definition) -> Value {
    let retries = definition.max_delivery_count.saturating_sub(1);
    match &definition.retry {
        None => json!({ "max_retries": retries }),
        Some(retry) => json!({
            "max_retries": retries,
            "strategy": retry.strategy,
            "base_seconds": retry.base_seconds,
            "factor": retry.factor,
            "cap_seconds": retry.max_seconds,
            "jitter": retry.jitter,
        }),
    }
}

/// What is posted of a message that [`MESSAGE_TYPE`] names: the body as it was sent.
#[must_use]
pub fn body_of(payload: &Map<String, Value>) -> (String, bytes::Bytes) {
    let text = |name: &str| payload.get(name).and_then(Value::as_str);
    let body = text("body").unwrap_or_default();
    let is_base64 = payload.get("body_is_base64").and_then(Value::as_bool).unwrap_or(false);
    let bytes = match is_base64.then(|| base64::prelude::BASE64_STANDARD.decode(body)) {
        Some(Ok(bytes)) => bytes::Bytes::from(bytes),
        _ => bytes::Bytes::from(body.to_owned()),
    };
    (text("content_type").unwrap_or("application/octet-stream").to_owned(), bytes)
}

/// What is posted beside it in this attempt, as peek-lock answers it: `BrokerProperties`, and the custom properties by
/// their names.
#[must_use]
pub fn headers_of(payload: &Map<String, Value>, attempt: u32) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let properties = payload.get("properties").and_then(Value::as_object);
    // What says who signed what, and when, is the channel's.
    let custom = properties.into_iter().flatten();
    let custom = custom.filter(|(name, _)| !name.to_ascii_lowercase().starts_with("webhook-"));
    if let Some(mut broker) = payload.get("broker_properties").cloned() {
        // What it was when the message was handed over; each attempt is a delivery (S003-80).
        if let Some(count) = broker.get_mut("DeliveryCount") {
            *count = count.as_u64().unwrap_or(1).saturating_add(attempt.saturating_sub(1).into()).into();
        }
        broker_properties::insert(&mut headers, &broker, custom);
    }
    headers
}
