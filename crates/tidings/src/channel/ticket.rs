//! Tickets as a channel: a rule's notice becomes a ticket of this installation, or a comment of the one it belongs to.

use std::sync::Arc;

use serde_json::Value;
use tidings_store::Error;

use super::{Notice, Outcome};
use crate::messages::Message;
use crate::tickets::{Alert, Refused, Tickets};

pub struct Sender(Arc<Tickets>);

impl Sender {
    #[must_use]
    pub fn new(tickets: Arc<Tickets>) -> Self {
        Self(tickets)
    }

    /// Puts the notice on record, once for each message however often it is sent.
    pub async fn send(&self, notice: &Notice<'_>, message: &Message) -> Outcome {
        let text = |name: &str| message.target.get(name).and_then(Value::as_str);
        // A rule that answers tickets with tickets would never end.
        let cause = message.payload.get("event_type").and_then(Value::as_str).unwrap_or_default();
        if cause.starts_with("ticket.") {
            return Outcome::reject(format!("{cause} came of a ticket; a ticket of it would come of itself for ever"));
        }
        let alert = Alert {
            message_id: &message.message_id,
            rule: message.rule.as_deref().unwrap_or_default(),
            caller: text("caller").unwrap_or_default(),
            dedup_key: text("dedup_key").unwrap_or(&notice.title),
            title: &notice.title,
            text: &notice.text,
            correlation_id: &message.correlation_id,
            remembered_until: message.ttl,
        };
        match self.0.raise(alert).await {
            Ok(raised) => {
                let detail = if raised.new { "a new ticket" } else { "a comment of a ticket that is open" };
                Outcome::Delivered { id: Some(raised.ticket_id), detail: detail.to_owned() }
            }
            Err(Refused::Conflict(why)) => Outcome::reject(why),
            Err(Refused::Unknown) => Outcome::retry("the ticket vanished"),
            Err(Refused::Store(error @ (Error::Invalid(_) | Error::Corrupt(_)))) => Outcome::reject(error.to_string()),
            Err(Refused::Store(error)) => Outcome::retry(error.to_string()),
        }
    }
}
