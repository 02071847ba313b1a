//! The worker: looks what is due, makes the messages, and sleeps until the next run.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidings_core::time::{Clock, Timestamp};
use tidings_store::{Error, Write};
use tokio::sync::watch;

use super::Schedules;
use super::compose::compose;
use super::due::{Action, Due, Tick, due};
use super::record::{Outcome, Run, Schedule, table};
use crate::workers::turned_true;

/// The longest sleep: a wall clock that was set must be noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// The same where other nodes make schedules, too: nobody says so here, and the one that knows may be gone.
const LONGEST_AMONG_NODES: Duration = Duration::from_secs(1);

/// What an activation came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Status {
    /// Messages that were made.
    pub fired: usize,
    /// When the next run is due.
    pub next: Option<Timestamp>,
}

impl Schedules {
    /// Works until the server stops. `shared`: other nodes do, too, on the same store.
    pub async fn run(self: Arc<Self>, clock: Arc<dyn Clock>, shared: bool, mut stop: watch::Receiver<bool>) {
        let longest = if shared { LONGEST_AMONG_NODES } else { LONGEST_SLEEP };
        loop {
            let next = match self.activate(clock.now()).await {
                Ok(status) => status.next,
                Err(error) => {
                    tracing::warn!(worker = "schedules", %error, "worker failed; it will be tried again");
                    None
                }
            };
            let until = next.map(|next| next.duration_since(clock.now()));
            let sleep = until.map_or(longest, |until| Duration::try_from(until).unwrap_or(Duration::ZERO));
            tokio::select! {
                () = tokio::time::sleep(sleep.min(longest)) => {}
                () = self.changed.notified() => {}
                () = turned_true(&mut stop) => return,
            }
        }
    }

    fn running_since(&self, now: Timestamp) -> Timestamp {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = now.min(*since);
        *since
    }

    /// Does everything that is due at `now`. Called twice, it does nothing the second time; called by two at once, each
    /// run is made by one of them.
    pub async fn activate(&self, now: Timestamp) -> Result<Status, Error> {
        let since = self.running_since(now);
        let mut status = Status::default();
        for schedule in self.list().await? {
            if !schedule.definition.enabled {
                continue;
            }
            let Ok(timing) = schedule.timing() else {
                tracing::warn!(schedule = schedule.name, "the schedule's timing cannot be read; it is left out");
                continue;
            };
            match due(&timing, schedule.definition.missed, schedule.done_until, since, now) {
                Due::GoBack(to) => {
                    tracing::warn!(schedule = schedule.name, from = %schedule.done_until, %to, "the clock was set back");
                    self.attempt(vec![schedule.moved(to)]).await?;
                }
                Due::Ticks(ticks) => status.fired += self.fire_all(schedule, ticks, now).await?,
            }
            let next = timing.next_after(now);
            status.next = status.next.into_iter().chain(next).min();
        }
        Ok(status)
    }

    async fn fire_all(&self, mut schedule: Schedule, ticks: Vec<Tick>, now: Timestamp) -> Result<usize, Error> {
        let mut fired = 0;
        for tick in ticks {
            match self.fire(&schedule, tick, now).await? {
                Fired::Made => fired += 1,
                Fired::Nothing => {}
                // Somebody else was here or changed it; the next activation sees what is left.
                Fired::Overtaken => break,
            }
            schedule.done_until = tick.at;
        }
        Ok(fired)
    }

    /// One run, in one transaction with the schedule's moving on.
    async fn fire(&self, schedule: &Schedule, tick: Tick, now: Timestamp) -> Result<Fired, Error> {
        let late = tick.action != Action::Fire;
        let run = |outcome| {
            let run = Run { at: tick.at, done_at: now, outcome, late };
            Write::put(table(), run.to_item(&schedule.name, self.messages.keep_seconds()))
        };
        let moved = schedule.moved(tick.at);
        if tick.action == Action::Skip {
            let done = self.attempt(vec![moved, run(Outcome::Skipped)]).await?;
            return Ok(if done { Fired::Nothing } else { Fired::Overtaken });
        }
        let message = match compose(&self.messages, &schedule.name, &schedule.definition, tick.at, now) {
            Ok(message) => message,
            Err(errors) => {
                let error = errors.iter().map(|e| format!("{} {}", e.field, e.message)).collect::<Vec<_>>().join("; ");
                tracing::warn!(schedule = schedule.name, error, "a scheduled message cannot be made");
                let done = self.attempt(vec![moved, run(Outcome::Failed { error })]).await?;
                return Ok(if done { Fired::Nothing } else { Fired::Overtaken });
            }
        };
        let mut writes = vec![moved.clone(), run(Outcome::Fired { message_id: message.message_id.clone() })];
        writes.extend(self.messages.creation(std::slice::from_ref(&message))?);
        match self.store.transact(writes).await {
            Ok(()) => {
                self.messages.signals.created([&message]);
                Ok(Fired::Made)
            }
            Err(error @ Error::Conflict { .. }) if error.conflict_on(0).is_none() => {
                // The message is there: this run was made before the clock was set back.
                Ok(if self.attempt(vec![moved]).await? { Fired::Nothing } else { Fired::Overtaken })
            }
            Err(Error::Conflict { .. }) => Ok(Fired::Overtaken),
            Err(error) => Err(error),
        }
    }

    /// Whether the writes went through; nobody minds if somebody else was faster.
    async fn attempt(&self, writes: Vec<Write>) -> Result<bool, Error> {
        match self.store.transact(writes).await {
            Ok(()) => Ok(true),
            Err(Error::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

enum Fired {
    Made,
    /// Done with, without a new message.
    Nothing,
    Overtaken,
}
