//! What somebody sends to make a schedule: read field by field, to name every mistake. Pure.

use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::time::Timestamp;

use super::record::{Definition, missed_from};
use super::timing::{Timing, kept_instant};
use crate::config::schedules::Missed;
use crate::messages::payload::keep_numbers;

const TEXT_CHARS: usize = 256;

/// The definition in a body; `check` judges type and payload.
pub fn definition(
    fields: &Map<String, Value>,
    now: Timestamp,
    check: impl FnOnce(&str, &Map<String, Value>) -> Vec<FieldError>,
) -> Result<Definition, Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.len() <= TEXT_CHARS => Some(text.clone()),
        Some(Value::String(_)) => {
            errors.push(FieldError::new(name, format!("must be a string of at most {TEXT_CHARS} bytes")));
            None
        }
        Some(_) => {
            errors.push(FieldError::new(name, "must be a string"));
            None
        }
    };
    let (cron, every, at) = (text("cron"), text("every"), text("at").map(kept_instant));
    let timezone = text("timezone").unwrap_or_else(|| "UTC".to_owned());
    let message_type = text("message_type");
    let missed = text("missed");
    let missed = missed.map_or(Some(Missed::default()), |name| missed_from(&name));
    if missed.is_none() {
        errors.push(FieldError::new("missed", "must be skip, once or all"));
    }
    let enabled = match fields.get("enabled") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(enabled)) => *enabled,
        Some(_) => {
            errors.push(FieldError::new("enabled", "must be true or false"));
            true
        }
    };
    let mut payload = match fields.get("payload") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(payload)) => payload.clone(),
        Some(_) => {
            errors.push(FieldError::new("payload", "must be an object"));
            Map::new()
        }
    };
    match &message_type {
        Some(message_type) => errors.extend(check(message_type, &payload)),
        // What is there and no text is named already.
        None if fields.get("message_type").is_none_or(Value::is_null) => {
            errors.push(FieldError::new("message_type", "is missing"));
        }
        None => {}
    }
    keep_numbers(&mut payload);
    let (message_type, missed) = (message_type.unwrap_or_default(), missed.unwrap_or_default());
    let definition = Definition { cron, timezone, every, at, message_type, payload, enabled, missed };
    let is_said = !errors.iter().any(|error| ["cron", "every", "at"].contains(&error.field.as_str()));
    match Timing::read(definition.said(), now) {
        Ok(timing) if definition.cron.is_some() && timing.next_after(now).is_none() => {
            errors.push(FieldError::new("cron", "never comes"));
        }
        Ok(_) => {}
        // One that is there and no text is named already, and not missing.
        Err(more) => errors.extend(more.into_iter().filter(|error| is_said || !error.field.is_empty())),
    }
    if errors.is_empty() { Ok(definition) } else { Err(errors) }
}

/// A schedule's name: it stands in a path.
pub fn check_name(name: &str) -> Result<(), FieldError> {
    let good = tidings_core::envelope::check_name(name, 128).is_ok() && !name.contains(['/', '\\', '?', '#', '%']);
    if good { Ok(()) } else { Err(FieldError::new("name", "must be 1 to 128 characters without / \\ ? # %")) }
}

/// The same for one that is written: some addresses lead elsewhere, to a page of the dashboard or to what every client takes
/// for a folder.
pub fn check_new_name(name: &str) -> Result<(), FieldError> {
    check_name(name)?;
    let reserved = ["new", ".", ".."].contains(&name);
    if reserved { Err(FieldError::new("name", format!("must not be `{name}`"))) } else { Ok(()) }
}
