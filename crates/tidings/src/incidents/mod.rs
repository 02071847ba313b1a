//! Incidents: monitors look at the figures, raise an incident when one is too high for too long, escalate it until
//! somebody acknowledges it, and resolve it when it is over (S003-105 to S003-108, SX-17, SX-18).
//!
//! `state` decides, purely; `record` is what is stored, so that a restart forgets nothing; `monitors` has the seed's
//! three and turns each monitor's targets into ordinary rules over `incident.*` events. Each change of an incident is
//! one transaction with its event and all that rules make of it.

pub mod gauges;
pub mod http;
pub mod monitors;
pub mod record;
pub mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;
use tidings_core::envelope::Envelope;
use tidings_core::ids::IdSource;
use tidings_core::time::{self, Clock, Timestamp};
use tidings_store::{Error, Item, Query, Store};
use uuid::Uuid;

use self::gauges::Gauges;
use self::record::Versioned;
use self::state::{Incident, State, Step, Turn, Watch};
use crate::audit::{Action, Audit};
use crate::config::Config;
use crate::config::monitors::Monitor;
use crate::ingest::{Arrival, Companions, Ingest};

/// The source of incidents' events.
pub const SOURCE: &str = "tidings/monitors";
const DAY_SECONDS: i64 = 86_400;
/// How often an acknowledgement tries again when the incident changed meanwhile.
const TRIES: usize = 10;

/// The incidents of this installation.
pub struct Incidents {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    ingest: Arc<Ingest>,
    gauges: Arc<dyn Gauges>,
    monitors: RwLock<Vec<Monitor>>,
    /// One round at a time: what one has decided, the next one sees.
    turn: tokio::sync::Mutex<()>,
    keep_seconds: i64,
}

/// What an acknowledgement came to.
#[derive(Debug)]
pub enum Acknowledged {
    /// The incident, whoever acknowledged it first.
    Yes(Box<Incident>),
    Unknown,
    /// It was over before.
    Over(Box<Incident>),
}

impl Incidents {
    #[must_use]
    pub fn new(ingest: &Arc<Ingest>, gauges: Arc<dyn Gauges>, config: &Config) -> Self {
        let days = i64::try_from(config.retention.events_days).unwrap_or(i64::MAX);
        Self {
            store: Arc::clone(&ingest.store),
            clock: Arc::clone(&ingest.clock),
            ids: Arc::clone(&ingest.ids),
            ingest: Arc::clone(ingest),
            gauges,
            monitors: RwLock::new(monitors::in_force(&config.monitors)),
            turn: tokio::sync::Mutex::default(),
            keep_seconds: days.saturating_mul(DAY_SECONDS),
        }
    }

    /// Watches by these monitors from now on.
    pub fn take_over(&self, configured: &[Monitor]) {
        *self.monitors.write().unwrap_or_else(PoisonError::into_inner) = monitors::in_force(configured);
    }

    /// Reads every monitor once and does what follows.
    pub async fn evaluate(&self) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let monitors = self.monitors.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut watches = self.watches().await?;
        for monitor in monitors.iter().filter(|monitor| monitor.enabled) {
            let Some(metric) = monitor.metric else { continue };
            for reading in self.gauges.read(metric).await? {
                if !reading.is_for(monitor.entity.as_deref()) {
                    continue;
                }
                let id = record::watch_id(&monitor.name, &reading.entity);
                let watch = watches.remove(&id);
                self.read_one(monitor, (&reading.entity, reading.value), (&id, watch)).await?;
            }
        }
        // Nobody looks at these any more: the entity or the monitor is gone, so the trouble is.
        for (id, watch) in watches {
            let (name, entity) = id.split_once('#').unwrap_or((&id, ""));
            let gone = Monitor { name: name.to_owned(), ..Monitor::default() };
            self.read_one(&gone, (entity, 0.0), (&id, Some(watch))).await?;
        }
        Ok(())
    }

    async fn watches(&self) -> Result<BTreeMap<String, Versioned<Watch>>, Error> {
        let mut all = BTreeMap::new();
        let mut query = Query::new(record::WATCHES).limit(500);
        loop {
            let page = self.store.query(record::table(), &query).await?;
            for item in &page.items {
                let (id, watch) = record::read_watch(item)?;
                all.insert(id, watch);
            }
            if page.next.is_none() {
                return Ok(all);
            }
            query = query.after(page.next);
        }
    }

    /// What one reading changes. A change that another node made first is left to the next round.
    async fn read_one(
        &self,
        monitor: &Monitor,
        (entity, value): (&str, f64),
        (id, watch): (&str, Option<Versioned<Watch>>),
    ) -> Result<(), Error> {
        let now = self.clock.now();
        let known = watch.as_ref().and_then(|watch| watch.value.incident.as_deref());
        let incident = match known {
            Some(known) => self.stored(known).await?,
            None => None,
        };
        let (before, current) = (watch.as_ref(), incident.as_ref().map(|incident| &incident.value));
        let new_id = || self.ids.uuid(now).to_string();
        let outcome = match state::step(monitor, (entity, value), before.map(|w| &w.value), current, now, new_id) {
            Step::Nothing => return Ok(()),
            Step::Watch(watch) => {
                self.store.transact(record::put_watch(id, before, Some(&watch)).into_iter().collect()).await
            }
            Step::Forget => self.store.transact(record::put_watch(id, before, None).into_iter().collect()).await,
            Step::Change { turn, incident: changed, watch } => {
                let version = incident.filter(|before| before.value.id == changed.id).map(|before| before.version);
                let mut writes = vec![record::put_incident(&changed, version, self.keep_seconds)];
                writes.extend(record::put_watch(id, before, watch.as_ref()));
                self.tell(turn, &changed, now, writes).await.map(drop)
            }
        };
        match outcome {
            Err(Error::Conflict { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Stores a change of an incident together with the event that says so.
    async fn tell(
        &self,
        turn: Turn,
        incident: &Incident,
        now: Timestamp,
        writes: Vec<tidings_store::Write>,
    ) -> Result<(), Error> {
        let arrival =
            Arrival { envelope: event(turn, incident, now), with: Companions { writes, ..Companions::default() } };
        for outcome in self.ingest.accept_each(vec![arrival]).await? {
            outcome?;
        }
        tracing::warn!(
            incident = incident.id,
            monitor = incident.monitor,
            entity = incident.entity,
            value = incident.value,
            "{}",
            turn.event_type()
        );
        Ok(())
    }

    async fn stored(&self, id: &str) -> Result<Option<Versioned<Incident>>, Error> {
        let key = record::incident_key(id);
        // What can be no key is no incident's.
        if record::table().check_key(&key).is_err() {
            return Ok(None);
        }
        let item = self.store.get(record::table(), &key).await?;
        item.as_ref().map(record::read_incident).transpose()
    }

    pub async fn get(&self, id: &str) -> Result<Option<Incident>, Error> {
        Ok(self.stored(id).await?.map(|stored| stored.value))
    }

    /// The incident of a correlation id, which is its own: at most one, so that there is nothing to look through.
    pub async fn of_correlation(&self, id: &str, state: Option<State>) -> Result<Vec<Incident>, Error> {
        let found = self.get(id).await?.filter(|found| state.is_none_or(|state| found.state == state));
        Ok(found.into_iter().collect())
    }

    /// A page, newest first.
    pub async fn page(
        &self,
        state: Option<State>,
        limit: usize,
        after: Option<Item>,
    ) -> Result<(Vec<Incident>, Option<Item>), Error> {
        let query = match state {
            Some(state) => Query::new(state.as_str()).index(record::BY_STATE),
            None => Query::new(record::INCIDENTS),
        };
        let page = self.store.query(record::table(), &query.descending().limit(limit).after(after)).await?;
        let incidents = page.items.iter().map(|item| record::read_incident(item).map(|found| found.value));
        Ok((incidents.collect::<Result<_, _>>()?, page.next))
    }

    /// Somebody takes care of an incident: it does not escalate any more.
    pub async fn acknowledge(
        &self,
        audit: &Audit,
        id: &str,
        (by, correlation_id): (&str, &str),
        note: Option<String>,
    ) -> Result<Acknowledged, Error> {
        for _ in 0..TRIES {
            let Some(stored) = self.stored(id).await? else { return Ok(Acknowledged::Unknown) };
            let now = self.clock.now();
            let Some(changed) = stored.value.acknowledged(by, note.clone(), now) else {
                let found = Box::new(stored.value);
                let over = found.state == State::Resolved;
                return Ok(if over { Acknowledged::Over(found) } else { Acknowledged::Yes(found) });
            };
            let action = Action::new("incident.acknowledge", "incident", id).details(json!({ "note": note }));
            let written = audit
                .record_within(by, correlation_id, action, |mut writes| {
                    writes.push(record::put_incident(&changed, Some(stored.version), self.keep_seconds));
                    self.tell(Turn::Acknowledged, &changed, now, writes)
                })
                .await;
            match written {
                Ok(_) => return Ok(Acknowledged::Yes(Box::new(changed))),
                // It escalated or was resolved in this moment.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Throttled("the incident is contended".to_owned()))
    }
}

/// The event that says what became of an incident. All events of one incident share its id as their correlation id.
fn event(turn: Turn, incident: &Incident, now: Timestamp) -> Envelope {
    let mut data = http::view(incident);
    if let Some(data) = data.as_object_mut() {
        data.insert("summary".to_owned(), summary(turn, incident).into());
    }
    let seed = format!("{} {} {}", incident.id, turn.event_type(), incident.escalations);
    Envelope {
        event_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, seed.as_bytes()).to_string(),
        event_type: turn.event_type().to_owned(),
        event_version: "1.0".to_owned(),
        event_timestamp: now,
        correlation_id: incident.id.clone(),
        source: Some(SOURCE.to_owned()),
        subject: Some(incident.entity.clone()),
        data: data.to_string(),
        extensions: Vec::new(),
    }
}

/// One line that says what is wrong.
fn summary(turn: Turn, incident: &Incident) -> String {
    let Incident { entity, value, above, .. } = incident;
    let what = match incident.metric.as_str() {
        "dead_letters" => format!("{entity} has {value} dead letters"),
        "active_messages" => format!("{entity} has {value} messages waiting, more than {above}"),
        "dead_letter_share" => {
            format!(
                "the dead letters of {entity} take {:.0} % of deadLetterMaxBytes; at 100 % it takes no messages",
                value * 100.0
            )
        }
        _ if entity != gauges::END_TO_END => {
            format!("the first delivery of {entity} takes {value:.1} s (P99), more than {above} s")
        }
        _ => format!("delivery takes {value:.1} s (P99), more than {above} s"),
    };
    match turn {
        Turn::Raised => what,
        Turn::Escalated => format!("Not acknowledged: {what}"),
        Turn::Acknowledged => format!("Acknowledged: {what}"),
        Turn::Resolved => format!("Resolved: {} of {entity} is back to {value}", incident.monitor),
    }
}

/// A moment as it is shown.
fn shown(at: Option<Timestamp>) -> Option<String> {
    at.map(time::iso_micros)
}
