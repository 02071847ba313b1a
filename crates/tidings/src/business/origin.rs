//! What the business calls have in common: on whose behalf, with which ids, and an event with its records.

use axum::Extension;
use serde_json::{Map, Value};
use tidings_core::envelope::{Envelope, FieldError};
use tidings_core::time::Timestamp;
use tidings_store::{Error, Write};
use uuid::Uuid;

use super::event;
use crate::app::Services;
use crate::http::{CorrelationId, IdempotencySeed, Problem, RequestIds};
use crate::ingest::{Arrival, Companions, Ingest, Receipt};

/// Characters of what people write.
pub const TEXT_CHARS: usize = 10_000;

/// On whose behalf something is done.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The credential.
    pub by: &'a str,
    pub correlation_id: &'a str,
    /// The W3C trace that the caller has beside it.
    pub trace_parent: Option<&'a str>,
}

impl<'a> Origin<'a> {
    /// What a request brings.
    #[must_use]
    pub fn of(by: &'a str, request: &'a CorrelationId) -> Self {
        Self { by, correlation_id: &request.0, trace_parent: request.1.as_deref() }
    }

    /// Without a trace of its own.
    #[must_use]
    pub const fn new(by: &'a str, correlation_id: &'a str) -> Self {
        Self { by, correlation_id, trace_parent: None }
    }

    /// What follows from an event.
    #[must_use]
    pub fn following(by: &'a str, envelope: &'a Envelope) -> Self {
        Self { by, correlation_id: &envelope.correlation_id, trace_parent: envelope.trace_parent() }
    }

    /// Lets an event belong to the caller's trace.
    pub fn join(&self, envelope: &mut Envelope) {
        if let Some(parent) = self.trace_parent {
            envelope.join_trace(parent);
        }
    }
}

/// An event that a business call tells.
#[derive(Debug, Clone)]
pub struct Told<'a> {
    pub event_type: &'a str,
    pub event_id: Uuid,
    pub source: &'static str,
    pub subject: String,
    pub at: Timestamp,
    pub data: Value,
}

/// Stores the event with its records: all of it or nothing.
pub async fn tell(ingest: &Ingest, told: Told<'_>, origin: Origin<'_>, writes: Vec<Write>) -> Result<Receipt, Error> {
    let mut envelope = Envelope {
        event_id: told.event_id.to_string(),
        event_type: told.event_type.to_owned(),
        event_version: "1.0".to_owned(),
        event_timestamp: told.at,
        correlation_id: origin.correlation_id.to_owned(),
        source: Some(told.source.to_owned()),
        subject: Some(told.subject),
        data: told.data.to_string(),
        extensions: Vec::new(),
    };
    origin.join(&mut envelope);
    let arrival = Arrival { envelope, with: Companions { writes, ..Companions::default() } };
    let mut receipts = ingest.accept_each(vec![arrival]).await?;
    let receipt = receipts.pop().unwrap_or_else(|| Err(Error::Corrupt("an event got no receipt".to_owned())))?;
    match receipt.status {
        "rejected" => Err(Error::Invalid(format!("the event was rejected: {:?}", receipt.errors))),
        _ => Ok(receipt),
    }
}

/// The ids of a request: from its idempotency key if it has one, else new.
#[must_use]
pub fn request_ids(services: &Services, seed: Option<Extension<IdempotencySeed>>) -> RequestIds<'_> {
    match seed {
        Some(Extension(seed)) => RequestIds::Seeded(seed),
        None => RequestIds::Fresh(&*services.ids, services.clock.now()),
    }
}

/// The id in a path, where nothing else can be wrong.
pub fn path_id(field: &'static str, text: &str) -> Result<String, Problem> {
    event::check_guid(text).map_err(|why| Problem::invalid_field(field, why))?;
    Ok(text.to_lowercase())
}

/// Reads a body's fields and remembers every mistake.
pub struct Reader<'a> {
    fields: &'a Map<String, Value>,
    errors: Vec<FieldError>,
}

impl<'a> Reader<'a> {
    #[must_use]
    pub fn new(fields: &'a Map<String, Value>) -> Self {
        Self { fields, errors: Vec::new() }
    }

    /// The id in the path, judged together with the body.
    pub fn path_id(&mut self, field: &'static str, text: &str) -> String {
        if let Err(why) = event::check_guid(text) {
            self.errors.push(FieldError::new(field, why));
        }
        text.to_lowercase()
    }

    /// Refuses what only the server sets.
    pub fn leave_out(&mut self, names: &[&str]) {
        self.errors.extend(crate::tickets::read::set_by_server(self.fields, names));
    }

    /// In small letters: case does not count in a UUID, but it would in a key.
    pub fn guid(&mut self, name: &str) -> String {
        self.text(name, event::check_guid).to_lowercase()
    }

    pub fn words(&mut self, name: &str) -> String {
        self.text(name, |text| crate::tickets::check_text(text, TEXT_CHARS))
    }

    pub fn name(&mut self, name: &str) -> String {
        self.text(name, |text| tidings_core::envelope::check_name(text, event::TEXT_CHARS))
    }

    fn text(&mut self, name: &str, check: impl FnOnce(&str) -> Result<(), String>) -> String {
        let read = match self.fields.get(name) {
            None | Some(Value::Null) => Err("is required".to_owned()),
            Some(Value::String(text)) => check(text).map(|()| text.clone()),
            Some(_) => Err("must be a string".to_owned()),
        };
        read.unwrap_or_else(|why| {
            self.errors.push(FieldError::new(name, why));
            String::new()
        })
    }

    pub fn wrong(&mut self, name: &str, why: &str) {
        self.errors.push(FieldError::new(name, why));
    }

    pub fn finish(self) -> Result<(), Problem> {
        if self.errors.is_empty() { Ok(()) } else { Err(Problem::invalid(self.errors)) }
    }
}
