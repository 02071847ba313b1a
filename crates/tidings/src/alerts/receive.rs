//! Audit events as they arrive: read, judged, and stored with everything that follows from them, each once.

use std::collections::HashMap;

use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::Serialize;
use tidings_core::envelope::{Envelope, FieldError, check_name};
use tidings_core::limits::{NAME_CHARS, SUBJECT_CHARS};
use tidings_core::time::Timestamp;
use tidings_store::{Error, Item, Key, Store};

use super::digest;
use super::entry::{Change, Reading, read};
use super::limits::{EVENT_BYTES, RAW_BYTES};
use super::record::{self, NewAlert, ROW_EVENT_ID};
use super::shapes::Found;
use super::{Alerts, Refused, accounts};
use crate::ingest::{Arrival, Companions, Ingest};

/// What the ordinary events that come of it have as their source.
pub const SOURCE: &str = "azure-devops";
/// Others may take a key at the same moment; more often than this is a sign of something else.
const TRIES: usize = 16;

/// What became of one audit event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// `accepted`, `duplicate`, `ignored`, `suppressed`, `expired` or `rejected`.
    pub status: &'static str,
    /// Where the alert is.
    #[serde(rename = "PartitionKey", skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    #[serde(rename = "SortKey", skip_serializing_if = "Option::is_none")]
    pub sort_key: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub errors: Vec<FieldError>,
    #[serde(skip)]
    pub too_large: bool,
}

impl Receipt {
    fn new(status: &'static str, event_id: Option<String>, correlation_id: Option<String>) -> Self {
        Self { event_id, correlation_id, status, ..Self::default() }
    }

    fn rejected(event_id: Option<String>, errors: Vec<FieldError>, too_large: bool) -> Self {
        Self { errors, too_large, ..Self::new("rejected", event_id, None) }
    }

    /// Every mistake in one line.
    #[must_use]
    pub fn reason(&self) -> String {
        let mistakes = self.errors.iter().map(|error| format!("{} {}", error.field, error.message).trim().to_owned());
        mistakes.collect::<Vec<_>>().join("; ")
    }

    fn stored(alert: &NewAlert) -> Self {
        let status = if alert.suppressed_by.is_some() { "suppressed" } else { "accepted" };
        Self {
            partition_key: Some(alert.partition()),
            sort_key: Some(alert.sort()),
            ..Self::new(status, Some(alert.event_id.clone()), Some(alert.correlation_id.clone()))
        }
    }

    /// The answer to an event that is known: what its source's row says.
    fn known(alert: NewAlert, row: Option<&Item>) -> Self {
        let text = |name: &str| row.and_then(|item| item.str(name)).map(ToOwned::to_owned);
        let event_id = text(ROW_EVENT_ID).unwrap_or(alert.source_id);
        Self {
            partition_key: text("PartitionKey"),
            sort_key: text("SortKey"),
            ..Self::new("duplicate", Some(event_id), text("correlationId"))
        }
    }
}

/// What an event comes to before anything is stored.
enum Judged {
    Alert(Box<NewAlert>),
    /// There is nothing to store, and this to say.
    Told(Receipt),
}

impl Alerts {
    /// Stores what is a change of a process and not known yet. An error means that some may not be stored: sending the
    /// same again is safe.
    pub async fn receive(
        &self,
        ingest: &Ingest,
        found: Vec<Found<'_>>,
        correlation_id: &str,
        refused: Refused,
    ) -> Result<Vec<Receipt>, Error> {
        let now = self.clock.now();
        let came = if refused == Refused::Told { Vec::new() } else { found.clone() };
        let authorized = self.accounts.list().await?.unwrap_or_default();
        let mut receipts: Vec<Receipt> = Vec::with_capacity(found.len());
        let mut alerts: Vec<(usize, NewAlert)> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for (place, found) in found.into_iter().enumerate() {
            match self.judge(found, &authorized, correlation_id, now) {
                Judged::Alert(mut alert) => {
                    let number = numbers.entry(alert.base()).or_insert(0);
                    *number += 1;
                    alert.number = *number;
                    alerts.push((place, *alert));
                    receipts.push(Receipt::default());
                }
                Judged::Told(receipt) => receipts.push(receipt),
            }
        }
        let arrivals = alerts.iter().map(|(_, alert)| self.arrival(alert, now)).collect();
        let outcomes = ingest.accept_each(arrivals).await?;
        for ((place, alert), outcome) in alerts.into_iter().zip(outcomes) {
            let receipt = self.settle(ingest, alert, outcome, now).await?;
            if let Some(slot) = receipts.get_mut(place) {
                *slot = receipt;
            }
        }
        if refused.is_kept(&receipts) {
            for (found, receipt) in came.iter().zip(&receipts).filter(|(_, receipt)| receipt.status == "rejected") {
                self.bury(ingest, found, receipt, correlation_id, now).await?;
            }
        }
        for status in ["ignored", "suppressed", "expired", "rejected"] {
            let count = receipts.iter().filter(|receipt| receipt.status == status).count();
            ingest.metrics.events(status, count as u64);
        }
        Ok(receipts)
    }

    /// An alert to store, or what there is to say instead.
    fn judge(&self, found: Found<'_>, authorized: &[String], correlation_id: &str, now: Timestamp) -> Judged {
        let (text, envelope_id) = match found {
            Found::Entry { text, id } => (text, id),
            Found::Other { id } => return Judged::Told(Receipt::new("ignored", id, None)),
        };
        if text.len() > RAW_BYTES {
            let message = format!("the event has {} bytes, at most {RAW_BYTES} are allowed", text.len());
            return Judged::Told(Receipt::rejected(envelope_id, vec![FieldError::new("", message)], true));
        }
        let settings = self.settings();
        let latest = now.saturating_add(self.future).unwrap_or(Timestamp::MAX);
        let change = match read(&text, &settings, latest) {
            Reading::Change(change) => *change,
            Reading::Ignored { source_id, correlation_id } => {
                return Judged::Told(Receipt::new("ignored", source_id.or(envelope_id), correlation_id));
            }
            Reading::Bad { source_id, errors } => {
                return Judged::Told(Receipt::rejected(source_id.or(envelope_id), errors, false));
            }
        };
        let source_id = source_id(&change, envelope_id, &text);
        // S000-23, S000-79: from the event's own time; S000-80: or from its arrival, if that is later and so wished.
        let from = if settings.keep_from_arrival { change.at.max(now) } else { change.at };
        let expires_at = from.as_second().saturating_add(self.keep_seconds);
        if expires_at <= now.as_second() {
            return Judged::Told(Receipt::new("expired", Some(source_id), change.correlation_id));
        }
        let suppressed_by = accounts::matching(authorized, &change.identities).cloned();
        let told = suppressed_by.is_none() && !settings.recipients.is_empty();
        Judged::Alert(Box::new(NewAlert {
            suppressed_by,
            digest_at: digest::next(settings.digest_seconds, now).filter(|_| told),
            correlation_id: change.correlation_id.clone().unwrap_or_else(|| correlation_id.to_owned()),
            event_id: source_id.clone(),
            source_id,
            change,
            raw: text.into_owned(),
            received_at: now,
            expires_at,
            number: 1,
        }))
    }

    /// The alert as an event of the house, with its record and its mail: one transaction.
    fn arrival(&self, alert: &NewAlert, now: Timestamp) -> Arrival {
        let change = &alert.change;
        let subject = change.process_name.as_ref().filter(|name| check_name(name, SUBJECT_CHARS).is_ok());
        let envelope = Envelope {
            event_id: alert.event_id.clone(),
            event_type: change.action.clone(),
            event_version: "1.0".to_owned(),
            event_timestamp: change.at,
            correlation_id: alert.correlation_id.clone(),
            source: Some(SOURCE.to_owned()),
            subject: subject.cloned(),
            data: data(alert),
            extensions: Vec::new(),
        };
        let message = match (&alert.suppressed_by, alert.digest_at) {
            (None, None) => self.letterhead().message(&alert.item(), Some(&alert.event_id), 0, now),
            _ => None,
        };
        let mut writes = alert.writes();
        writes.extend(alert.digest_at.map(|_| digest::member(&alert.item())));
        Arrival {
            envelope,
            with: Companions { writes, messages: message.into_iter().collect(), ..Companions::default() },
        }
    }

    /// What the sender hears. A key that is taken by another event of the same second is no reason to lose one, and
    /// neither is an id that an event has which is no alert: what is known is what has a row (S000-04).
    async fn settle(
        &self,
        ingest: &Ingest,
        mut alert: NewAlert,
        mut outcome: Result<crate::ingest::Receipt, Error>,
        now: Timestamp,
    ) -> Result<Receipt, Error> {
        for _ in 0..TRIES {
            match outcome {
                Ok(receipt) if receipt.status == "duplicate" => {
                    let row = self.store.get(record::sources_table(), &Key::new(&alert.source_id)).await?;
                    if row.is_some() {
                        return Ok(Receipt::known(alert, row.as_ref()));
                    }
                    alert.rename();
                }
                Ok(receipt) => return Ok(self.told(alert, receipt, now).await),
                Err(error) => {
                    if let Some(known) = error.conflict_on(0) {
                        ingest.metrics.events("duplicate", 1);
                        return Ok(Receipt::known(alert, known.found.as_ref()));
                    }
                    if error.conflict_on(1).is_some() {
                        alert.number = next_number(&*self.store, &alert).await?;
                    } else if alert.is_renamed() && error.conflict_on(2).is_some() {
                        alert.rename();
                    } else {
                        return Err(error);
                    }
                }
            }
            let again = ingest.accept_each(vec![self.arrival(&alert, now)]).await?;
            outcome = again.into_iter().next().unwrap_or_else(|| Err(Error::Throttled("no answer".to_owned())));
        }
        Err(Error::Throttled("too many events of one correlation id in one second; try again".to_owned()))
    }

    async fn told(&self, alert: NewAlert, receipt: crate::ingest::Receipt, now: Timestamp) -> Receipt {
        match receipt.status {
            "accepted" => {
                if let Some(account) = &alert.suppressed_by {
                    self.accounts.note_use(account, now).await;
                }
                Receipt::stored(&alert)
            }
            status => Receipt {
                errors: receipt.errors,
                too_large: receipt.too_large,
                ..Receipt::new(status, Some(alert.source_id), receipt.correlation_id)
            },
        }
    }
}

/// What recognises an event: its id, what its envelope says, or, without either, its text.
fn source_id(change: &Change, envelope_id: Option<String>, text: &str) -> String {
    let given = change.source_id.clone().or(envelope_id);
    if let Some(id) = given.as_ref().filter(|id| check_name(id, NAME_CHARS).is_ok()) {
        return id.clone();
    }
    let hash = digest(&SHA256, given.as_deref().unwrap_or(text).as_bytes());
    hash.as_ref().iter().fold("sha256-".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

/// The event's data for rules and the trace: all of it, or, where that is too much for one item, what the record says.
fn data(alert: &NewAlert) -> String {
    if alert.raw.len() <= EVENT_BYTES {
        return alert.raw.clone();
    }
    let change = &alert.change;
    serde_json::json!({
        "id": alert.source_id, "actionId": change.action, "actorDisplayName": change.actor_display_name,
        "actorUserId": change.actor_id, "category": change.category.as_str(), "details": change.details,
        "area": super::entry::AREA, "ipAddress": change.actor_ip, "truncated": true,
        "data": { "ProcessName": change.process_name, "WorkItemTypeReferenceName": change.work_item_type,
                  "FieldReferenceName": change.field_reference_name, "StateName": change.state_name },
    })
    .to_string()
}

/// The first number that no event of this correlation id and second has. They have no gaps: all expire together.
async fn next_number(store: &dyn Store, alert: &NewAlert) -> Result<usize, Error> {
    let partition = alert.partition();
    let taken = async |number: usize| {
        let key = record::key(&partition, &record::numbered(alert.base(), number));
        store.get(record::table(), &key).await.map(|item| item.is_some())
    };
    let (mut known, mut free) = (1, 2);
    while taken(free).await? {
        (known, free) = (free, free.saturating_mul(2));
    }
    while free - known > 1 {
        let middle = known + (free - known) / 2;
        if taken(middle).await? {
            known = middle;
        } else {
            free = middle;
        }
    }
    Ok(free)
}
