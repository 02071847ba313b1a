//! The four events as messages on the bus: how an accepted event becomes one, and how one becomes an envelope again.
//!
//! A body is the envelope, or the payload alone, as small senders do it; then the message's own properties say the rest.

use serde_json::{Map, Value, json};
use tidings_core::envelope::{self, Defaults, Envelope, FieldError};
use tidings_core::time::Timestamp;

use super::event::{self, Kind};
use crate::bus::Message;

/// The message that carries an event to those who handle it.
#[must_use]
pub fn of(kind: Kind, envelope: &Envelope) -> Message {
    let properties =
        [("eventType", kind.routing_key().unwrap_or(kind.event_type())), ("eventVersion", &envelope.event_version)];
    Message {
        id: envelope.event_id.clone(),
        body: envelope.to_json().into(),
        content_type: Some("application/json".to_owned()),
        correlation_id: Some(envelope.correlation_id.clone()),
        subject: Some(kind.routing_key().unwrap_or(kind.event_type()).to_owned()),
        properties: properties.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect(),
        ..Message::default()
    }
}

/// Everything that is wrong with a message that somebody sends to one of the four's queues or topics. Others, and those
/// of another version, have nothing to be wrong.
#[must_use]
pub fn check(entity: &str, message: &Message, now: Timestamp) -> Vec<FieldError> {
    let Some(kind) = kind_of(entity, message) else { return Vec::new() };
    match read(kind, message, now) {
        Ok(envelope) => event::check(&envelope),
        Err(errors) => errors,
    }
}

/// Which of the four a message is: by its queue, or by what it says of itself on a topic.
fn kind_of(entity: &str, message: &Message) -> Option<Kind> {
    let kind = Kind::ALL.into_iter().find(|kind| kind.entity() == entity)?;
    if kind.routing_key().is_none() {
        return Some(kind);
    }
    let property = message.properties.get("eventType").and_then(Value::as_str);
    let body = serde_json::from_slice::<Map<String, Value>>(&message.body).unwrap_or_default();
    let said = [message.subject.as_deref(), property, body.get("eventType").and_then(Value::as_str)];
    said.into_iter().flatten().any(|name| Kind::of_type(name) == Some(kind)).then_some(kind)
}

/// The envelope of a message of that kind.
pub fn read(kind: Kind, message: &Message, now: Timestamp) -> Result<Envelope, Vec<FieldError>> {
    let wrong = |why: &str| vec![FieldError::new("body", why)];
    let text = std::str::from_utf8(&message.body).map_err(|_| wrong("is not UTF-8"))?;
    let fields: Map<String, Value> =
        tidings_core::json::parse(text).map_err(|bad| wrong(&format!("is no JSON object: {}", bad.0)))?;
    let event_id = || message.id.clone();
    let correlation_id = message.correlation_id.as_deref().unwrap_or(&message.id);
    let defaults = Defaults { now, correlation_id, event_id: &event_id };
    let is_envelope = fields.contains_key("eventType") || fields.contains_key("data");
    let envelope = if is_envelope && fields.contains_key("eventType") {
        envelope::read(text, &defaults)?
    } else {
        let version = message.properties.get("eventVersion").and_then(Value::as_str).unwrap_or("1.0");
        let data = fields.get("data").filter(|data| data.is_object()).cloned().unwrap_or(Value::Object(fields));
        let whole = json!({ "eventType": kind.event_type(), "eventVersion": version, "data": data });
        envelope::read(&whole.to_string(), &defaults)?
    };
    if Kind::of_type(&envelope.event_type) != Some(kind) {
        let why = format!("must be {}, which is what is handled here", kind.event_type());
        return Err(vec![FieldError::new("eventType", why)]);
    }
    Ok(envelope)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "33567ee8-f182-4f8a-b03e-2f1515915471";

    fn message(body: &str) -> Message {
        Message { id: "m-1".to_owned(), body: body.to_owned().into(), ..Message::default() }
    }

    fn wrong(entity: &str, message: &Message) -> Vec<String> {
        check(entity, message, Timestamp::UNIX_EPOCH).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn an_envelope_and_a_bare_payload_are_the_same() {
        let data = json!({ "transferRequestId": ID });
        for body in
            [data.clone(), json!({ "data": data }), json!({ "eventType": "OwnershipTransferExpired", "data": data })]
        {
            let envelope = read(Kind::TransferExpired, &message(&body.to_string()), Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(event::text_of(&envelope.data, "transferRequestId").as_deref(), Some(ID));
            assert_eq!((envelope.event_id.as_str(), envelope.correlation_id.as_str()), ("m-1", "m-1"));
            assert_eq!(wrong("transfer-expiration-queue", &message(&body.to_string())), [""; 0]);
        }
    }

    // S003-71: at publish, not in the consumer.
    #[test]
    fn what_is_wrong_is_wrong_on_the_bus_too() {
        assert_eq!(wrong("transfer-expiration-queue", &message("{}")), ["data.transferRequestId"]);
        assert_eq!(wrong("transfer-expiration-queue", &message("no JSON")), ["body"]);
        assert_eq!(wrong("transfer-expiration-queue", &message("[]")), ["body"]);
        let other = json!({ "eventType": "CriticalActionOccurred", "data": {} }).to_string();
        assert_eq!(wrong("transfer-expiration-queue", &message(&other)), ["eventType"]);
        assert_eq!(wrong("some-queue", &message("no JSON")), [""; 0]);
        assert_eq!(wrong("domain-events-topic", &message("no JSON")), [""; 0], "a topic has other messages, too");
        let named = Message { subject: Some("servicerequest.status.changed".to_owned()), ..message("{}") };
        assert_eq!(wrong("domain-events-topic", &named), ["data.serviceRequestId", "data.userId", "data.newStatus"]);
        assert_eq!(wrong("system-events-topic", &message(&other)).len(), 3);
        let later = json!({ "eventType": "OwnershipTransferExpired", "eventVersion": "2.0" }).to_string();
        assert_eq!(wrong("transfer-expiration-queue", &message(&later)), [""; 0]);
    }
}
