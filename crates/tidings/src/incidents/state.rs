//! What a monitor's reading makes of an incident. Pure: the time is an argument.

use std::time::Duration;

use tidings_core::time::Timestamp;

use crate::config::monitors::{Monitor, Severity};

/// What is remembered of a reading that is too high, until it is not any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub above_since: Timestamp,
    /// The incident that came of it.
    pub incident: Option<String>,
}

/// How far an incident has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Open,
    /// Somebody looks after it: it does not escalate any more.
    Acknowledged,
    Resolved,
}

impl State {
    pub const ALL: [Self; 3] = [Self::Open, Self::Acknowledged, Self::Resolved];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Acknowledged => "acknowledged",
            Self::Resolved => "resolved",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// Something that is wrong, from when it was noticed until it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    pub id: String,
    pub monitor: String,
    pub metric: String,
    /// What is wrong there: a queue's or subscription's path.
    pub entity: String,
    pub severity: Severity,
    pub state: State,
    /// The last reading, the highest, and what it must not exceed.
    pub value: f64,
    pub peak: f64,
    pub above: f64,
    pub above_since: Timestamp,
    pub raised_at: Timestamp,
    /// Escalates then, unless somebody acknowledges it before.
    pub escalate_at: Option<Timestamp>,
    pub escalations: u32,
    pub acknowledged_at: Option<Timestamp>,
    pub acknowledged_by: Option<String>,
    pub note: Option<String>,
    pub resolved_at: Option<Timestamp>,
}

/// What somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Raised,
    Escalated,
    Acknowledged,
    Resolved,
}

impl Turn {
    #[must_use]
    pub const fn event_type(self) -> &'static str {
        match self {
            Self::Raised => "incident.raised",
            Self::Escalated => "incident.escalated",
            Self::Acknowledged => "incident.acknowledged",
            Self::Resolved => "incident.resolved",
        }
    }
}

/// What a reading changes.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Nothing,
    /// Too high, and not for long enough yet.
    Watch(Watch),
    /// Not too high any more, before anybody had to be told.
    Forget,
    /// An incident that is new or has changed, and what is remembered from now on.
    Change {
        turn: Turn,
        incident: Box<Incident>,
        watch: Option<Watch>,
    },
}

/// What a reading of `entity` makes of what is known.
pub fn step(
    monitor: &Monitor,
    (entity, value): (&str, f64),
    watch: Option<&Watch>,
    incident: Option<&Incident>,
    now: Timestamp,
    new_id: impl FnOnce() -> String,
) -> Step {
    let unresolved = incident.filter(|incident| incident.state != State::Resolved);
    if value <= monitor.above {
        return match (watch, unresolved) {
            (None, _) => Step::Nothing,
            (Some(_), None) => Step::Forget,
            (Some(_), Some(incident)) => Step::Change {
                turn: Turn::Resolved,
                incident: Box::new(Incident {
                    state: State::Resolved,
                    value,
                    escalate_at: None,
                    resolved_at: Some(now),
                    ..incident.clone()
                }),
                watch: None,
            },
        };
    }
    let Some(watch) = watch else {
        let watch = Watch { above_since: now, incident: None };
        return if monitor.for_seconds == 0 {
            raised(monitor, (entity, value), &watch, now, new_id)
        } else {
            Step::Watch(watch)
        };
    };
    match unresolved {
        Some(incident) => escalated(monitor, incident, watch, value, now),
        None if after(watch.above_since, monitor.for_seconds) <= now => {
            raised(monitor, (entity, value), watch, now, new_id)
        }
        None => Step::Nothing,
    }
}

fn raised(
    monitor: &Monitor,
    (entity, value): (&str, f64),
    watch: &Watch,
    now: Timestamp,
    new_id: impl FnOnce() -> String,
) -> Step {
    let incident = Incident {
        id: new_id(),
        monitor: monitor.name.clone(),
        metric: monitor.metric.map_or("", super::monitors::metric_name).to_owned(),
        entity: entity.to_owned(),
        severity: monitor.severity,
        state: State::Open,
        value,
        peak: value,
        above: monitor.above,
        above_since: watch.above_since,
        raised_at: now,
        escalate_at: (monitor.acknowledge_seconds > 0).then(|| after(now, monitor.acknowledge_seconds)),
        escalations: 0,
        acknowledged_at: None,
        acknowledged_by: None,
        note: None,
        resolved_at: None,
    };
    let watch = Watch { above_since: watch.above_since, incident: Some(incident.id.clone()) };
    Step::Change { turn: Turn::Raised, incident: Box::new(incident), watch: Some(watch) }
}

/// Unacknowledged for too long, it goes a step further, and again after as long (S003-108).
fn escalated(monitor: &Monitor, incident: &Incident, watch: &Watch, value: f64, now: Timestamp) -> Step {
    let due = incident.state == State::Open && incident.escalate_at.is_some_and(|at| at <= now);
    if !due {
        return Step::Nothing;
    }
    let incident = Incident {
        value,
        peak: incident.peak.max(value),
        escalations: incident.escalations.saturating_add(1),
        escalate_at: (monitor.acknowledge_seconds > 0).then(|| after(now, monitor.acknowledge_seconds)),
        ..incident.clone()
    };
    Step::Change { turn: Turn::Escalated, incident: Box::new(incident), watch: Some(watch.clone()) }
}

impl Incident {
    /// The incident once somebody looks after it; `None` if it is over or somebody does already.
    #[must_use]
    pub fn acknowledged(&self, by: &str, note: Option<String>, now: Timestamp) -> Option<Self> {
        (self.state == State::Open).then(|| Self {
            state: State::Acknowledged,
            escalate_at: None,
            acknowledged_at: Some(now),
            acknowledged_by: Some(by.to_owned()),
            note,
            ..self.clone()
        })
    }
}

fn after(at: Timestamp, seconds: u64) -> Timestamp {
    at.saturating_add(Duration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
