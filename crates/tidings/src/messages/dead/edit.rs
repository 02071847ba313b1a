//! What may be changed of a dead letter before it is sent again: its payload, and where it goes.

use serde_json::{Map, Value, json};
use tidings_core::envelope::{FieldError, check_name};

use crate::channel::webhook::signature;
use crate::channel::{audit_log, queue, stream};
use crate::config::{Secret, values};
use crate::mask::HIDDEN;
use crate::messages::record::{COPIES, Message};
use crate::messages::types::Types;

const NAME_CHARS: usize = 256;

/// The changes; none of them: it is sent as it was.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Edit {
    /// Takes the old one's place.
    pub payload: Option<Map<String, Value>>,
    /// In the channel's own terms; a webhook's may hold a `secret`.
    pub target: Option<Map<String, Value>>,
    /// Of a message of the bus: what it says instead.
    pub body: Option<String>,
}

impl Edit {
    /// Reads the fields `payload` and `target` of a body.
    ///
    /// # Errors
    ///
    /// Each of them that is no object.
    pub fn read(fields: &Map<String, Value>) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut object = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::Object(object)) => Some(object.clone()),
            Some(_) => {
                errors.push(FieldError::new(name, "must be an object"));
                None
            }
        };
        let (payload, target) = (object("payload"), object("target"));
        let body = fields.get("body").filter(|body| !body.is_null()).map(|body| match body {
            Value::String(text) => text.clone(),
            json => json.to_string(),
        });
        if payload.is_some() && body.is_some() {
            errors.push(FieldError::new("body", "and `payload` cannot both be given"));
        }
        let edit = Self { payload, target, body };
        if errors.is_empty() { Ok(edit) } else { Err(errors) }
    }

    /// Makes the changes.
    ///
    /// # Errors
    ///
    /// Every field that does not fit the message's type or channel.
    pub fn apply(&self, message: &mut Message, types: &Types) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        if self.body.is_some() {
            errors.push(FieldError::new("body", "is for messages of the bus; a message has a `payload`"));
        }
        if let Some(payload) = &self.payload {
            match message.channel.as_str() {
                stream::CHANNEL if !payload.get(stream::RECORD).is_some_and(Value::is_object) => {
                    errors.push(FieldError::new("payload.record", "must be a record of a stream"));
                }
                audit_log::CHANNEL if !payload.get(audit_log::ENTRY).is_some_and(Value::is_object) => {
                    errors.push(FieldError::new("payload.entry", "must be an entry of an audit log"));
                }
                // As large as what came in: whether an item holds it is seen when it is written.
                stream::CHANNEL | audit_log::CHANNEL => {}
                _ => errors.extend(types.check(&message.message_type, payload)),
            }
            message.payload.clone_from(payload);
        }
        if let Some(target) = &self.target {
            match read_target(&message.channel, target) {
                Ok((target, secret)) => {
                    message.target = target;
                    if secret.is_some() {
                        message.lost_secret = None;
                    }
                    message.secret = secret.or_else(|| message.secret.take());
                }
                Err(more) => errors.extend(more),
            }
        }
        match (message.channel.as_str(), &self.payload) {
            (queue::CHANNEL, Some(_)) => queue::say_payload(&mut message.target),
            // A topic in the payload is where a message goes, unless its target is named beside it.
            ("ntfy", Some(payload)) if self.target.is_none() => {
                if let Some(topic) = payload.get("topic") {
                    message.target.insert("topic".to_owned(), topic.clone());
                }
            }
            _ => {}
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.payload.is_none() && self.target.is_none() && self.body.is_none()
    }

    /// What a message of the bus says instead: a text, or a payload, which becomes one.
    #[must_use]
    pub fn body(&self) -> Option<bytes::Bytes> {
        let payload = || self.payload.as_ref().map(|payload| Value::Object(payload.clone()).to_string());
        self.body.clone().or_else(payload).map(bytes::Bytes::from)
    }
}

type Target = (Map<String, Value>, Option<Secret>);

/// A target in the terms of its channel.
pub fn read_target(channel: &str, fields: &Map<String, Value>) -> Result<Target, Vec<FieldError>> {
    let refuse = |field: &str, why: &str| Err(vec![FieldError::new(format!("target.{field}"), why)]);
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let name = |field: &str| match text(field) {
        Some(name) if check_name(name, NAME_CHARS).is_ok() => Ok(json!({ (field): name })),
        _ => Err(vec![FieldError::new(format!("target.{field}"), "must be a name")]),
    };
    let mut secret = None;
    let target = match channel {
        "email" => {
            let list = fields.get("to").and_then(Value::as_array).cloned().unwrap_or_default();
            let good =
                (1..=COPIES).contains(&list.len()) && list.iter().all(|to| to.as_str().is_some_and(values::is_mailbox));
            if !good {
                return refuse("to", &format!("must be a list of 1 to {COPIES} e-mail addresses"));
            }
            json!({ "to": list })
        }
        "ntfy" => match text("topic").map(|topic| (topic, values::topic(topic))) {
            Some((topic, Ok(()))) => json!({ "topic": topic }),
            Some((_, Err(why))) => return refuse("topic", &why),
            None => return refuse("topic", "must be a topic"),
        },
        "webhook" => {
            let mut errors = Vec::new();
            // What is hidden stays: a target without a secret keeps the one that the letter has.
            match signature::given(fields.get("secret").filter(|secret| *secret != HIDDEN), || None) {
                Ok(given) => secret = given,
                Err(why) => errors.push(FieldError::new("target.secret", why)),
            }
            let url = match text("url").map(|url| (url, values::callable(url))) {
                Some((url, Ok(()))) => json!({ "url": url }),
                Some((_, Err(why))) => {
                    errors.push(FieldError::new("target.url", why));
                    Value::Null
                }
                None => {
                    errors.push(FieldError::new("target.url", "must be a URL"));
                    Value::Null
                }
            };
            if !errors.is_empty() {
                return Err(errors);
            }
            url
        }
        "queue" => name("entity")?,
        "ticket" => name("caller")?,
        _ => return refuse("", "cannot be changed on this channel"),
    };
    Ok((target.as_object().cloned().unwrap_or_default(), secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(channel: &str, target: Value) -> Vec<String> {
        let read = read_target(channel, target.as_object().unwrap());
        read.err().unwrap_or_default().into_iter().map(|error| error.field).collect()
    }

    const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz";

    #[test]
    fn every_field_of_a_target_that_is_wrong_is_named() {
        assert_eq!(fields("webhook", json!({ "url": "ftp://a", "secret": "x" })), ["target.secret", "target.url"]);
    }

    #[test]
    fn a_target_fits_its_channel() {
        for (channel, target) in [
            ("email", json!({ "to": ["a@b.example"] })),
            ("email", json!({ "to": vec!["a@b.example"; 100] })),
            ("ntfy", json!({ "topic": "ops" })),
            ("webhook", json!({ "url": "https://a.example/x", "secret": SECRET })),
            ("webhook", json!({ "url": "https://a.example/x", "secret": "***" })),
            ("webhook", json!({ "url": "https://a.example/x", "secret": null })),
            ("queue", json!({ "entity": "jobs" })),
            ("ticket", json!({ "caller": "me" })),
        ] {
            assert!(fields(channel, target).is_empty(), "{channel}");
        }
        for (channel, target, field) in [
            ("email", json!({ "to": [] }), "target.to"),
            ("email", json!({ "to": vec!["a@b.example"; 101] }), "target.to"),
            ("email", json!({ "to": ["nobody"] }), "target.to"),
            ("ntfy", json!({ "topic": "a/b" }), "target.topic"),
            ("ntfy", json!({}), "target.topic"),
            ("webhook", json!({ "url": "ftp://a" }), "target.url"),
            ("webhook", json!({ "url": "https://a", "secret": 1 }), "target.secret"),
            ("webhook", json!({ "url": "https://a", "secret": "" }), "target.secret"),
            ("webhook", json!({ "url": "https://a", "secret": "whsec_x" }), "target.secret"),
            ("queue", json!({ "entity": "" }), "target.entity"),
        ] {
            assert_eq!(fields(channel, target), [field], "{channel}");
        }
    }
}
