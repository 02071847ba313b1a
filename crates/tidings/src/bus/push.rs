//! Push subscriptions: each message becomes a message of the webhook channel, which delivers it with a signature, retries
//! and a dead letter of its own. The one is made in the transaction that ends the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::definition::Push;
use super::line::{Line, LineError};
use super::message::Stored;
use super::settle::{Settlement, Why};
use super::state::Taken;
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

/// What is pumped, and the task that does it.
type Pumps = BTreeMap<String, (Push, Arc<Line>, JoinHandle<()>)>;

impl Bus {
    /// Hands the messages of push subscriptions over until told to stop.
    pub async fn push(self: Arc<Self>, messages: Arc<Messages>, mut stop: watch::Receiver<bool>) {
        let mut pumps = Pumps::new();
        loop {
            self.see_to(&mut pumps, &messages);
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = turned_true(&mut stop) => break,
            }
        }
        for (_, _, task) in pumps.into_values() {
            let _ = task.await;
        }
    }

    fn see_to(&self, pumps: &mut Pumps, messages: &Arc<Messages>) {
        let mut wanted = BTreeMap::new();
        for record in self.records() {
            let line = Path::parse(&record.path).and_then(|path| self.line(&path).ok());
            if let (Some(push), Some(line)) = (record.definition.push, line) {
                wanted.insert(record.path, (push, line));
            }
        }
        pumps.retain(|path, (push, line, task)| {
            let same = wanted.get(path).is_some_and(|(new, now)| new == push && Arc::ptr_eq(now, line));
            if !same {
                task.abort();
            }
            same && !task.is_finished()
        });
        for (path, (push, line)) in wanted {
            pumps.entry(path).or_insert_with(|| {
                let task = tokio::spawn(pump(Arc::clone(&line), push.clone(), Arc::clone(messages)));
                (push, line, task)
            });
        }
    }
}

async fn pump(line: Arc<Line>, push: Push, messages: Arc<Messages>) {
    let stopping = line.shared.stopping.clone();
    while !*stopping.borrow() {
        match line.receive(BATCH, WAIT, Some("push")).await {
            Ok(taken) => {
                for taken in taken {
                    line.hand_over(&taken, &push, &messages).await;
                }
            }
            Err(LineError::Elsewhere) => line.wait_for_ours(LOOK, &mut line.shared.stopping.clone()).await,
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
        let message = self.webhook(&taken.held.message, taken.held.deliveries, push, messages);
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

    fn webhook(&self, stored: &Stored, deliveries: u32, push: &Push, messages: &Messages) -> Message {
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
            "delivery_count": deliveries,
            "subject": message.subject,
            "properties": message.properties,
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
