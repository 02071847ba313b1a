//! `SendServiceStatusNotification`: the inbox entry and the push of exactly the user whose request changed (S003-27).

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tidings_core::envelope::Envelope;
use tidings_core::time::Clock;
use tidings_store::{Error, Store};
use uuid::Uuid;

use crate::business::event;
use crate::business::handled;
use crate::config::Config;
use crate::inbox;
use crate::inbox::record::{self, About, Entry, Kind};
use crate::ingest::Ingest;
use crate::messages::Messages;
use crate::messages::record::{Message, NewMessage};
use crate::rules::Outcome;

/// The name under which its work is remembered.
pub const HANDLER: &str = "SendServiceStatusNotification";
const DAY_SECONDS: i64 = 86_400;

pub struct Notifier {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    messages: Arc<Messages>,
    /// Told of new entries, for those who watch.
    arrivals: Arc<inbox::Live>,
    keep_seconds: i64,
}

impl Notifier {
    #[must_use]
    pub fn new(ingest: &Ingest, messages: Arc<Messages>, config: &Config) -> Self {
        let (store, clock, arrivals) =
            (Arc::clone(&ingest.store), Arc::clone(&ingest.clock), Arc::clone(&ingest.arrivals));
        let days = i64::try_from(config.retention.notifications_days).unwrap_or(i64::MAX);
        Self { store, clock, messages, arrivals, keep_seconds: days.saturating_mul(DAY_SECONDS) }
    }

    /// Tells the user, once for each event.
    pub async fn notify(&self, envelope: &Envelope) -> Result<(), Error> {
        if handled::is_done(&*self.store, HANDLER, envelope).await? {
            return Ok(());
        }
        let now = self.clock.now();
        let notice = Words::of(envelope);
        let entry = self.entry(envelope, &notice);
        let message = self.push(envelope, &notice);
        let mut outcome = Outcome::default();
        outcome.notified(&entry);
        outcome.sent(&message);
        let mut writes = vec![handled::told(HANDLER, envelope, now, &outcome)];
        writes.extend(entry.writes()?);
        writes.extend(self.messages.creation(std::slice::from_ref(&message))?);
        match self.store.transact(writes).await {
            Ok(()) => {
                self.messages.signals.created([&message]);
                self.arrivals.announce([entry.user.as_str()]);
                Ok(())
            }
            // Somebody else did it at the same time.
            Err(error) if error.conflict_on(0).is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn entry(&self, envelope: &Envelope, words: &Words) -> Entry {
        let now = self.clock.now();
        Entry {
            user: words.user.clone(),
            time: record::time_of(now, &envelope.event_id, envelope.source.as_deref()),
            kind: Kind::Notice,
            status: record::Status::Unread,
            title: words.title.clone(),
            text: words.text.clone(),
            about: About::default(),
            event_id: envelope.event_id.clone(),
            rule: HANDLER.to_owned(),
            correlation_id: envelope.correlation_id.clone(),
            created_at: now,
            read_at: None,
            ttl: record::expiry(now, self.keep_seconds),
        }
    }

    /// To the user's own topic, which nobody else may listen to.
    fn push(&self, envelope: &Envelope, words: &Words) -> Message {
        let object = |value: Value| -> Map<String, Value> { value.as_object().cloned().unwrap_or_default() };
        let name = format!("{HANDLER}\n{}\n{}", envelope.source.as_deref().unwrap_or_default(), envelope.event_id);
        let new = NewMessage {
            message_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()),
            created_by: format!("handler:{HANDLER}"),
            stage: self.messages.stage(),
            message_type: crate::messages::record::ALERT_NOTIFICATION,
            payload: object(json!({
                "title": words.title, "text": words.text, "event_type": envelope.event_type,
                "serviceRequestId": words.request, "newStatus": words.status,
            })),
            correlation_id: &envelope.correlation_id,
            channel: "ntfy",
            target: object(json!({ "topic": format!("user-{}", words.user) })),
            secret: None,
            event_id: Some(&envelope.event_id),
            rule: None,
            deliver_at: None,
            keep_seconds: self.messages.keep_seconds(),
        };
        let trace_id = envelope.trace_id();
        Message { trace_id, ..Message::new(new, self.clock.now()) }
    }
}

/// What is said, and to whom.
struct Words {
    user: String,
    request: String,
    status: String,
    title: String,
    text: String,
}

impl Words {
    fn of(envelope: &Envelope) -> Self {
        let field = |name: &str| event::text_of(&envelope.data, name).unwrap_or_default();
        let guid = |name: &str| event::guid_of(&envelope.data, name).unwrap_or_default();
        let (user, request, status) = (guid("userId"), guid("serviceRequestId"), field("newStatus"));
        let title = format!("Your service request is {status}");
        let text = match event::text_of(&envelope.data, "oldStatus") {
            Some(old) => format!("Service request {request} changed from {old} to {status}."),
            None => format!("Service request {request} is now {status}."),
        };
        Self { user, request, status, title, text }
    }
}
