//! From a run to its message: the one place where schedules meet messages.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tidings_core::envelope::FieldError;
use tidings_core::time;
use tidings_store::{Error, Table, Write};
use uuid::Uuid;

use super::record::Definition;
use crate::config::Config;
use crate::messages::{Message, NewMessage, record};

const DAY_SECONDS: i64 = 86_400;
/// The root of the ids of scheduled messages.
const NAMESPACE: Uuid = Uuid::from_u128(0x7d1b_5a0e_3c52_4f0c_9e0a_5c9d_1f6b_2e47);

/// Makes messages.
pub struct Composer {
    table: Table,
    stage: String,
    topic: String,
    pub keep_seconds: i64,
}

impl Composer {
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let stage = config.stage.as_str().to_owned();
        let days = i64::try_from(config.retention.messages_days).unwrap_or(i64::MAX);
        Self {
            table: record::table(&stage),
            stage,
            topic: config.ntfy.topic.clone(),
            keep_seconds: days.saturating_mul(DAY_SECONDS),
        }
    }

    /// Every reason why the payload does not fit the type (S002-60).
    #[must_use]
    pub fn check(&self, message_type: &str, payload: &Map<String, Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Err(why) = tidings_core::envelope::check_name(message_type, tidings_core::limits::NAME_CHARS) {
            errors.push(FieldError::new("message_type", why));
        }
        if payload.get("text").is_some_and(|text| !text.is_string()) {
            errors.push(FieldError::new("payload.text", "must be a string"));
        }
        errors
    }

    /// The message of one run. Its id follows from the schedule's name and the time of the run, so that whoever is second
    /// finds it there.
    pub fn compose(
        &self,
        name: &str,
        definition: &Definition,
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Message, Vec<FieldError>> {
        let errors = self.check(&definition.message_type, &definition.payload);
        if !errors.is_empty() {
            return Err(errors);
        }
        let message_id = message_id(name, at);
        let topic = definition.payload.get("topic").and_then(Value::as_str).unwrap_or(&self.topic);
        let new = NewMessage {
            message_id,
            created_by: "scheduler".to_owned(),
            stage: &self.stage,
            message_type: &definition.message_type,
            payload: definition.payload.clone(),
            correlation_id: &message_id.to_string(),
            channel: "ntfy",
            target: json!({ "topic": topic }).as_object().cloned().unwrap_or_default(),
            secret: None,
            event_id: None,
            rule: None,
            deliver_at: None,
            keep_seconds: self.keep_seconds,
        };
        Ok(Message::new(new, now))
    }

    /// The writes that make the message; the first is the message itself, which must not be there yet.
    pub fn creation(&self, message: &Message) -> Result<Vec<Write>, Error> {
        Ok(vec![Write::insert(&self.table, message.to_item()?)])
    }
}

/// The id of the message of a run.
#[must_use]
pub fn message_id(name: &str, at: Timestamp) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{name}\n{}", time::iso_millis(at)).as_bytes())
}
