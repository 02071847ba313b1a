//! One audit event, read by its own fields: as the REST API writes them, as the Log Analytics table does, or under the
//! seed's attribute names. Which capitals a field has does not matter.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::value::RawValue;
use tidings_core::envelope::{FieldError, check_name, read_time};
use tidings_core::json::{self, Fields};
use tidings_core::limits::{CORRELATION_CHARS, NAME_CHARS};
use tidings_core::time::Timestamp;

use super::actions::{Category, PREFIX};
use super::limits::{ATTRIBUTE_CHARS, DETAILS_CHARS};
use crate::config::process_alerts::ProcessAlerts;

/// What stands for "nobody" in the audit log's ids.
const ZERO: &str = "00000000-0000-0000-0000-000000000000";
pub const AREA: &str = "Process";
const UNKNOWN: &str = "unknown";

/// What an event says about a change of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub source_id: Option<String>,
    pub correlation_id: Option<String>,
    pub at: Timestamp,
    pub actor_id: String,
    pub actor_display_name: String,
    pub actor_ip: String,
    pub action: String,
    pub category: Category,
    pub details: String,
    pub process_name: Option<String>,
    pub work_item_type: Option<String>,
    pub field_reference_name: Option<String>,
    pub state_name: Option<String>,
    /// Mail addresses and descriptors under which the actor may be an authorised account.
    pub identities: Vec<String>,
}

/// What an event turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    Change(Box<Change>),
    /// About something else.
    Ignored {
        source_id: Option<String>,
        correlation_id: Option<String>,
    },
    Bad {
        source_id: Option<String>,
        errors: Vec<FieldError>,
    },
}

/// Reads an event from the text of a JSON object. Every field that is wrong is named (S000-40).
#[must_use]
pub fn read(text: &str, mapping: &ProcessAlerts, latest: Timestamp) -> Reading {
    let bad = |errors| Reading::Bad { source_id: None, errors };
    // What came as text within JSON has not been looked at yet.
    if let Err(why) = json::check_depth(text) {
        return bad(vec![why.into()]);
    }
    let fields: Fields<'_> = match json::parse(text) {
        Ok(fields) => fields,
        Err(_) if text.trim_start().starts_with(['[', '"']) || !text.trim_start().starts_with('{') => {
            return bad(vec![FieldError::new("", "must be a JSON object: an Azure DevOps audit event")]);
        }
        Err(why) => return bad(vec![why.into()]),
    };
    let meaningless: Vec<FieldError> = fields
        .0
        .iter()
        .filter_map(|(name, value)| Some(FieldError::new(name.as_ref(), json::check_values(value.get()).err()?.0)))
        .collect();
    let mut reader = Reader::new(fields);
    let source_id = reader.optional(&["id", "eventId"], NAME_CHARS * 2);
    let action = reader.required("actionId", &["actionId", "action", "operationName"], NAME_CHARS);
    let area = reader.optional(&["area"], NAME_CHARS);
    let elsewhere = action.as_deref().is_some_and(|action| !action.starts_with(PREFIX))
        || (action.is_some() && area.as_deref().is_some_and(|area| !area.eq_ignore_ascii_case(AREA)));
    // An empty one is as good as none (S000-18).
    let is_blank = reader.text("correlationId").is_some_and(|id| id.trim().is_empty());
    let correlation_id = if is_blank { None } else { reader.optional(&["correlationId"], CORRELATION_CHARS) };
    if elsewhere {
        return Reading::Ignored { source_id, correlation_id };
    }
    reader.errors.extend(meaningless);
    let at = reader.time(latest);
    let actor_id = reader.actor();
    let actor_display_name = reader.required("actorDisplayName", &["actorDisplayName"], usize::MAX);
    let details = reader.text_required("details");
    reader.check_alert_sent();
    let data = reader.data();
    let found = |names: &[String]| names.iter().find_map(|name| data.get(&name.to_lowercase()).cloned());
    let (Some(action), Some(at), Some(actor_id), Some(name), Some(details)) =
        (action, at, actor_id, actor_display_name, details)
    else {
        return Reading::Bad { source_id, errors: reader.errors };
    };
    if !reader.errors.is_empty() {
        return Reading::Bad { source_id, errors: reader.errors };
    }
    let categories = [reader.text("category"), reader.text("categoryDisplayName")];
    Reading::Change(Box::new(Change {
        source_id,
        correlation_id,
        at,
        category: Category::of(&action, categories.iter().flatten().map(String::as_str)),
        action,
        identities: reader.identities(&actor_id),
        actor_id,
        actor_display_name: cut(&name, ATTRIBUTE_CHARS),
        actor_ip: reader.address(),
        details: cut(&details, DETAILS_CHARS),
        process_name: found(&mapping.process_name_fields),
        work_item_type: found(&mapping.work_item_type_fields),
        field_reference_name: found(&mapping.field_reference_name_fields),
        state_name: found(&mapping.state_name_fields),
    }))
}

struct Reader<'a> {
    /// By their names in lower case; what is null is not there.
    fields: BTreeMap<String, &'a RawValue>,
    errors: Vec<FieldError>,
}

impl<'a> Reader<'a> {
    fn new(fields: Fields<'a>) -> Self {
        let given = fields.0.into_iter().filter(|(_, value)| value.get() != "null");
        Self { fields: given.map(|(name, value)| (name.to_lowercase(), value)).collect(), errors: Vec::new() }
    }

    /// The first of these fields that is there, and its name.
    fn first(&self, names: &[&'static str]) -> Option<(&'static str, &'a RawValue)> {
        names.iter().find_map(|name| Some((*name, *self.fields.get(&name.to_lowercase())?)))
    }

    fn text(&self, name: &'static str) -> Option<String> {
        self.first(&[name]).and_then(|(_, value)| serde_json::from_str(value.get()).ok())
    }

    fn refuse(&mut self, field: &str, message: impl Into<String>) {
        self.errors.push(FieldError::new(field, message));
    }

    fn named(&mut self, field: &str, value: &RawValue, most: usize) -> Option<String> {
        let Ok(text) = serde_json::from_str::<String>(value.get()) else {
            self.refuse(field, "must be a string");
            return None;
        };
        match check_name(&text, most) {
            Ok(()) => Some(text),
            Err(why) => {
                self.refuse(field, why);
                None
            }
        }
    }

    fn optional(&mut self, names: &[&'static str], most: usize) -> Option<String> {
        let (field, value) = self.first(names)?;
        self.named(field, value, most)
    }

    fn required(&mut self, field: &'static str, names: &[&'static str], most: usize) -> Option<String> {
        match self.first(names) {
            Some((field, value)) => self.named(field, value, most),
            None => {
                self.refuse(field, "is required");
                None
            }
        }
    }

    /// Text of several lines.
    fn text_required(&mut self, field: &'static str) -> Option<String> {
        let text = match self.first(&[field]) {
            None => Err("is required"),
            Some((_, value)) => serde_json::from_str::<String>(value.get()).map_err(|_| "must be a string"),
        };
        match text.and_then(|text| if text.trim().is_empty() { Err("must not be empty") } else { Ok(text) }) {
            Ok(text) => Some(text),
            Err(why) => {
                self.refuse(field, why);
                None
            }
        }
    }

    /// When it happened: not before 1970, and not far ahead of us (S000-06, S000-35).
    fn time(&mut self, latest: Timestamp) -> Option<Timestamp> {
        let Some((field, value)) = self.first(&["eventTimestamp", "timestamp", "timeGenerated"]) else {
            self.refuse("timestamp", "is required");
            return None;
        };
        let text = value.get();
        let fraction = !text.starts_with('"') && text.parse::<i64>().is_err();
        let read = if fraction { Err(String::new()) } else { read_time(text) };
        let at = match read {
            Ok(at) if at.as_second() > 0 => at,
            Ok(_) => {
                self.refuse(field, "must be after 1970-01-01T00:00:00Z");
                return None;
            }
            Err(_) => {
                self.refuse(field, "must be a time as in \"2026-01-31T12:00:00Z\", or whole seconds since 1970");
                return None;
            }
        };
        if at > latest {
            self.refuse(field, "lies in the future");
            return None;
        }
        Some(at)
    }

    /// Who did it. A service principal has a zero for a user, and an id of its own.
    fn actor(&mut self) -> Option<String> {
        let service = self.optional(&["actorClientId"], NAME_CHARS).filter(|id| id != ZERO);
        match self.first(&["actorId", "actorDescriptor", "actorUserId"]) {
            Some((field, value)) => {
                let id = self.named(field, value, NAME_CHARS)?;
                Some(if id == ZERO { service.unwrap_or(id) } else { id })
            }
            None if service.is_some() => service,
            None => {
                self.refuse("actorUserId", "is required");
                None
            }
        }
    }

    /// The sender does not decide about it, but must know what it is (S000-39).
    fn check_alert_sent(&mut self) {
        if let Some((field, value)) = self.first(&["alertSent"])
            && !matches!(value.get(), "true" | "false")
        {
            self.refuse(field, "must be true or false");
        }
    }

    /// An address is good to have, but no reason to refuse an event: services have none (S000-09).
    fn address(&self) -> String {
        let text = self.text("ipAddress").or_else(|| self.text("actorIP")).unwrap_or_default();
        let text = text.trim();
        if text.is_empty() {
            return UNKNOWN.to_owned();
        }
        if text.parse::<IpAddr>().is_err() {
            tracing::warn!(address = cut(text, 64), "an audit event's address is neither IPv4 nor IPv6");
        }
        cut(text, 64)
    }

    fn identities(&self, actor_id: &str) -> Vec<String> {
        let names =
            ["actorUPN", "actorMail", "actorEmail", "actorDescriptor", "actorUserId", "actorClientId", "actorCUID"];
        let found = names.into_iter().filter_map(|name| self.text(name));
        let mut identities: Vec<String> = std::iter::once(actor_id.to_owned()).chain(found).collect();
        identities.retain(|identity| !identity.trim().is_empty() && identity != ZERO);
        identities.dedup();
        identities
    }

    /// The texts that an event's `data`, and the event itself, hold; by their names in lower case. `data` may be text
    /// that holds an object.
    fn data(&self) -> BTreeMap<String, String> {
        let mut found = texts(self.fields.iter().map(|(name, value)| (name.as_str(), *value)));
        if let Some((_, data)) = self.first(&["data"]) {
            let inner = serde_json::from_str::<String>(data.get()).ok();
            let text = inner.as_deref().unwrap_or(data.get());
            if json::check_depth(text).is_ok()
                && let Ok(fields) = json::parse::<Fields<'_>>(text)
            {
                found.extend(texts(fields.0.iter().map(|(name, value)| (name.as_ref(), *value))));
            }
        }
        found
    }
}

/// Fields that hold text which is not blank.
fn texts<'f>(fields: impl Iterator<Item = (&'f str, &'f RawValue)>) -> BTreeMap<String, String> {
    let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).ok();
    let given = fields.filter_map(|(name, value)| Some((name.to_lowercase(), text(value)?)));
    given.filter(|(_, text)| !text.trim().is_empty()).map(|(name, text)| (name, cut(&text, ATTRIBUTE_CHARS))).collect()
}

/// At most so many characters; the whole is in the raw event.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
