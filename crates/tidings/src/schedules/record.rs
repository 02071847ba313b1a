//! A schedule and its runs as they are stored.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json};
use tidings_core::envelope::FieldError;
use tidings_core::time::{self, Timestamp};
use tidings_store::{Change, Condition, Error, Item, Key, KeyKind, Table, Value, Write};

use super::due::Progress;
use super::timing::{Said, Timing, kept_instant};
use crate::config::schedules::Missed;
use crate::origin::Origin;

/// Schedules in one partition, and the runs of each in one of its own.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-schedules", "kind", KeyKind::S).sort("id", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// The partition of the schedules.
pub const SCHEDULES: &str = "schedule";

/// The partition of those that the API made and that the file has one of the same name for.
const ASIDE: &str = "schedule-aside";

/// The partition of a schedule's runs.
#[must_use]
pub fn runs(name: &str) -> String {
    format!("run#{name}")
}

#[must_use]
pub fn key(name: &str) -> Key {
    Key::with_sort(SCHEDULES, name)
}

/// Where a schedule of this name is put aside.
#[must_use]
pub fn aside_key(name: &str) -> Key {
    Key::with_sort(ASIDE, name)
}

/// A schedule that is put aside.
///
/// # Errors
///
/// If it holds what an item cannot.
pub fn put_aside(schedule: &Schedule) -> Result<Item, Error> {
    Ok(schedule.to_item()?.with("kind", ASIDE))
}

/// What somebody wants to happen by the clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    pub cron: Option<String>,
    pub timezone: String,
    pub every: Option<String>,
    pub at: Option<String>,
    pub message_type: String,
    pub payload: Map<String, Json>,
    pub enabled: bool,
    pub missed: Missed,
}

impl Definition {
    #[must_use]
    pub fn said(&self) -> Said<'_> {
        Said {
            cron: self.cron.as_deref(),
            timezone: &self.timezone,
            every: self.every.as_deref(),
            at: self.at.as_deref(),
        }
    }

    fn same_timing(&self, other: &Self) -> bool {
        (&self.cron, &self.timezone, &self.every, &self.at) == (&other.cron, &other.timezone, &other.every, &other.at)
    }
}

/// A schedule, and how far it has come.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub name: String,
    pub origin: Origin,
    pub definition: Definition,
    /// When its timing became what it is; intervals are counted from here.
    pub anchor: Timestamp,
    /// Runs up to here are done with.
    pub done_until: Timestamp,
    /// Another one with each change of the definition: whoever fires a run that was due before fails.
    pub revision: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub updated_by: String,
}

impl Schedule {
    /// The schedule after somebody has written it. What was due before stays due unless the timing is another, or it was
    /// disabled in the meantime.
    #[must_use]
    pub fn written(
        name: &str,
        definition: Definition,
        origin: Origin,
        by: &str,
        revision: String,
        before: Option<&Self>,
        now: Timestamp,
    ) -> Self {
        // Whole seconds, so that the runs are at whole seconds, too.
        let now_second = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let same = before.filter(|before| before.definition.same_timing(&definition));
        let going_on = same.filter(|before| before.definition.enabled);
        Self {
            name: name.to_owned(),
            origin,
            definition,
            anchor: same.map_or(now_second, |before| before.anchor),
            done_until: going_on.map_or(now, |before| before.done_until),
            revision,
            created_at: before.map_or(now, |before| before.created_at),
            updated_at: now,
            updated_by: by.to_owned(),
        }
    }

    pub fn timing(&self) -> Result<Timing, Vec<FieldError>> {
        Timing::read(self.definition.said(), self.anchor)
    }

    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress { made: self.anchor, done_until: self.done_until }
    }

    pub fn to_item(&self) -> Result<Item, Error> {
        let definition = &self.definition;
        Ok(Item::new()
            .with("kind", SCHEDULES)
            .with("id", &self.name)
            .with("origin", self.origin.as_str())
            .with_some("cron", definition.cron.as_ref())
            .with("timezone", &definition.timezone)
            .with_some("every", definition.every.as_ref())
            .with_some("at", definition.at.as_ref())
            .with("message_type", &definition.message_type)
            .with("payload", Value::from_record(&definition.payload)?)
            .with("enabled", Value::Bool(definition.enabled))
            .with("missed", missed_name(definition.missed))
            .with("anchor", self.anchor.as_millisecond())
            .with("done_until", time::iso_micros(self.done_until))
            .with("revision", &self.revision)
            .with("created_at", time::iso_micros(self.created_at))
            .with("updated_at", time::iso_micros(self.updated_at))
            .with("updated_by", &self.updated_by))
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        let read = || {
            let text = |name: &str| item.str(name).map(ToOwned::to_owned);
            let at = |name: &str| item.str(name)?.parse::<Timestamp>().ok();
            let definition = Definition {
                cron: text("cron"),
                timezone: text("timezone")?,
                every: text("every"),
                // Earlier versions kept every digit.
                at: text("at").map(kept_instant),
                message_type: text("message_type")?,
                payload: item.get("payload")?.to_record().ok()?,
                enabled: item.get("enabled") == Some(&Value::Bool(true)),
                missed: missed_from(item.str("missed")?)?,
            };
            Some(Self {
                name: text("id")?,
                origin: Origin::parse(item.str("origin")?)?,
                definition,
                anchor: Timestamp::from_millisecond(item.int("anchor")?).ok()?,
                done_until: at("done_until")?,
                revision: text("revision")?,
                created_at: at("created_at")?,
                updated_at: at("updated_at")?,
                updated_by: text("updated_by")?,
            })
        };
        read().ok_or_else(|| Error::Corrupt("a stored schedule cannot be read".to_owned()))
    }

    /// Moves on to `done_until`, if nobody else has moved or changed the schedule.
    #[must_use]
    pub fn moved(&self, done_until: Timestamp) -> Write {
        let change = Change::Set("done_until".into(), Value::from(time::iso_micros(done_until)));
        Write::update(table(), key(&self.name), vec![change]).when(self.unchanged())
    }

    /// Holds while the schedule is as it was read.
    #[must_use]
    pub fn unchanged(&self) -> Condition {
        Condition::All(vec![
            Condition::Equals("revision".into(), Value::from(self.revision.clone())),
            Condition::Equals("done_until".into(), Value::from(time::iso_micros(self.done_until))),
        ])
    }
}

/// What became of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// When it was due.
    pub at: Timestamp,
    /// When something was done about it.
    pub done_at: Timestamp,
    pub outcome: Outcome,
    /// Whether it was made up for.
    pub late: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Fired {
        message_id: String,
    },
    /// It and those missed before it.
    Skipped,
    Failed {
        error: String,
    },
}

impl Run {
    #[must_use]
    pub fn to_item(&self, name: &str, keep_seconds: i64) -> Item {
        let (outcome, message_id, error) = match &self.outcome {
            Outcome::Fired { message_id } => ("fired", Some(message_id), None),
            Outcome::Skipped => ("skipped", None, None),
            Outcome::Failed { error } => ("failed", None, Some(error)),
        };
        Item::new()
            .with("kind", runs(name))
            .with("id", time::iso_millis(self.at))
            .with("done_at", time::iso_micros(self.done_at))
            .with("outcome", outcome)
            .with("late", Value::Bool(self.late))
            .with_some("message_id", message_id)
            .with_some("error", error)
            .with("ttl", self.done_at.as_second().saturating_add(keep_seconds))
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        let read = || {
            let outcome = match item.str("outcome")? {
                "fired" => Outcome::Fired { message_id: item.str("message_id")?.to_owned() },
                "skipped" => Outcome::Skipped,
                _ => Outcome::Failed { error: item.str("error").unwrap_or_default().to_owned() },
            };
            Some(Self {
                at: item.str("id")?.parse().ok()?,
                done_at: item.str("done_at")?.parse().ok()?,
                outcome,
                late: item.get("late") == Some(&Value::Bool(true)),
            })
        };
        read().ok_or_else(|| Error::Corrupt("a stored run of a schedule cannot be read".to_owned()))
    }
}

#[must_use]
pub const fn missed_name(missed: Missed) -> &'static str {
    match missed {
        Missed::Skip => "skip",
        Missed::Once => "once",
        Missed::All => "all",
    }
}

#[must_use]
pub fn missed_from(name: &str) -> Option<Missed> {
    [Missed::Skip, Missed::Once, Missed::All].into_iter().find(|missed| missed_name(*missed) == name)
}
