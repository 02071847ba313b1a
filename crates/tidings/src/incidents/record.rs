//! Incidents as they are stored, and what is remembered of readings that are too high.

use std::sync::LazyLock;

use tidings_core::time::Timestamp;
use tidings_store::{Condition, Error, Item, Key, KeyKind, Table, Write};

use super::monitors::{severity_name, severity_of};
use super::state::{Incident, State, Watch};

/// Incidents in one partition, in the order in which they were raised; watches in another.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-incidents", "kind", KeyKind::S)
            .sort("id", KeyKind::S)
            .index("state-index", ("state".into(), KeyKind::S), Some(("id".into(), KeyKind::S)))
            .ttl("ttl")
    });
    &TABLE
}

pub const INCIDENTS: &str = "incident";
pub const WATCHES: &str = "watch";
pub const BY_STATE: &str = "state-index";

#[must_use]
pub fn incident_key(id: &str) -> Key {
    Key::with_sort(INCIDENTS, id)
}

/// What tells one watch from another.
#[must_use]
pub fn watch_id(monitor: &str, entity: &str) -> String {
    format!("{monitor}#{entity}")
}

/// A stored thing, and the version that a change of it must find.
#[derive(Debug, Clone)]
pub struct Versioned<T> {
    pub value: T,
    pub version: i64,
}

/// The write that puts `watch` in the place of what was there; both absent makes none.
#[must_use]
pub fn put_watch(id: &str, before: Option<&Versioned<Watch>>, watch: Option<&Watch>) -> Option<Write> {
    let unchanged = unchanged(before.map(|before| before.version));
    match watch {
        Some(watch) => {
            let item = Item::new()
                .with("kind", WATCHES)
                .with("id", id)
                .with("above_since", watch.above_since.as_microsecond())
                .with_some("incident", watch.incident.as_ref())
                .with("version", before.map_or(1, |before| before.version + 1));
            Some(Write::put(table(), item).when(unchanged))
        }
        None => before.map(|_| Write::delete(table(), Key::with_sort(WATCHES, id)).when(unchanged)),
    }
}

pub fn read_watch(item: &Item) -> Result<(String, Versioned<Watch>), Error> {
    let read = || {
        let watch = Watch {
            above_since: Timestamp::from_microsecond(item.int("above_since")?).ok()?,
            incident: item.str("incident").map(ToOwned::to_owned),
        };
        Some((item.str("id")?.to_owned(), Versioned { value: watch, version: item.int("version")? }))
    };
    read().ok_or_else(|| Error::Corrupt("a monitor's watch cannot be read".to_owned()))
}

/// The write that stores an incident in the place of its version before; a resolved one is kept for `keep_seconds`.
#[must_use]
pub fn put_incident(incident: &Incident, before: Option<i64>, keep_seconds: i64) -> Write {
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_microsecond);
    let item = Item::new()
        .with("kind", INCIDENTS)
        .with("id", &incident.id)
        .with("state", incident.state.as_str())
        .with("monitor", &incident.monitor)
        .with("metric", &incident.metric)
        .with("entity", &incident.entity)
        .with("severity", severity_name(incident.severity))
        // Text keeps every digit of a reading.
        .with("value", incident.value.to_string())
        .with("peak", incident.peak.to_string())
        .with("above", incident.above.to_string())
        .with("above_since", incident.above_since.as_microsecond())
        .with("raised_at", incident.raised_at.as_microsecond())
        .with_some("escalate_at", micros(incident.escalate_at))
        .with("escalations", i64::from(incident.escalations))
        .with_some("acknowledged_at", micros(incident.acknowledged_at))
        .with_some("acknowledged_by", incident.acknowledged_by.as_ref())
        .with_some("note", incident.note.as_ref())
        .with_some("resolved_at", micros(incident.resolved_at))
        .with_some("ttl", incident.resolved_at.map(|at| at.as_second().saturating_add(keep_seconds)))
        .with("version", before.unwrap_or(0) + 1);
    Write::put(table(), item).when(unchanged(before))
}

pub fn read_incident(item: &Item) -> Result<Versioned<Incident>, Error> {
    let moment = |name: &str| item.int(name).and_then(|at| Timestamp::from_microsecond(at).ok());
    let number = |name: &str| item.str(name)?.parse::<f64>().ok();
    let text = |name: &str| item.str(name).map(ToOwned::to_owned);
    let read = || {
        let incident = Incident {
            id: text("id")?,
            monitor: text("monitor")?,
            metric: text("metric")?,
            entity: text("entity")?,
            severity: severity_of(item.str("severity")?),
            state: State::parse(item.str("state")?)?,
            value: number("value")?,
            peak: number("peak")?,
            above: number("above")?,
            above_since: moment("above_since")?,
            raised_at: moment("raised_at")?,
            escalate_at: moment("escalate_at"),
            escalations: u32::try_from(item.int("escalations")?).ok()?,
            acknowledged_at: moment("acknowledged_at"),
            acknowledged_by: text("acknowledged_by"),
            note: text("note"),
            resolved_at: moment("resolved_at"),
        };
        Some(Versioned { value: incident, version: item.int("version")? })
    };
    read().ok_or_else(|| Error::Corrupt("an incident cannot be read".to_owned()))
}

fn unchanged(version: Option<i64>) -> Condition {
    match version {
        Some(version) => Condition::Equals("version".into(), version.into()),
        None => Condition::NotExists,
    }
}
