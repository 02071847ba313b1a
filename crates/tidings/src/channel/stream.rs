//! Records of a table's stream as a channel: one that could not be understood is a dead letter, and sending it again, as
//! it was or mended, takes it in as if it had just come (S001-39).

use std::sync::Arc;

use tidings_core::time::Timestamp;

use super::Outcome;
use crate::centre::change::Change;
use crate::ingest::{Arrival, Companions, Ingest};
use crate::messages::Message;

/// What the channel is called, and the field of a message's payload that has the record.
pub const CHANNEL: &str = "dynamodb-stream";
pub const RECORD: &str = "record";
pub const MESSAGE_TYPE: &str = "stream_record";

pub struct Sender(Arc<Ingest>);

impl Sender {
    #[must_use]
    pub fn new(ingest: Arc<Ingest>) -> Self {
        Self(ingest)
    }

    /// Takes the record in. One that came meanwhile by itself is known, and not taken twice.
    pub async fn send(&self, message: &Message, now: Timestamp) -> Outcome {
        let Some(record) = message.payload.get(RECORD) else { return Outcome::reject("there is no record") };
        let text = record.as_str().and_then(|text| serde_json::from_str(text).ok());
        let change = match Change::read(text.as_ref().unwrap_or(record)) {
            Ok(change) => change,
            Err(bad) => return Outcome::reject(bad.reason),
        };
        let envelope = change.envelope(&message.correlation_id, now);
        let id = Some(envelope.event_id.clone());
        let receipt = match self.0.accept_each(vec![Arrival { envelope, with: Companions::default() }]).await {
            Ok(receipts) => receipts.into_iter().next(),
            Err(error) => return Outcome::retry(error.to_string()),
        };
        match receipt {
            Some(Ok(receipt)) if receipt.status == "rejected" => {
                let why: Vec<String> = receipt.errors.iter().map(|e| format!("{} {}", e.field, e.message)).collect();
                Outcome::reject(why.join("; "))
            }
            Some(Ok(receipt)) => Outcome::Delivered { id, detail: format!("taken in: {}", receipt.status) },
            Some(Err(error)) => Outcome::retry(error.to_string()),
            None => Outcome::retry("no answer"),
        }
    }
}
