//! Entries of an audit log as a channel: one that could not be read is a dead letter, and sending it again, as it was or
//! mended, takes it in as if it had just come (S000-76, SX-08).

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::Outcome;
use crate::alerts::shapes::Found;
use crate::alerts::{Alerts, Refused};
use crate::ingest::Ingest;
use crate::messages::Message;

/// What the channel is called, and the fields of a message's payload that have the entry and the id of what carried it.
pub const CHANNEL: &str = "azure-devops";
pub const ENTRY: &str = "entry";
pub const ID: &str = "id";
pub const MESSAGE_TYPE: &str = "audit_entry";

pub struct Sender {
    alerts: Arc<Alerts>,
    ingest: Arc<Ingest>,
}

impl Sender {
    #[must_use]
    pub fn new(alerts: Arc<Alerts>, ingest: Arc<Ingest>) -> Self {
        Self { alerts, ingest }
    }

    /// Takes the entry in. One that came meanwhile by itself is known, and not taken twice.
    pub async fn send(&self, message: &Message) -> Outcome {
        let Some(entry) = message.payload.get(ENTRY) else { return Outcome::reject("there is no entry") };
        let text = entry.as_str().map_or_else(|| Cow::Owned(entry.to_string()), Cow::Borrowed);
        let id = message.payload.get(ID).and_then(Value::as_str).map(ToOwned::to_owned);
        let found = vec![Found::Entry { text, id }];
        let receipts = self.alerts.receive(&self.ingest, found, &message.correlation_id, Refused::Told).await;
        match receipts.map(|receipts| receipts.into_iter().next()) {
            Ok(Some(receipt)) if receipt.status == "rejected" => Outcome::reject(receipt.reason()),
            Ok(Some(receipt)) => {
                Outcome::Delivered { detail: format!("taken in: {}", receipt.status), id: receipt.event_id }
            }
            Ok(None) => Outcome::retry("no answer"),
            Err(error) => Outcome::retry(error.to_string()),
        }
    }
}
