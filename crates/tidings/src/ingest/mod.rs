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

/// Bytes of an event as it is stored: an item of the store, less what stands beside it there.
const STORED_BYTES: usize = tidings_store::limits::ITEM_BYTES - 4096;

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

    /// Stores the good events, each in a transaction of its own; all share the committer's next fsyncs.
    /// An error means that some may not be stored: sending the same again is safe, for what is stored is a duplicate.
    pub async fn accept(&self, drafts: Vec<Draft>) -> Result<Vec<Receipt>, Error> {
        let receipts =
            futures_util::future::try_join_all(drafts.into_iter().map(|draft| self.accept_one(draft))).await?;
        let count = |status: &str| receipts.iter().filter(|receipt| receipt.status == status).count() as u64;
        for status in ["accepted", "duplicate", "rejected"] {
            self.metrics.events(status, count(status));
        }
        Ok(receipts)
    }

    async fn accept_one(&self, draft: Draft) -> Result<Receipt, Error> {
        let envelope = match draft {
            Draft::Good(envelope) => envelope,
            Draft::Bad { errors, too_large } => {
                return Ok(Receipt { event_id: None, correlation_id: None, status: "rejected", errors, too_large });
            }
        };
        let now = self.clock.now();
        let json = envelope.to_json();
        if json.len() > STORED_BYTES {
            let message = format!("the event has {} bytes, at most {STORED_BYTES} can be stored", json.len());
            let errors = vec![FieldError::new("", message)];
            return Ok(Receipt { event_id: None, correlation_id: None, status: "rejected", errors, too_large: true });
        }
        let new = NewEvent {
            envelope: &envelope,
            json,
            received_at: now,
            unique: self.ids.uuid(now),
            expires_at: now.as_second().saturating_add(self.retention_seconds),
        };
        let day = new.day();
        let note_day = self.day_to_note(&day, now);
        let duplicate_since = now.saturating_sub(std::time::Duration::from_secs(self.duplicate_seconds.unsigned_abs()));
        let duplicate_since = duplicate_since.unwrap_or(Timestamp::MIN);
        let announced = self.live_json(&new);
        let mut writes = Vec::from(new.writes(duplicate_since));
        writes.extend(note_day.clone());
        let correlation_id = match self.store.transact(writes).await {
            Ok(()) => None,
            Err(error) => Some(duplicate_of(error)?),
        };
        // A duplicate's transaction wrote nothing, the day included.
        if note_day.is_some() && correlation_id.is_none() {
            self.days().insert(day, now.as_second());
        }
        let status = if correlation_id.is_some() { "duplicate" } else { "accepted" };
        if correlation_id.is_none()
            && let Some(json) = announced
        {
            self.live.announce(LiveEvent { event_type: envelope.event_type.clone(), json });
        }
        Ok(receipt(envelope, correlation_id, status))
    }

    /// What listeners will see, if there are any.
    fn live_json(&self, new: &NewEvent<'_>) -> Option<String> {
        (self.live.listeners() > 0).then(|| new.json.clone())
    }

    /// The write that puts a day on record, unless it has been there long enough not to need it.
    fn day_to_note(&self, day: &str, now: Timestamp) -> Option<Write> {
        let now = now.as_second();
        if self.days().get(day).is_some_and(|noted| now - noted < DAY_NOTED_AGAIN_SECONDS) {
            return None;
        }
        let expires_at = now.saturating_add(self.retention_seconds).saturating_add(DAY_SECONDS);
        let item = Item::new().with("kind", record::DAYS).with("day", day).with("ttl", expires_at);
        Some(Write::put(&record::days_table(), item))
    }

    fn days(&self) -> std::sync::MutexGuard<'_, HashMap<String, i64>> {
        self.days.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn receipt(envelope: Envelope, known_correlation: Option<String>, status: &'static str) -> Receipt {
    Receipt {
        event_id: Some(envelope.event_id),
        correlation_id: Some(known_correlation.unwrap_or(envelope.correlation_id)),
        status,
        errors: Vec::new(),
        too_large: false,
    }
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
