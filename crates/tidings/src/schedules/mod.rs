//! Schedules: messages that come by the clock (S002-66, SX-16).
//!
//! `timing` knows when (by cron: `calendar`), `due` decides what is to be done now, `worker` does it, `compose` makes the
//! message, `sample` is what a new store begins with, `file` brings those of the configuration, `http` is the API. No leader is
//! needed: a run's message has an id that follows from the schedule and the time, and it is made in the same transaction
//! that moves the schedule on.

pub(crate) mod calendar;
mod compose;
pub mod due;
mod file;
pub mod http;
pub(crate) mod read;
mod record;
pub mod sample;
pub mod timing;
mod worker;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::ids::IdSource;
use tidings_core::time::Timestamp;
use tidings_store::query::cursor_of;
use tidings_store::{Condition, Error, Item, Query, Store, Write};
use tokio::sync::Notify;

pub use crate::origin::Origin;
pub use compose::message_id;
pub use file::Told;
pub use record::{Definition, Outcome, Run, Schedule, missed_name, table};
pub use worker::Status;

use crate::config::schedules::Schedule as Configured;
use crate::messages::Messages;
use crate::messages::payload::keep_numbers;

/// Schedules there can be.
pub const MOST: usize = 1000;
/// Runs that are shown.
pub const SHOWN_RUNS: usize = 50;
/// A writer that meets another one tries so often.
const TRIES: usize = 10;

/// The schedules of this installation.
pub struct Schedules {
    store: Arc<dyn Store>,
    ids: Arc<dyn IdSource>,
    messages: Arc<Messages>,
    changed: Notify,
    /// When this process began to run; if the clock was set back since, the time to which.
    since: Mutex<Timestamp>,
    /// When the worker last did all that was due: by the wall clock, and by the monotonic one.
    looked: Mutex<Option<(Timestamp, Duration)>>,
}

impl Schedules {
    #[must_use]
    pub fn new(store: Arc<dyn Store>, ids: Arc<dyn IdSource>, messages: Arc<Messages>, since: Timestamp) -> Self {
        Self { store, ids, messages, changed: Notify::new(), since: Mutex::new(since), looked: Mutex::new(None) }
    }

    /// All of them, in the order of their names.
    pub async fn list(&self) -> Result<Vec<Schedule>, Error> {
        let mut schedules = Vec::new();
        let mut query = Query::new(record::SCHEDULES).limit(500);
        loop {
            let page = self.store.query(table(), &query).await?;
            for item in &page.items {
                schedules.push(Schedule::from_item(item)?);
            }
            if page.next.is_none() {
                return Ok(schedules);
            }
            query = query.after(page.next);
        }
    }

    /// A page of them, and where the next one begins. It ends early where they are large: an answer is hardly longer than a
    /// page of the store.
    pub async fn page(&self, limit: usize, after: Option<Item>) -> Result<(Vec<Schedule>, Option<Item>), Error> {
        // One more than is wanted tells whether there are more.
        let query = Query::new(record::SCHEDULES).limit(limit.saturating_add(1)).after(after);
        let mut page = self.store.query(table(), &query).await?;
        if page.items.len() > limit {
            page.items.truncate(limit);
            page.next = page.items.last().map(|last| cursor_of(table(), None, last));
        }
        let schedules = page.items.iter().map(Schedule::from_item).collect::<Result<_, _>>()?;
        Ok((schedules, page.next))
    }

    pub async fn get(&self, name: &str) -> Result<Option<Schedule>, Error> {
        self.store.get(table(), &record::key(name)).await?.map(|item| Schedule::from_item(&item)).transpose()
    }

    /// The last runs, newest first.
    pub async fn runs(&self, name: &str) -> Result<Vec<Run>, Error> {
        let query = Query::new(record::runs(name)).descending().limit(SHOWN_RUNS);
        let page = self.store.query(table(), &query).await?;
        page.items.iter().map(Run::from_item).collect()
    }

    /// What somebody wants, read and judged.
    pub fn read(&self, fields: &Map<String, Value>, now: Timestamp) -> Result<Definition, Vec<FieldError>> {
        read::definition(fields, now, |message_type, payload| self.messages.types.check(message_type, payload))
    }

    /// The schedule as it will be, and the write that makes it so if nobody comes in between.
    pub fn writing(
        &self,
        name: &str,
        definition: Definition,
        origin: Origin,
        by: &str,
        before: Option<&Schedule>,
        now: Timestamp,
    ) -> Result<(Schedule, Write), Error> {
        let revision = self.ids.uuid(now).to_string();
        let schedule = Schedule::written(name, definition, origin, by, revision, before, now);
        let condition = before.map_or(Condition::NotExists, Schedule::unchanged);
        let write = Write::put(table(), schedule.to_item()?).when(condition);
        Ok((schedule, write))
    }

    /// The write that deletes a schedule if nobody comes in between. Its runs stay until they expire.
    #[must_use]
    pub fn deleting(&self, schedule: &Schedule) -> Write {
        Write::delete(table(), record::key(&schedule.name)).when(schedule.unchanged())
    }

    /// Wakes the worker.
    pub fn notice_change(&self) {
        self.changed.notify_one();
    }
}

/// As it is kept, so that what is written in the same way later is the same.
impl From<&Configured> for Definition {
    fn from(configured: &Configured) -> Self {
        let mut payload = configured.payload.as_map().clone();
        keep_numbers(&mut payload);
        Self {
            cron: configured.cron.clone(),
            timezone: configured.timezone.clone(),
            every: configured.every.clone(),
            at: configured.at.clone().map(timing::kept_instant),
            message_type: configured.message_type.clone(),
            payload,
            enabled: configured.enabled,
            missed: configured.missed,
        }
    }
}
