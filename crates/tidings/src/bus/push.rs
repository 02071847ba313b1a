//! Push subscriptions: each message becomes a message of the webhook channel, which delivers it with a signature, retries
//! and a dead letter of its own. The one is made in the transaction that ends the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use base64::Engine as _;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::definition::Push;
use super::http::broker_properties;
use super::line::{Line, LineError};
use super::settle::{Settlement, Why};
use super::state::{Held, Taken};
use super::{Bus, Path};
use crate::config::Secret;
use crate::messages::{Message, Messages, NewMessage};
use crate::workers::turned_true;

/// The type of the messages it makes.
pub const MESSAGE_TYPE: &str = "bus_push";
/// Messages that are handed over at once.
const BATCH: usize = 32;
const WAIT: Duration = Duration::from_secs(60);
/// How often it is seen to that every push subscription has its pump.
const LOOK: Duration = Duration::from_secs(1);

/// The tasks that pump, by path and generation of the line.
type Pumps = BTreeMap<(String, String), JoinHandle<()>>;

impl Bus {
    /// Hands the messages of push subscriptions over until told to stop.
    pub async fn push(self: Arc<Self>, messages: Arc<Messages>, mut stop: watch::Receiver<bool>) {
        let mut pumps = Pumps::new();
        loop {
            self.see_to(&mut pumps, &messages);
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.pushing.notified() => {}
                () = turned_true(&mut stop) => break,
            }
        }
        for task in pumps.into_values() {
            let _ = task.await;
        }
    }

    /// Pumps end by themselves, between two messages.
    fn see_to(self: &Arc<Self>, pumps: &mut Pumps, messages: &Arc<Messages>) {
        pumps.retain(|_, task| !task.is_finished());
        for record in self.records().into_iter().filter(|record| record.definition.push.is_some()) {
            let Some(path) = Path::parse(&record.path) else { continue };
            let Ok(line) = self.line(&path) else { continue };
            let name = (record.path, line.layout.generation().to_owned());
            pumps.entry(name).or_insert_with(|| tokio::spawn(pump(Arc::clone(self), path, line, Arc::clone(messages))));
        }
    }

    /// Where the messages of a line go now; none: to whoever fetches them.
    fn endpoint(&self, path: &Path, line: &Arc<Line>) -> Option<Push> {
        let same = self.line(path).is_ok_and(|now| Arc::ptr_eq(&now, line));
        self.record(path).filter(|_| same)?.definition.push
    }
}

async fn pump(bus: Arc<Bus>, path: Path, line: Arc<Line>, messages: Arc<Messages>) {
    let stopping = line.shared.stopping.clone();
    while !*stopping.borrow() && bus.endpoint(&path, &line).is_some() {
        match line.receive(BATCH, WAIT, Some("push")).await {
            Ok(taken) => {
                for taken in taken {
                    // As it is at this moment: whoever has changed it may have had a reason.
                    match bus.endpoint(&path, &line) {
                        Some(push) => line.hand_over(&taken, &push, &messages).await,
                        None => line.give_back(&taken),
                    }
                }
            }
            Err(LineError::Elsewhere) => line.wait_for_ours(LOOK, &mut line.shared.stopping.clone()).await,
            Err(LineError::Gone) => return,
            Err(error) => {
                tracing::warn!(line = line.path, %error, "cannot receive for its push endpoint; it will be tried again");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

impl Line {
    /// Makes a webhook message of a message, and ends the latter.
    pub async fn hand_over(self: &Arc<Self>, taken: &Taken, push: &Push, messages: &Messages) {
        let message = self.webhook(&taken.held, push, messages);
        let outcome = match messages.creation(std::slice::from_ref(&message)) {
            Ok(writes) => self.complete_with(taken.token, writes).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match outcome {
            Ok(()) => messages.signals.created([&message]),
            Err(description) => {
                let why = Why { reason: Some("PushFailed".to_owned()), description: Some(description) };
                drop(self.settle_one(taken.token, Settlement::Abandon { delay: Some(LOOK), why }).await);
            }
        }
    }

    fn webhook(&self, held: &Held, push: &Push, messages: &Messages) -> Message {
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
        });
        // The same for the same message: a second copy is known by it.
        let name = format!("push\n{}\n{}", self.layout.generation(), stored.sequence);
        let object = |value: Value| value.as_object().cloned().unwrap_or_else(Map::new);
        let new = NewMessage {
            message_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()),
            created_by: format!("bus:{}", self.path),
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

/// What is posted beside it, as peek-lock answers it: `BrokerProperties`, and the custom properties by their names.
#[must_use]
pub fn headers_of(payload: &Map<String, Value>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let properties = payload.get("properties").and_then(Value::as_object);
    // What says who signed what, and when, is the channel's.
    let custom = properties.into_iter().flatten();
    let custom = custom.filter(|(name, _)| !name.to_ascii_lowercase().starts_with("webhook-"));
    if let Some(broker) = payload.get("broker_properties") {
        broker_properties::insert(&mut headers, broker, custom);
    }
    headers
}
