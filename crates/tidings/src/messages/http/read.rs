//! Request bodies, read field by field to name every mistake.

use serde_json::{Map, Value};
use tidings_core::envelope::{FieldError, check_name};
use tidings_core::json;
use tidings_core::limits::CORRELATION_CHARS;

use crate::config::values;
use crate::http::{JsonText, Problem};
use crate::messages::Request;

/// Of a key by which messages can be cancelled.
pub const KEY_CHARS: usize = 128;

/// A message to make. Its payload is taken out of the fields.
pub fn request(fields: &mut Map<String, Value>) -> Result<Request, Vec<FieldError>> {
    let mut errors = Vec::new();
    let message_type = match fields.get("message_type") {
        Some(Value::String(name)) => match check_name(name, 128) {
            Ok(()) => name.clone(),
            Err(why) => refuse(&mut errors, "message_type", why),
        },
        Some(_) => refuse(&mut errors, "message_type", "must be a string"),
        None => refuse(&mut errors, "message_type", "is required"),
    };
    match fields.get("payload") {
        Some(Value::Object(_)) => {}
        Some(_) => refuse(&mut errors, "payload", "must be an object"),
        None => refuse(&mut errors, "payload", "is required"),
    }
    let stage = match fields.get("stage") {
        None | Some(Value::Null) => None,
        Some(Value::String(stage)) if is_stage(stage) => Some(stage.clone()),
        Some(_) => refuse(&mut errors, "stage", "must be dev, stage or prod"),
    };
    let deliver_at = match fields.get("deliver_at") {
        None | Some(Value::Null) => None,
        Some(Value::String(at)) => match values::instant(at) {
            Ok(at) => Some(at),
            Err(why) => refuse(&mut errors, "deliver_at", why),
        },
        Some(_) => refuse(&mut errors, "deliver_at", "must be a string like \"2026-01-31T12:00:00Z\""),
    };
    if errors.is_empty() {
        let payload = match fields.get_mut("payload") {
            Some(Value::Object(payload)) => std::mem::take(payload),
            _ => Map::new(),
        };
        Ok(Request { message_type, payload, stage, deliver_at, cancel_key: None })
    } else {
        Err(errors)
    }
}

/// The key by which a message may be cancelled (SX-16).
pub fn cancel_key(fields: &Map<String, Value>) -> Result<Option<String>, FieldError> {
    match fields.get("key") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(key)) => match check_name(key, KEY_CHARS) {
            Ok(()) => Ok(Some(key.clone())),
            Err(why) => Err(FieldError::new("key", why)),
        },
        Some(_) => Err(FieldError::new("key", "must be a string")),
    }
}

/// The correlation id that a body gives, under either of its names (SX-03).
pub fn correlation_id(fields: &Map<String, Value>) -> Result<Option<&str>, FieldError> {
    for name in ["correlation_id", "correlationId"] {
        return match fields.get(name) {
            None | Some(Value::Null) => continue,
            Some(Value::String(id)) => match check_name(id, CORRELATION_CHARS) {
                Ok(()) => Ok(Some(id)),
                Err(why) => Err(FieldError::new(name, why)),
            },
            Some(_) => Err(FieldError::new(name, "must be a string")),
        };
    }
    Ok(None)
}

/// S002-05
pub fn is_stage(text: &str) -> bool {
    matches!(text, "dev" | "stage" | "prod")
}

/// The entries of a batch, from 1 to `most`: a list, or an object that holds it under `name`. With them comes what stands
/// before the place of one that is named.
pub fn batch(body: &JsonText, name: &'static str, most: usize) -> Result<(&'static str, Vec<Value>), Problem> {
    let (field, list) = match json::parse::<Value>(body.text()?)? {
        Value::Array(list) => ("", Some(list)),
        Value::Object(mut fields) => match fields.remove(name) {
            Some(Value::Array(list)) => (name, Some(list)),
            _ => (name, None),
        },
        _ => ("", None),
    };
    match list {
        Some(list) if (1..=most).contains(&list.len()) => Ok((field, list)),
        _ => Err(Problem::invalid_field(field, format!("must be a list of 1 to {most} entries"))),
    }
}

fn refuse<T: Default>(errors: &mut Vec<FieldError>, field: &str, why: impl Into<String>) -> T {
    errors.push(FieldError::new(field, why));
    T::default()
}
