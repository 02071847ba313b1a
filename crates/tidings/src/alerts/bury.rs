//! Audit events that cannot be taken, where their sender will not look: each is kept as a dead letter with its reason, and
//! told of by an event, once (S000-76, SX-08).

use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use tidings_core::envelope::{Envelope, check_name};
use tidings_core::json::check_depth;
use tidings_core::limits::CORRELATION_CHARS;
use tidings_core::message::Status;
use tidings_core::time::Timestamp;
use tidings_store::{Error, Write};
use uuid::Uuid;

use super::receive::{Receipt, SOURCE};
use super::{Alerts, shapes::Found};
use crate::channel::audit_log::{CHANNEL, ENTRY, ID, MESSAGE_TYPE};
use crate::ingest::{Arrival, Companions, Ingest};
use crate::messages::dead;
use crate::messages::record::{Message, NewMessage};

/// The type of the event that tells of it.
const REJECTED: &str = "azure-devops.rejected";
/// Bytes of an entry that the event holds.
const SHOWN_BYTES: usize = 300 * 1024;

/// What becomes of events that are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Their sender hears it, and that is all.
    Told,
    /// The same, but among others that are taken they are kept: the sender hears that all is well.
    KeptAmongOthers,
    /// They are kept: there is no sender.
    Kept,
}

impl Refused {
    pub(super) fn is_kept(self, receipts: &[Receipt]) -> bool {
        match self {
            Self::Told => false,
            Self::KeptAmongOthers => receipts.iter().any(|receipt| receipt.status != "rejected"),
            Self::Kept => true,
        }
    }
}

impl Alerts {
    /// Keeps a refused event. The same id, or without one the same text, is the same letter, and comes once within the
    /// window for duplicates.
    pub(super) async fn bury(
        &self,
        ingest: &Ingest,
        found: &Found<'_>,
        receipt: &Receipt,
        correlation_id: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        let Found::Entry { text, id } = found else { return Ok(()) };
        let reason = receipt.reason();
        let hash = digest(&SHA256, receipt.event_id.as_deref().unwrap_or(text).as_bytes());
        let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, hash.as_ref());
        let entry = entry_of(text);
        let own = entry.get("correlationId").and_then(Value::as_str);
        let own = own.filter(|own| check_name(own, CORRELATION_CHARS).is_ok()).map(ToOwned::to_owned);
        let correlation_id = own.as_deref().unwrap_or(correlation_id);
        let mut payload = Map::from_iter([(ENTRY.to_owned(), entry.clone())]);
        payload.extend(id.as_ref().map(|id| (ID.to_owned(), id.as_str().into())));
        let shown = if text.len() <= SHOWN_BYTES { entry } else { "left out: too large".into() };
        let data = json!({ "reason": reason, "id": receipt.event_id, ENTRY: shown });
        let envelope = Envelope {
            event_id: format!("rejected-{name}"),
            event_type: REJECTED.to_owned(),
            event_version: "1.0".to_owned(),
            event_timestamp: now,
            correlation_id: correlation_id.to_owned(),
            source: Some(SOURCE.to_owned()),
            subject: None,
            data: data.to_string(),
            extensions: Vec::new(),
        };
        let writes = Vec::from_iter(self.letter(name, payload, &reason, correlation_id, now));
        let arrival = Arrival { envelope, with: Companions { writes, ..Companions::default() } };
        match ingest.accept_each(vec![arrival]).await?.pop().transpose() {
            Ok(told) => {
                if told.is_some_and(|told| told.status == "accepted") {
                    let id = receipt.event_id.as_deref().unwrap_or_default();
                    tracing::warn!(id, reason, "an audit event is refused, and kept as a dead letter");
                }
                Ok(())
            }
            Err(Error::Invalid(why)) => {
                tracing::error!(reason, why, "an audit event can be kept nowhere, and is lost");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Where somebody will look for it, mend it and send it again.
    fn letter(
        &self,
        message_id: Uuid,
        payload: Map<String, Value>,
        reason: &str,
        correlation_id: &str,
        now: Timestamp,
    ) -> Option<Write> {
        let letter = |payload: Map<String, Value>| {
            let new = NewMessage {
                message_id,
                created_by: CHANNEL.to_owned(),
                stage: &self.stage,
                message_type: MESSAGE_TYPE,
                payload,
                correlation_id,
                channel: CHANNEL,
                target: Map::new(),
                secret: None,
                event_id: None,
                rule: None,
                deliver_at: None,
                keep_seconds: self.messages_seconds,
            };
            let mut message = Message::new(new, now);
            message.delivery.status = Status::Failed;
            dead::letter(&message, reason, now)
        };
        let with = |entry: Value| {
            let mut payload = payload.clone();
            payload.insert(ENTRY.to_owned(), entry);
            payload
        };
        let text = payload.get(ENTRY).map(|entry| entry.as_str().map_or_else(|| entry.to_string(), ToOwned::to_owned));
        let fits = |write: &Write| matches!(write, Write::Put { table, item, .. } if table.check_item(item).is_ok());
        // What an item cannot hold, a text can.
        let forms = [payload.clone(), with(text.unwrap_or_default().into()), with("left out: too large".into())];
        forms.into_iter().find_map(|payload| letter(payload).ok().filter(fits))
    }
}

/// The entry as an object that can be mended, or as its text if it is none.
fn entry_of(text: &str) -> Value {
    let value = serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
    // It will stand two levels deeper.
    let value = value.filter(|_| check_depth(&format!("[[{text}")).is_ok());
    value.unwrap_or_else(|| text.into())
}
