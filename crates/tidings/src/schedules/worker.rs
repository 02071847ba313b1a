//! The worker: looks what is due, makes the messages, and sleeps until the next run.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use tidings_core::time::{self, Clock, Timestamp};
use tidings_store::{Condition, Error, Query, Range, Write};
use tokio::sync::watch;

use super::Schedules;
use super::compose::compose;
use super::due::{Action, Due, Tick, due};
use super::record::{self, Outcome, Run, Schedule, table};
use crate::workers::turned_true;

/// The longest sleep: a wall clock that was set must be noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// The same where other nodes make schedules, too: nobody says so here, and the one that knows may be gone.
const LONGEST_AMONG_NODES: Duration = Duration::from_secs(1);
/// A wall clock that goes ahead of the time that has passed by no more than this is being set right, and has not jumped.
const STEP: SignedDuration = SignedDuration::from_secs(10);

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
            let (now, at) = (clock.now(), clock.monotonic());
            let next = match self.look(now, at).await {
                Ok(status) => status.next,
                Err(error) => {
                    tracing::warn!(worker = "schedules", %error, "worker failed; it will be tried again");
                    None
                }
            };
            // Counted from the look by the time that passes: the wall clock may have been set since.
            let until = next.map(|next| Duration::try_from(next.duration_since(now)).unwrap_or(Duration::ZERO));
            let sleep = until.map_or(longest, |until| until.saturating_sub(clock.monotonic().saturating_sub(at)));
            tokio::select! {
                () = tokio::time::sleep(sleep.min(longest)) => {}
                () = self.changed.notified() => {}
                () = turned_true(&mut stop) => return,
            }
        }
    }

    /// Does what is due by the wall clock, `now`, at the monotonic time `at`. If the wall clock has jumped ahead since the
    /// look before, what lies between fell into no time at all: it was missed, and only what would have been due anyway
    /// is on time.
    pub async fn look(&self, now: Timestamp, at: Duration) -> Result<Status, Error> {
        let before = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = before.and_then(|(_, before)| SignedDuration::try_from(at.saturating_sub(before)).ok());
        let jumped = before.zip(passed).and_then(|((wall, _), passed)| {
            let ahead = now.duration_since(wall).checked_sub(passed).is_some_and(|ahead| ahead > STEP);
            if ahead { now.checked_sub(passed).ok() } else { None }
        });
        let since = self.running_since(now);
        let status = self.activate_since(jumped.map_or(since, |jumped| jumped.max(since)), now).await?;
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, at));
        Ok(status)
    }

    fn running_since(&self, now: Timestamp) -> Timestamp {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = now.min(*since);
        *since
    }

    /// Does everything that is due at `now`. Called twice, it does nothing the second time; called by two at once, each
    /// run is made by one of them.
    pub async fn activate(&self, now: Timestamp) -> Result<Status, Error> {
        self.activate_since(self.running_since(now), now).await
    }

    async fn activate_since(&self, since: Timestamp, now: Timestamp) -> Result<Status, Error> {
        let mut status = Status::default();
        for mut schedule in self.list().await? {
            if !schedule.definition.enabled {
                continue;
            }
            let Ok(timing) = schedule.timing() else {
                tracing::warn!(schedule = schedule.name, "the schedule's timing cannot be read; it is left out");
                continue;
            };
            let missed = schedule.definition.missed;
            let mut todo = due(&timing, missed, schedule.progress(), since, now);
            if todo == Due::GoBack {
                let to = self.done_before(&schedule, now).await?;
                tracing::warn!(schedule = schedule.name, from = %schedule.done_until, %to, "the clock was set back");
                if self.attempt(vec![schedule.moved(to)]).await? {
                    schedule.done_until = to;
                    todo = due(&timing, missed, schedule.progress(), since, now);
                }
            }
            if let Due::Ticks(ticks) = todo {
                status.fired += self.fire_all(schedule, ticks, now).await?;
            }
            let next = timing.next_after(now);
            status.next = status.next.into_iter().chain(next).min();
        }
        Ok(status)
    }

    /// How far a schedule had come when its clock, which is ahead, said `now`: to its last run until then, or to when it
    /// became what it is.
    async fn done_before(&self, schedule: &Schedule, now: Timestamp) -> Result<Timestamp, Error> {
        let until = Range::AtMost(time::iso_millis(now).into());
        let query = Query::new(record::runs(&schedule.name)).range(until).descending().limit(1);
        let page = self.store.query(table(), &query).await?;
        let last = page.items.first().map(Run::from_item).transpose()?.map(|run| run.at);
        Ok(schedule.updated_at.max(last.unwrap_or(Timestamp::MIN)).min(now))
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
            // One that was made before the clock was set back stays what it is.
            let skipped = run(Outcome::Skipped).when(Condition::NotExists);
            let done = match self.store.transact(vec![moved.clone(), skipped]).await {
                Ok(()) => true,
                Err(error @ Error::Conflict { .. }) if error.conflict_on(0).is_none() => {
                    self.attempt(vec![moved]).await?
                }
                Err(Error::Conflict { .. }) => false,
                Err(error) => return Err(error),
            };
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
