//! The four events as messages on the bus: how an accepted event becomes one, and how one becomes an envelope again.
//!
//! A body is the envelope, or the payload alone, as small senders do it; then the message's own properties say the rest.

use serde_json::{Map, Value, json};
use tidings_core::envelope::{self, Defaults, Envelope, FieldError};
use tidings_core::filter::same_name;
use tidings_core::json::{self, Fields};
use tidings_core::limits::SOURCE_CHARS;
use tidings_core::time::Timestamp;

use super::event::{self, Kind};
use crate::bus::Message;
use crate::ingest;

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

/// Everything that is wrong with a message that somebody sends to one of the four's queues or topics; if nothing is, it
/// says from now on what it is, as one of our own does. `sources`: who may send; none: anybody. Others have nothing to be wrong, and those of another version
/// only what their envelope has.
#[must_use]
pub fn admit(entity: &str, message: &mut Message, sources: &[String], now: Timestamp) -> Vec<FieldError> {
    let Some((kind, said)) = kind_of(entity, message) else { return Vec::new() };
    // As at the other doors: before any parser goes into it, and again as the envelope that it is part of.
    let shallow = std::str::from_utf8(&message.body).map_or(Ok(()), json::check_depth);
    if let Err(deep) = shallow {
        return vec![FieldError::new("body", deep.0)];
    }
    let read = read(kind, message, now).and_then(|envelope| envelope.check_depth().map(|()| envelope));
    let envelope = match read {
        Ok(envelope) => envelope,
        Err(errors) => return errors,
    };
    let mut errors = event::check(&envelope);
    errors.extend(ingest::foreign(envelope.source.as_deref(), sources));
    errors.extend(contradiction(message, &envelope));
    if said == Said::InBodyAlone && property(message, TYPE).is_some() {
        let why = format!("must be {}, as in the body, or left out", kind.event_type());
        errors.push(FieldError::new("properties.eventType", why));
    }
    if errors.is_empty() && kind.routing_key().is_some() {
        label(kind, message, &envelope);
    }
    errors
}

const TYPE: &str = "eventType";
const VERSION: &str = "eventVersion";
const SOURCE: &str = "source";

/// Where a message says what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// By its queue, subject or properties, which the subscriptions' rules see.
    Outside,
    InBodyAlone,
}

/// Which of the four a message is: by its queue, or by what it says of itself on a topic.
fn kind_of(entity: &str, message: &Message) -> Option<(Kind, Said)> {
    let kind = Kind::ALL.into_iter().find(|kind| kind.entity() == entity)?;
    let is_named = |name: &str| Kind::of_type(name) == Some(kind);
    let outside = [message.subject.as_deref(), property(message, TYPE).and_then(Value::as_str)];
    if kind.routing_key().is_none() || outside.into_iter().flatten().any(is_named) {
        return Some((kind, Said::Outside));
    }
    // However deep the rest of it is.
    let body = std::str::from_utf8(&message.body).ok().and_then(|text| json::parse::<Fields<'_>>(text).ok())?;
    let (_, said) = body.0.iter().rfind(|(name, _)| name == TYPE)?;
    let said: String = serde_json::from_str(said.get()).ok()?;
    is_named(&said).then_some((kind, Said::InBodyAlone))
}

/// A property by its name. Over HTTP it is a header, and has lost its capitals (S003-64).
fn property<'a>(message: &'a Message, name: &str) -> Option<&'a Value> {
    let named = || message.properties.iter().find(|(known, _)| same_name(known, name)).map(|(_, value)| value);
    message.properties.get(name).or_else(named)
}

/// What the properties say of the version, as a text where it is a number.
fn said_version(message: &Message) -> Option<Value> {
    property(message, VERSION).map(|version| match version {
        Value::Number(number) => number.to_string().into(),
        other => other.clone(),
    })
}

/// Rules go by the properties and handlers by the envelope: two different versions would lead them apart.
fn contradiction(message: &Message, envelope: &Envelope) -> Option<FieldError> {
    let said = said_version(message)?;
    let is_same = said.as_str().is_some_and(|said| event::major(said) == event::major(&envelope.event_version));
    let why = format!("is {said} in the message's properties, and {:?} in its body", envelope.event_version);
    (!is_same).then(|| FieldError::new(VERSION, why))
}

/// Adds what a sender need not say; what he says keeps its name and its words.
fn label(kind: Kind, message: &mut Message, envelope: &Envelope) {
    let version = said_version(message).unwrap_or_else(|| envelope.event_version.as_str().into());
    let known = message.properties.keys().find(|known| same_name(known, VERSION)).cloned();
    message.properties.insert(known.unwrap_or_else(|| VERSION.to_owned()), version);
    if property(message, TYPE).is_none() {
        message.properties.insert(TYPE.to_owned(), json!(kind.routing_key()));
    }
}

/// The envelope of a message of that kind.
pub fn read(kind: Kind, message: &Message, now: Timestamp) -> Result<Envelope, Vec<FieldError>> {
    let wrong = |why: &str| vec![FieldError::new("body", why)];
    let text = std::str::from_utf8(&message.body).map_err(|_| wrong("is not UTF-8"))?;
    let fields: Map<String, Value> =
        json::parse(text).map_err(|bad| wrong(&format!("is no JSON object: {}", bad.0)))?;
    let event_id = || message.id.clone();
    let correlation_id = message.correlation_id.as_deref().unwrap_or(&message.id);
    let defaults = Defaults { now, correlation_id, event_id: &event_id };
    let envelope = match completed(kind, message, &fields) {
        Some(whole) => envelope::read(&Value::Object(whole).to_string(), &defaults)?,
        None => envelope::read(text, &defaults)?,
    };
    if Kind::of_type(&envelope.event_type) != Some(kind) {
        let why = format!("must be {}, which is what is handled here", kind.event_type());
        return Err(vec![FieldError::new(TYPE, why)]);
    }
    Ok(envelope)
}

/// The envelope that a body is part of, with what its message says; `None` if nothing is missing.
fn completed(kind: Kind, message: &Message, fields: &Map<String, Value>) -> Option<Map<String, Value>> {
    let has = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    let is_envelope = has(TYPE) || fields.get("data").is_some_and(Value::is_object);
    let version = said_version(message).filter(|_| !is_envelope || !has(VERSION));
    let is_source = |said: &&Value| said.as_str().is_some_and(|said| envelope::check_name(said, SOURCE_CHARS).is_ok());
    let source = property(message, SOURCE).filter(|_| !is_envelope || !has(SOURCE)).filter(is_source);
    if has(TYPE) && version.is_none() && source.is_none() {
        return None;
    }
    let mut whole = if is_envelope { fields.clone() } else { Map::from_iter([("data".to_owned(), json!(fields))]) };
    if !has(TYPE) {
        whole.insert(TYPE.to_owned(), json!(kind.event_type()));
    }
    if let Some(version) = version {
        whole.insert(VERSION.to_owned(), version);
    }
    if let Some(source) = source {
        whole.insert(SOURCE.to_owned(), source.clone());
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "33567ee8-f182-4f8a-b03e-2f1515915471";

    fn message(body: &str) -> Message {
        Message { id: "m-1".to_owned(), body: body.to_owned().into(), ..Message::default() }
    }

    fn wrong(entity: &str, message: &Message) -> Vec<String> {
        let mut message = message.clone();
        admit(entity, &mut message, &[], Timestamp::UNIX_EPOCH).into_iter().map(|error| error.field).collect()
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

    // S003-64: as a property, by whatever door and in whatever case; the envelope's word comes first.
    #[test]
    fn the_version_may_be_a_property() {
        let of = |name: &str, value: Value, body: &Value| {
            let properties = [(name.to_owned(), value)].into_iter().collect();
            let message = Message { properties, ..message(&body.to_string()) };
            read(Kind::TransferExpired, &message, Timestamp::UNIX_EPOCH).map(|envelope| envelope.event_version)
        };
        let bare = json!({ "transferRequestId": ID });
        for (name, value) in
            [("eventVersion", json!("2.0")), ("eventversion", json!("2.0")), ("EVENTVERSION", json!(2.0))]
        {
            for body in [
                bare.clone(),
                json!({ "data": bare }),
                json!({ "eventType": "OwnershipTransferExpired", "data": bare }),
                json!({ "eventType": "OwnershipTransferExpired", "eventVersion": null, "data": bare }),
            ] {
                assert_eq!(of(name, value.clone(), &body).unwrap(), "2.0", "{name} {body}");
            }
        }
        assert_eq!(of("eventVersion", json!(2), &bare).unwrap(), "2");
        let own = json!({ "eventVersion": "1.3", "data": bare });
        assert_eq!(of("eventVersion", json!("1"), &own).unwrap(), "1.3");
        for bad in [json!(""), json!(true), json!("two"), json!(-1)] {
            assert_eq!(of("eventVersion", bad, &bare).unwrap_err()[0].field, "eventVersion");
        }
    }

    #[test]
    fn what_is_admitted_says_what_it_is_and_keeps_what_it_said() {
        let data = json!({ "serviceRequestId": ID, "userId": ID, "newStatus": "x" });
        let whole =
            json!({ "eventType": "ServiceRequestStatusChanged", "eventVersion": "1.4", "data": data }).to_string();
        let admitted = |mut message: Message| {
            assert_eq!(admit("domain-events-topic", &mut message, &[], Timestamp::UNIX_EPOCH), []);
            message.properties.into_iter().collect::<Map<_, _>>()
        };
        let key = "servicerequest.status.changed";
        assert_eq!(json!(admitted(message(&whole))), json!({ "eventType": key, "eventVersion": "1.4" }));
        let named = Message { subject: Some("ServiceRequestStatusChanged".to_owned()), ..message(&data.to_string()) };
        assert_eq!(json!(admitted(named)), json!({ "eventType": key, "eventVersion": "1.0" }));
        let own =
            [("eventtype".to_owned(), json!("ServiceRequestStatusChanged")), ("eventversion".to_owned(), json!(1))];
        let own = Message { properties: own.into_iter().collect(), ..message(&data.to_string()) };
        assert_eq!(json!(admitted(own)), json!({ "eventtype": "ServiceRequestStatusChanged", "eventversion": "1" }));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let whole =
            json!({ "eventType": "ServiceRequestStatusChanged", "eventVersion": "2.0", "data": {} }).to_string();
        let with = |name: &str, value: &str| {
            let properties = [(name.to_owned(), json!(value))].into_iter().collect();
            wrong("domain-events-topic", &Message { properties, ..message(&whole) })
        };
        assert_eq!(with("eventversion", "2.1"), [""; 0]);
        assert_eq!(with("eventversion", "1.0"), ["eventVersion"]);
        assert_eq!(with("eventtype", "something.else"), ["properties.eventType"]);
    }
}
