//! Queues and topics of the bus as a channel: for rules' messages that could not go there in their event's own
//! transaction, because there was no such entity then or because the event had too many followers. What arrives is the
//! same in both cases: the event.

use std::sync::Arc;

use serde_json::{Map, Value};
use tidings_core::envelope::Envelope;
use tidings_store::{Error, Store};

use super::Outcome;
use crate::bus::{self, Bus, BusError, Message as BusMessage};
use crate::events::Events;
use crate::messages::Message;

pub const CHANNEL: &str = "queue";
/// Says that the payload is to be sent, not the event: somebody has changed it.
const BODY: (&str, &str) = ("body", "payload");

/// Makes the payload what is sent to this target.
pub fn say_payload(target: &mut Map<String, Value>) {
    target.insert(BODY.0.to_owned(), BODY.1.into());
}

pub struct Sender {
    bus: Arc<Bus>,
    store: Arc<dyn Store>,
    events: Events,
}

impl Sender {
    #[must_use]
    pub fn new(bus: Arc<Bus>, store: Arc<dyn Store>) -> Self {
        Self { bus, events: Events::new(Arc::clone(&store)), store }
    }

    /// Sends the message's event.
    pub async fn send(&self, message: &Message) -> Outcome {
        let entity = message.target.get("entity").and_then(Value::as_str).unwrap_or_default();
        match self.carry(entity, message).await {
            Ok(places) => {
                Outcome::Delivered { id: places.first().cloned(), detail: format!("sent to {}", places.join(", ")) }
            }
            Err(BusError::Store(error)) => Outcome::retry(error.to_string()),
            Err(error) => Outcome::reject(error.to_string()),
        }
    }

    async fn carry(&self, entity: &str, message: &Message) -> Result<Vec<String>, BusError> {
        let sent = match self.event_of(message).await? {
            Some(event) => bus::of_event(&event, message.rule.as_deref()),
            None => of_payload(message),
        };
        let prepared = self.bus.prepare(entity, sent).await?;
        let places = prepared.sent.iter().map(|sent| match sent.number() {
            Some(number) => format!("{}#{number}", sent.path),
            None => sent.path.clone(),
        });
        let places = places.collect();
        if !prepared.is_empty() {
            let stored = self.store.transact(prepared.writes()).await;
            prepared.resolve(&stored);
            stored?;
        }
        Ok(places)
    }

    /// The event that the message is about, if it is still there and nobody wrote something else instead.
    async fn event_of(&self, message: &Message) -> Result<Option<Envelope>, Error> {
        let edited = message.target.get(BODY.0).and_then(Value::as_str) == Some(BODY.1);
        let Some(event_id) = message.event_id.as_deref().filter(|_| !edited) else { return Ok(None) };
        let stored = self.events.of_correlation(event_id, &message.correlation_id).await?;
        Ok(stored.and_then(|stored| stored.envelope()))
    }
}

/// The payload as a message; its id is the message's own.
fn of_payload(message: &Message) -> BusMessage {
    let event_type = message.payload.get("event_type").and_then(Value::as_str).unwrap_or(&message.message_type);
    let texts =
        [("eventType", Some(event_type)), ("eventId", message.event_id.as_deref()), ("rule", message.rule.as_deref())];
    let properties = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::from(text?))));
    BusMessage {
        correlation_id: Some(message.correlation_id.clone()),
        subject: Some(event_type.to_owned()),
        properties: properties.collect(),
        ..BusMessage::json(message.message_id.clone(), &Value::Object(message.payload.clone()))
    }
}
