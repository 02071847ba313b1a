//! Queues and topics of the bus as a channel: for rules' messages that could not go there in their event's own
//! transaction, because there was no such entity then or because the event had too many followers.

use std::sync::Arc;

use serde_json::Value;

use super::Outcome;
use crate::bus::{Bus, BusError, Message as BusMessage};
use crate::messages::Message;

pub struct Sender(Arc<Bus>);

impl Sender {
    #[must_use]
    pub fn new(bus: Arc<Bus>) -> Self {
        Self(bus)
    }

    /// Sends the message's payload; its id is the message's own, by which a second copy is known.
    pub async fn send(&self, message: &Message) -> Outcome {
        let entity = message.target.get("entity").and_then(Value::as_str).unwrap_or_default();
        let event_type = message.payload.get("event_type").and_then(Value::as_str).unwrap_or(&message.message_type);
        let texts = [
            ("eventType", Some(event_type)),
            ("eventId", message.event_id.as_deref()),
            ("rule", message.rule.as_deref()),
        ];
        let properties = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::from(text?))));
        let sent = BusMessage {
            correlation_id: Some(message.correlation_id.clone()),
            subject: Some(event_type.to_owned()),
            properties: properties.collect(),
            ..BusMessage::json(message.message_id.clone(), &Value::Object(message.payload.clone()))
        };
        match self.0.send(entity, vec![sent]).await {
            Ok(sent) => {
                let places: Vec<String> = sent.iter().map(|sent| format!("{}#{}", sent.path, sent.sequence)).collect();
                Outcome::Delivered { id: places.first().cloned(), detail: format!("sent to {}", places.join(", ")) }
            }
            Err(BusError::Store(error)) => Outcome::retry(error.to_string()),
            Err(error) => Outcome::reject(error.to_string()),
        }
    }
}
