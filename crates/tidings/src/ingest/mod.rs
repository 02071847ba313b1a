//! The way in: adapters turn what comes over the wire into envelopes; `Ingest` makes each one durable, once.

mod coming;
mod counts;
mod noted;
mod plain;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;
use tidings_core::envelope::{Envelope, FieldError};
use tidings_core::ids::IdSource;
use tidings_core::time::{Clock, Timestamp};
use tidings_store::{Error, FailedCondition, Item, Store, Write, limits};
use tokio::sync::Notify;
use uuid::Uuid;

use coming::{Coming, Made, Ready, accepted};
use noted::{Noted, Reacted, with_outcome};
use plain::{Days, Sieved};
pub use read::{Bad, Draft, Limits, Received, foreign, read_events};

use crate::bus::line::LineError;
use crate::bus::{Bus, BusError, Prepared, Sent};
use crate::business::{event, message};
use crate::config::Config;
use crate::events::record::{self, EventKey, Moment, NewEvent};
use crate::events::{Live, LiveEvent};
use crate::http::Metrics;
use crate::inbox;
use crate::messages::{Message, Signals};
use crate::rules::notice::Settings;
use crate::rules::react::{Reaction, Reactor};
use crate::rules::{Book, Outcome, Rule};
use crate::tickets::callers::Callers;

const DAY_SECONDS: i64 = 86_400;
/// A day on record is noted again after this long, so that it lives as long as its latest event.
const DAY_NOTED_AGAIN_SECONDS: i64 = DAY_SECONDS / 2;

/// Bytes of an event as it is stored: an item of the store, less what stands beside it there.
const STORED_BYTES: usize = limits::ITEM_BYTES - BESIDE_BYTES - 1024;
/// Bytes of what stands beside an event in its item, its outcome apart.
const BESIDE_BYTES: usize = 3072;

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
    /// How many rules it matched, if it was accepted.
    #[serde(skip)]
    pub matched: u64,
}

/// An event, and what a part of the house stores with it in the same transaction: all of it or nothing.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub envelope: Envelope,
    pub with: Companions,
}

/// What is stored together with an event.
#[derive(Debug, Clone, Default)]
pub struct Companions {
    /// Records of the part that brings the event. Their conditions decide as well.
    pub writes: Vec<Write>,
    /// Messages of that part: stored, counted, shown in the event's outcome, and announced.
    pub messages: Vec<Message>,
    /// What goes on by the bus with it; its writes are among the others.
    pub sent: Vec<Sent>,
}

/// Accepts events: one transaction for each, with everything that follows from it.
pub struct Ingest {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    pub metrics: Arc<Metrics>,
    pub live: Live,
    rules: Arc<Book>,
    reactor: Reactor,
    /// Rung when an event has left work to a job.
    pub new_job: Arc<Notify>,
    /// Rung when an event has made messages.
    signals: Arc<Signals>,
    /// Where the four business events go on.
    bus: Option<Arc<Bus>>,
    /// Told whose inbox has something new.
    pub arrivals: Arc<inbox::Live>,
    /// How many events have come in: who does work in the background makes room for them.
    pub traffic: Arc<AtomicU64>,
    retention_seconds: i64,
    duplicate_seconds: i64,
    /// Days that are on record, and since when.
    days: Mutex<BTreeMap<String, i64>>,
}

impl Ingest {
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        metrics: Arc<Metrics>,
        live: Live,
        rules: Arc<Book>,
        config: &Config,
    ) -> Self {
        let reactor = Reactor::new(Arc::clone(&store), Settings::of(config));
        let seconds = |count: u64, each: i64| i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(each);
        Self {
            store,
            clock,
            ids,
            metrics,
            live,
            rules,
            reactor,
            new_job: Arc::default(),
            signals: Arc::default(),
            bus: None,
            arrivals: Arc::default(),
            traffic: Arc::default(),
            retention_seconds: seconds(config.retention.events_days, DAY_SECONDS),
            duplicate_seconds: seconds(config.retention.dedupe_hours, 3600),
            days: Mutex::default(),
        }
    }

    /// Says to these when an event has made messages.
    #[must_use]
    pub fn signalling(mut self, signals: Arc<Signals>) -> Self {
        self.signals = signals;
        self
    }

    /// Says to these when an event has made inbox entries.
    #[must_use]
    pub fn announcing(mut self, arrivals: Arc<inbox::Live>) -> Self {
        self.arrivals = arrivals;
        self
    }

    /// Makes hashes of phone numbers before a rule's message has them.
    #[must_use]
    pub fn hashing(mut self, callers: Arc<Callers>) -> Self {
        self.reactor = self.reactor.with_callers(callers);
        self
    }

    /// Sends the four business events on by this bus, and what rules send there, in the events' own transactions.
    #[must_use]
    pub fn forwarding(mut self, bus: Arc<Bus>) -> Self {
        self.reactor = self.reactor.with_bus(Arc::clone(&bus));
        self.bus = Some(bus);
        self
    }

    /// What takes a business event to its handler, or why that is not possible.
    async fn forward(&self, kind: event::Kind, envelope: &Envelope) -> Result<Result<Prepared, Receipt>, Error> {
        let Some(bus) = &self.bus else { return Ok(Ok(Prepared::default())) };
        match bus.prepare(kind.entity(), message::of(kind, envelope)).await {
            Ok(prepared) => Ok(Ok(prepared)),
            Err(BusError::TooLarge(why)) => Ok(Err(refused(envelope, vec![FieldError::new("", why)], true))),
            // Nor is it taken where its queue is missing, which is declared from the start: nobody would handle it.
            Err(BusError::Store(error) | BusError::Line(LineError::Store(error))) => Err(error),
            Err(error) => Err(Error::failed("an event cannot be put on the bus", error)),
        }
    }

    /// An event as it is stored and the rules that it matches, or why it cannot be taken.
    fn judge(&self, envelope: &Envelope) -> Result<(String, Vec<Arc<Rule>>), Receipt> {
        let errors = event::check(envelope);
        if !errors.is_empty() {
            return Err(refused(envelope, errors, false));
        }
        let json = envelope.to_json();
        if json.len() > STORED_BYTES {
            let message = format!("the event has {} bytes, at most {STORED_BYTES} can be stored", json.len());
            return Err(refused(envelope, vec![FieldError::new("", message)], true));
        }
        if envelope.lent().only_type().is_some_and(|event_type| !self.rules.may_match(event_type)) {
            return Ok((json, Vec::new()));
        }
        match self.rules.matching(&json) {
            Ok(rules) => Ok((json, rules)),
            Err(error) => {
                // Each door refuses what cannot be read, so one of them let it pass.
                tracing::error!(%error, event = envelope.event_id, "an event cannot be matched");
                let why = format!("cannot be held against the rules: {error}");
                Err(refused(envelope, vec![FieldError::new("", why)], false))
            }
        }
    }

    /// Stores the good events, each in a transaction of its own. An error means that some may not be stored:
    /// sending the same again is safe, for what is stored is a duplicate.
    pub async fn accept(&self, drafts: Vec<Draft<'_>>) -> Result<Vec<Receipt>, Error> {
        let mut coming = Vec::with_capacity(drafts.len());
        let mut bad = Vec::new();
        let mut sieved = Sieved::default();
        for (place, draft) in drafts.into_iter().enumerate() {
            match draft {
                Draft::Good(event) if self.is_plain(&event, &mut sieved) => coming.push(Coming::Plain(event)),
                Draft::Good(event) => {
                    coming.push(Coming::Arrival(event.into_envelope().into()));
                }
                Draft::Bad(why) => bad.push((place, rejection(why))),
            }
        }
        self.metrics.events("rejected", bad.len() as u64);
        let stored = self.take_in(coming).await?;
        let mut receipts = stored.into_iter().collect::<Result<Vec<_>, _>>()?;
        // In the order of the drafts: places rise, so each finds those before it in place.
        for (place, rejected) in bad {
            receipts.insert(place, rejected);
        }
        Ok(receipts)
    }

    /// Stores events with what belongs to them, each in a transaction of its own. One whose companions' conditions do
    /// not hold is an error of its own: a conflict that counts from the first of `Companions::writes`.
    pub async fn accept_each(&self, arrivals: Vec<Arrival>) -> Result<Vec<Result<Receipt, Error>>, Error> {
        self.take_in(arrivals.into_iter().map(|arrival| Coming::Arrival(Box::new(arrival))).collect()).await
    }

    async fn take_in(&self, coming: Vec<Coming<'_>>) -> Result<Vec<Result<Receipt, Error>>, Error> {
        let moment = self.moment(self.clock.now());
        self.traffic.fetch_add(coming.len() as u64, Ordering::Relaxed);
        let mut prepared = Vec::with_capacity(coming.len());
        for coming in coming {
            prepared.push(match coming {
                Coming::Plain(event) => Ready::Plain(event),
                Coming::Arrival(arrival) => match Box::pin(self.prepare(*arrival, &moment)).await? {
                    Ok(made) => Ready::Made(Box::new(made)),
                    Err(rejected) => Ready::Rejected(rejected),
                },
            });
        }
        let mut days = Days::default();
        let mut outcomes = {
            // Made when it is asked for, and gone before the next: a hundred of them would fill a processor's memory.
            let mut transactions = prepared.iter_mut().enumerate().filter_map(|(place, ready)| match ready {
                Ready::Plain(event) => Some(self.plain_transaction(place, event, &mut days, &moment)),
                Ready::Made(made) => Some(std::mem::take(&mut made.writes)),
                Ready::Rejected(_) => None,
            });
            self.store.transact_made(&mut transactions).await.into_iter()
        };
        let mut receipts = Vec::with_capacity(prepared.len());
        for (place, ready) in prepared.into_iter().enumerate() {
            if let Ready::Rejected(rejected) = ready {
                receipts.push(Ok(rejected));
                continue;
            }
            let outcome = outcomes.next();
            let outcome = outcome.ok_or_else(|| Error::ReadOnly("the store gave too few answers".to_owned()));
            receipts.push(match (ready, outcome) {
                (Ready::Rejected(rejected), _) => Ok(rejected),
                (_, Err(error)) => Err(error),
                (Ready::Plain(event), Ok(Ok(()))) => {
                    if let Some(day) = days.noted_by(place) {
                        self.days().insert(day, moment.now.as_second());
                    }
                    Ok(accepted(event))
                }
                (Ready::Plain(event), Ok(Err(error))) => {
                    let (arrival, noted) = (*Box::<Arrival>::from(event.into_envelope()), days.of(place));
                    Box::pin(self.after_failure(arrival, error, noted, Prepared::default(), &moment)).await
                }
                (Ready::Made(made), Ok(Ok(()))) => {
                    let Made { arrival, mut noted, forwarded, .. } = *made;
                    forwarded.resolve(&Ok(()));
                    noted.resolve(&Ok(()));
                    Ok(self.receipt(arrival.envelope, None, noted, &moment))
                }
                (Ready::Made(made), Ok(Err(error))) => {
                    let Made { arrival, noted, forwarded, .. } = *made;
                    Box::pin(self.after_failure(arrival, error, noted, forwarded, &moment)).await
                }
            });
        }
        let status = |status: &str| receipts.iter().flatten().filter(|receipt| receipt.status == status).count() as u64;
        for name in ["accepted", "duplicate", "rejected"] {
            self.metrics.events(name, status(name));
        }
        Ok(receipts)
    }

    /// The transaction of an event, or why it cannot be taken.
    async fn prepare(&self, mut arrival: Arrival, moment: &Moment) -> Result<Result<Made, Receipt>, Error> {
        let (json, rules) = match self.judge(&arrival.envelope) {
            Ok(judged) => judged,
            Err(rejected) => return Ok(Err(rejected)),
        };
        let mut forwarded = Prepared::default();
        if let Some(kind) = event::carried(&arrival.envelope) {
            forwarded = match Box::pin(self.forward(kind, &arrival.envelope)).await? {
                Ok(forwarded) => forwarded,
                Err(rejected) => return Ok(Err(rejected)),
            };
            arrival.with.writes.extend(forwarded.writes());
            arrival.with.sent.clone_from(&forwarded.sent);
        }
        // What seldom happens is kept out of the way of what always does, in memory as well.
        let (writes, noted) = if rules.is_empty() && arrival.with.messages.is_empty() && arrival.with.sent.is_empty() {
            self.transaction(self.new_event(&arrival.envelope, json, moment), None, &arrival.with, moment)
        } else {
            Box::pin(self.reacting(&arrival, json, rules, &BTreeSet::new(), moment)).await?
        };
        Ok(Ok(Made { arrival, writes, noted, forwarded }))
    }

    fn moment(&self, now: Timestamp) -> Moment {
        let window = std::time::Duration::from_secs(self.duplicate_seconds.unsigned_abs());
        let duplicate_since = now.saturating_sub(window).unwrap_or(Timestamp::MIN);
        Moment::new(now, now.as_second().saturating_add(self.retention_seconds), duplicate_since)
    }

    fn new_event<'a>(&self, envelope: &'a Envelope, json: String, moment: &Moment) -> NewEvent<'a> {
        let key = EventKey::new(envelope.event_timestamp, self.unique());
        NewEvent { envelope, json, received_at: moment.now, key, outcome: None }
    }

    /// The transaction of an event that somebody hears of, or of which something goes on.
    async fn reacting(
        &self,
        arrival: &Arrival,
        json: String,
        rules: Vec<Arc<Rule>>,
        silent: &BTreeSet<Uuid>,
        moment: &Moment,
    ) -> Result<(Vec<Write>, Noted), Error> {
        let new = self.new_event(&arrival.envelope, json, moment);
        let reaction = self.reactor.react(&new, &rules, silent, &arrival.with).await?;
        Ok(self.transaction(new, Some((rules, reaction)), &arrival.with, moment))
    }

    /// The one transaction of an event with everything that its rules cause, and what to remember once it is done.
    fn transaction(
        &self,
        mut new: NewEvent<'_>,
        reaction: Option<(Vec<Arc<Rule>>, Reaction)>,
        with: &Companions,
        moment: &Moment,
    ) -> (Vec<Write>, Noted) {
        let note_day = self.day_to_note(&new.key.day, moment.now);
        let mut noted = Noted {
            day: note_day.is_some().then(|| new.key.day.clone()),
            announcement: (self.live.listeners() > 0).then(|| new.json.clone()),
            companions: 0,
            reacted: None,
        };
        let mut caused = Vec::new();
        if let Some((rules, reaction)) = reaction {
            let Reaction { writes, markers, outcome, messages, told, bus } = reaction;
            caused = writes;
            let text = outcome.to_text(limits::ITEM_BYTES.saturating_sub(new.json.len() + BESIDE_BYTES));
            noted.announcement = noted.announcement.map(|json| with_outcome(json, new.envelope, &text));
            new.outcome = Some(text);
            let own = 2 + usize::from(note_day.is_some());
            let markers = markers.into_iter().map(|(place, window)| (place + own, window)).collect();
            let json = new.json.clone();
            noted.reacted = Some(Box::new(Reacted { json, rules, markers, outcome, messages, told, bus }));
        }
        let mut writes = Vec::from(new.writes(moment));
        writes.extend(note_day);
        writes.extend(caused);
        noted.companions = writes.len();
        writes.extend(with.writes.iter().cloned());
        // Rules may send to where the event itself goes, and make messages beside one that ends with the event.
        let gone = counts::join(&mut writes);
        let now_at = |place: usize| place - gone.iter().filter(|gone| **gone < place).count();
        noted.companions = now_at(noted.companions);
        if let Some(reacted) = &mut noted.reacted {
            reacted.markers.iter_mut().for_each(|(place, _)| *place = now_at(*place));
        }
        (writes, noted)
    }

    /// What the sender hears of an event whose transaction failed: that it is known already, or that it is stored after
    /// all, without what is not to be repeated.
    async fn after_failure(
        &self,
        arrival: Arrival,
        error: Error,
        noted: Noted,
        forwarded: Prepared,
        moment: &Moment,
    ) -> Result<Receipt, Error> {
        let (outcome, mut noted) = self.without_repeats(&arrival, error, noted, moment).await?;
        forwarded.resolve(&outcome);
        noted.resolve(&outcome);
        let known = match outcome {
            Ok(()) => None,
            Err(error) => Some(self.known_as(error).await.map_err(|error| counted_from(error, noted.companions))?),
        };
        Ok(self.receipt(arrival.envelope, known, noted, moment))
    }

    /// Where rules told somebody the same not long ago, the event's transaction failed on those windows alone: does it
    /// again without what they keep back.
    async fn without_repeats(
        &self,
        arrival: &Arrival,
        error: Error,
        mut noted: Noted,
        moment: &Moment,
    ) -> Result<(Result<(), Error>, Noted), Error> {
        let mut silent = BTreeSet::new();
        let mut outcome = Err(error);
        while let (Err(error @ Error::Conflict { .. }), Some(reacted)) = (&outcome, noted.reacted.as_mut()) {
            let repeats = reacted.markers.iter().filter(|(place, _)| error.conflict_on(*place).is_some());
            let before = silent.len();
            silent.extend(repeats.map(|(_, window)| *window));
            if error.conflict_on(0).is_some() || silent.len() == before {
                break;
            }
            let (json, rules) = (std::mem::take(&mut reacted.json), std::mem::take(&mut reacted.rules));
            std::mem::take(&mut reacted.bus).aborted();
            let (writes, again) = self.reacting(arrival, json, rules, &silent, moment).await?;
            noted = again;
            outcome = self.store.transact(writes).await;
        }
        Ok((outcome, noted))
    }

    /// The correlation id of the event that was there first, if that is why a transaction failed.
    async fn known_as(&self, error: Error) -> Result<String, Error> {
        let Some(conflict) = error.conflict_on(0) else { return Err(error) };
        let first = match conflict.found.as_ref().and_then(record::event_key) {
            Some(key) => self.store.get(record::table(), &key).await?,
            None => None,
        };
        Ok(first.as_ref().and_then(|first| first.str("correlationId")).unwrap_or_default().to_owned())
    }

    /// What the sender hears of an event whose transaction is decided; a duplicate's correlation id is `known` already.
    fn receipt(&self, envelope: Envelope, known: Option<String>, noted: Noted, moment: &Moment) -> Receipt {
        let matched = noted.reacted.as_ref().map_or(0, |reacted| reacted.outcome.totals.rules);
        // A duplicate's transaction wrote nothing, the day included.
        if known.is_none() {
            if let Some(day) = noted.day {
                self.days().insert(day, moment.now.as_second());
            }
            if let Some(json) = noted.announcement {
                self.live.announce(LiveEvent { event_type: envelope.event_type.clone(), json });
            }
            if let Some(reacted) = noted.reacted {
                self.metrics.tally.notices(reacted.outcome.totals.notifications);
                self.report(&envelope, &reacted.outcome);
                self.signals.created(&reacted.messages);
                self.arrivals.announce(reacted.told.iter().map(String::as_str));
            }
        }
        let status = if known.is_some() { "duplicate" } else { "accepted" };
        Receipt {
            event_id: Some(envelope.event_id),
            correlation_id: Some(known.unwrap_or(envelope.correlation_id)),
            status,
            errors: Vec::new(),
            too_large: false,
            matched,
        }
    }

    /// Counts what came of the rules, and says it aloud where somebody should have been told and nobody was (S001-50).
    fn report(&self, envelope: &Envelope, outcome: &Outcome) {
        for (status, count) in &outcome.by_status {
            self.metrics.rules(status, *count);
        }
        for rule in &outcome.no_recipients {
            tracing::warn!(rule, event = envelope.event_id, "a target of the rule leads to nobody");
        }
        if outcome.fanout.is_some() {
            self.new_job.notify_one();
        }
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

    fn days(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, i64>> {
        self.days.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rejection(bad: Bad) -> Receipt {
    let Bad { event_id, correlation_id, errors, too_large } = bad;
    Receipt { event_id, correlation_id, status: "rejected", errors, too_large, matched: 0 }
}

/// The same for an event that could be read.
fn refused(envelope: &Envelope, errors: Vec<FieldError>, too_large: bool) -> Receipt {
    let (event_id, correlation_id) = (Some(envelope.event_id.clone()), Some(envelope.correlation_id.clone()));
    rejection(Bad { event_id, correlation_id, errors, too_large })
}

/// A conflict about companions, their places counted from the first of them.
fn counted_from(error: Error, first: usize) -> Error {
    match error {
        Error::Conflict { failed } => {
            let ours = failed.into_iter().filter(|failed| failed.write >= first);
            Error::Conflict {
                failed: ours.map(|failed| FailedCondition { write: failed.write - first, ..failed }).collect(),
            }
        }
        other => other,
    }
}
