//! The way in: adapters turn what comes over the wire into envelopes; `Ingest` makes each one durable, once.

mod read;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use tidings_core::envelope::{Envelope, FieldError};
use tidings_core::ids::IdSource;
use tidings_core::time::{Clock, Timestamp};
use tidings_store::{Error, Item, Store, Write};

pub use read::{Draft, Limits, Received, read_events};

use crate::config::Config;
use crate::events::record::{self, NewEvent};
use crate::events::{Live, LiveEvent};
use crate::http::Metrics;

const DAY_SECONDS: i64 = 86_400;
/// A day on record is noted again after this long, so that it lives as long as its latest event.
const DAY_NOTED_AGAIN_SECONDS: i64 = DAY_SECONDS / 2;

/// What became of one event at the door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// `accepted`, `duplicate` or `rejected`.
    pub status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub errors: Vec<FieldError>,
    #[serde(skip)]
    pub too_large: bool,
}

/// Accepts events: one transaction for each, with everything that follows from it.
pub struct Ingest {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    pub metrics: Arc<Metrics>,
    pub live: Live,
    retention_seconds: i64,
    duplicate_seconds: i64,
    /// Days that are on record, and since when.
    days: Mutex<HashMap<String, i64>>,
}

impl Ingest {
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        metrics: Arc<Metrics>,
        live: Live,
        config: &Config,
    ) -> Self {
        let seconds = |count: u64, each: i64| i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(each);
        Self {
            store,
            clock,
            ids,
            metrics,
            live,
            retention_seconds: seconds(config.retention.events_days, DAY_SECONDS),
            duplicate_seconds: seconds(config.retention.dedupe_hours, 3600),
            days: Mutex::default(),
        }
    }

    /// Stores the good events, each in a transaction of its own. An error means that some may not be stored:
    /// sending the same again is safe, for what is stored is a duplicate.
    pub async fn accept(&self, drafts: Vec<Draft>) -> Result<Vec<Receipt>, Error> {
        let now = self.clock.now();
        let mut transactions = Vec::with_capacity(drafts.len());
        let mut notes = Vec::with_capacity(drafts.len());
        for draft in &drafts {
            if let Draft::Good(envelope) = draft {
                let (writes, noted) = self.transaction(envelope, now);
                transactions.push(writes);
                notes.push(noted);
            }
        }
        let mut outcomes = self.store.transact_each(transactions).await.into_iter().zip(notes);
        let mut receipts = Vec::with_capacity(drafts.len());
        for draft in drafts {
            receipts.push(match draft {
                Draft::Bad { errors, too_large } => rejection(errors, too_large),
                Draft::Good(envelope) => match outcomes.next() {
                    Some((outcome, noted)) => self.receipt(envelope, outcome, noted, now)?,
                    None => return Err(Error::ReadOnly("the store gave too few answers".to_owned())),
                },
            });
        }
        let count = |status: &str| receipts.iter().filter(|receipt| receipt.status == status).count() as u64;
        for status in ["accepted", "duplicate", "rejected"] {
            self.metrics.events(status, count(status));
        }
        Ok(receipts)
    }

    /// The one transaction of an event, and what to remember once it is done.
    fn transaction(&self, envelope: &Envelope, now: Timestamp) -> (Vec<Write>, Noted) {
        let new = NewEvent {
            envelope,
            json: envelope.to_json(),
            received_at: now,
            unique: self.unique(),
            expires_at: now.as_second().saturating_add(self.retention_seconds),
        };
        let day = new.day();
        let note_day = self.day_to_note(&day, now);
        let noted = Noted {
            day: note_day.is_some().then_some(day),
            announcement: (self.live.listeners() > 0).then(|| new.json.clone()),
        };
        let window = std::time::Duration::from_secs(self.duplicate_seconds.unsigned_abs());
        let mut writes = Vec::from(new.writes(now.saturating_sub(window).unwrap_or(Timestamp::MIN)));
        writes.extend(note_day);
        (writes, noted)
    }

    /// What the sender hears of an event whose transaction is decided.
    fn receipt(
        &self,
        envelope: Envelope,
        outcome: Result<(), Error>,
        noted: Noted,
        now: Timestamp,
    ) -> Result<Receipt, Error> {
        let known_correlation = match outcome {
            Ok(()) => None,
            Err(error) => Some(duplicate_of(error)?),
        };
        if known_correlation.is_none() {
            if let Some(day) = noted.day {
                self.days().insert(day, now.as_second());
            }
            if let Some(json) = noted.announcement {
                self.live.announce(LiveEvent { event_type: envelope.event_type.clone(), json });
            }
        }
        let status = if known_correlation.is_some() { "duplicate" } else { "accepted" };
        Ok(Receipt {
            event_id: Some(envelope.event_id),
            correlation_id: Some(known_correlation.unwrap_or(envelope.correlation_id)),
            status,
            errors: Vec::new(),
            too_large: false,
        })
    }

    fn unique(&self) -> u64 {
        let mut bytes = [0; 8];
        self.ids.random(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// The write that puts a day on record, unless it has been there long enough not to need it.
    fn day_to_note(&self, day: &str, now: Timestamp) -> Option<Write> {
        let now = now.as_second();
        if self.days().get(day).is_some_and(|noted| now - noted < DAY_NOTED_AGAIN_SECONDS) {
            return None;
        }
        let expires_at = now.saturating_add(self.retention_seconds).saturating_add(DAY_SECONDS);
        let item = Item::new().with("kind", record::DAYS).with("day", day).with("ttl", expires_at);
        Some(Write::put(record::days_table(), item))
    }

    fn days(&self) -> std::sync::MutexGuard<'_, HashMap<String, i64>> {
        self.days.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is left to do once an event is stored.
struct Noted {
    /// The day that its transaction puts on record.
    day: Option<String>,
    /// What listeners will see, if there are any.
    announcement: Option<String>,
}

fn rejection(errors: Vec<FieldError>, too_large: bool) -> Receipt {
    Receipt { event_id: None, correlation_id: None, status: "rejected", errors, too_large }
}

/// The correlation id of the event that was there first, if that is why the transaction failed.
fn duplicate_of(error: Error) -> Result<String, Error> {
    match error.conflict_on(0) {
        Some(conflict) => {
            let known = conflict.found.as_ref().and_then(|item| item.str("correlationId"));
            Ok(known.unwrap_or_default().to_owned())
        }
        None => Err(error),
    }
}
