//! How deliveries end: settlements by their receivers, and what happens to messages on their own.

use std::sync::Arc;
use std::time::Duration;

use tidings_core::time::Timestamp;
use tidings_store::{Error, Write};
use uuid::Uuid;

use super::doubts::Doubt;
use super::history::End;
use super::layout::{Delta, Place};
use super::line::{Line, LineError};
use super::message::{Attempt, DEFERRED, REASON_CHARS, Stored};
use super::prepared::Prepared;
use super::state::{Action, Held, Now, Settings, State, Taken};
use crate::http::see_through;

/// What a receiver wants of a message it has.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// It is done.
    Complete,
    /// Again, after the line's own wait or this one.
    Abandon {
        delay: Option<Duration>,
        why: Why,
    },
    DeadLetter(Why),
    /// Not now: it is received by its number, when somebody asks for it.
    Defer,
    /// The receiver needs more time.
    Renew,
}

/// What a receiver says of a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Why {
    pub reason: Option<String>,
    pub description: Option<String>,
}

impl Why {
    fn is_empty(&self) -> bool {
        self.reason.is_none() && self.description.is_none()
    }
}

impl Settlement {
    /// Back to the line, without a word.
    #[must_use]
    pub fn abandon() -> Self {
        Self::Abandon { delay: None, why: Why::default() }
    }

    pub fn dead_letter(reason: impl Into<String>, description: impl Into<String>) -> Self {
        Self::DeadLetter(Why { reason: Some(reason.into()), description: Some(description.into()) })
    }
}

/// What came of a settlement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    Done,
    LockedUntil(Timestamp),
}

/// A settlement that needs the store.
pub(super) struct Move {
    pub place: usize,
    pub token: Uuid,
    pub held: Held,
    pub settlement: Settlement,
    /// Whether the delivery was written down before the message was handed out.
    pub recorded: bool,
}

impl Move {
    fn complete(token: Uuid, held: Held) -> Self {
        Self { place: 0, token, held, settlement: Settlement::Complete, recorded: true }
    }
}

impl Line {
    /// Settles messages, each on its own; many together cost little more than one.
    pub async fn settle(self: &Arc<Self>, settlements: Vec<(Uuid, Settlement)>) -> Vec<Result<Settled, LineError>> {
        self.settle_apart(settlements, true).await
    }

    /// The same for messages whose delivery is not written down.
    pub(super) async fn settle_unrecorded(
        self: &Arc<Self>,
        settlements: Vec<(Uuid, Settlement)>,
    ) -> Vec<Result<Settled, LineError>> {
        self.settle_apart(settlements, false).await
    }

    async fn settle_apart(
        self: &Arc<Self>,
        settlements: Vec<(Uuid, Settlement)>,
        recorded: bool,
    ) -> Vec<Result<Settled, LineError>> {
        let line = Arc::clone(self);
        // Who asked may go away, but what is half done must be finished.
        see_through(Box::pin(async move { line.settle_all(settlements, recorded).await })).await
    }

    pub async fn settle_one(self: &Arc<Self>, token: Uuid, settlement: Settlement) -> Result<Settled, LineError> {
        self.settle(vec![(token, settlement)]).await.pop().unwrap_or(Err(LineError::LockLost))
    }

    /// Completes a message together with its effect: both, or neither (S003-111).
    pub async fn complete_with(self: &Arc<Self>, token: Uuid, effect: Vec<Write>) -> Result<(), LineError> {
        let now = self.now();
        let held = self.state().begin_settle(&token, now).ok_or(LineError::LockLost)?;
        let line = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut prepared = Prepared::default();
            prepared.fence(&line, held.epoch);
            line.complete(&held, &mut prepared);
            effect.into_iter().for_each(|write| prepared.write(write));
            match prepared.run(&*line.shared.store).await {
                Ok(_) => {
                    line.left(&[Move::complete(token, held)], now);
                    Ok(())
                }
                Err(error) if line.is_in_doubt(&error) && !matches!(error, Error::Conflict { .. }) => {
                    let step = Move::complete(token, held);
                    let outcome = line.clear_up(vec![step], &error, now).await.pop();
                    outcome.map_or(Err(LineError::Unknown), |(_, outcome)| outcome.map(drop))
                }
                Err(error) => {
                    line.state().unsettled(&token);
                    if matches!(error, Error::Conflict { .. }) {
                        line.shared.doubt();
                    }
                    Err(error.into())
                }
            }
        });
        match task.await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Throttled("the settlement was interrupted".to_owned()).into()),
        }
    }

    /// A message that was received is in somebody else's care: its lock does not run out. `None`: it is lost.
    pub(super) fn keep(&self, taken: &Taken) -> Option<Held> {
        self.state().begin_settle(&taken.token, self.now())
    }

    /// Carries out what becomes of one that was kept. If that fails, it is still kept.
    pub(super) async fn end_kept(
        self: &Arc<Self>,
        token: Uuid,
        held: &Held,
        is_completed: bool,
        prepared: Prepared,
    ) -> Result<(), LineError> {
        if self.is_closed() {
            return Err(LineError::Gone);
        }
        let (line, held) = (Arc::clone(self), held.clone());
        // As in `settle`: what is half done must be finished.
        let task = tokio::spawn(async move {
            prepared.run(&*line.shared.store).await?;
            line.state().settled(&token);
            if is_completed {
                line.watch.completed([&held], line.now().wall);
            }
            line.wake(1);
            Ok(())
        });
        match task.await {
            Ok(Err(error @ Error::Conflict { .. })) if self.fence.is_lost(&error) => {
                self.shared.doubt();
                Err(LineError::Elsewhere)
            }
            // It was gone: an earlier try went through, and nobody heard of it.
            Ok(Err(Error::Conflict { .. })) => {
                self.state().settled(&token);
                Ok(())
            }
            Ok(outcome) => outcome.map_err(LineError::from),
            Err(_) => Err(Error::Throttled("the settlement was interrupted".to_owned()).into()),
        }
    }

    async fn settle_all(
        self: &Arc<Self>,
        settlements: Vec<(Uuid, Settlement)>,
        recorded: bool,
    ) -> Vec<Result<Settled, LineError>> {
        if self.is_closed() {
            return settlements.iter().map(|_| Err(LineError::Gone)).collect();
        }
        if !self.is_ours() {
            return settlements.iter().map(|_| Err(LineError::Elsewhere)).collect();
        }
        let now = self.now();
        let (mut outcomes, moves) = self.settle_at_once(settlements, recorded, now);
        for (place, outcome) in self.move_all(moves, now).await {
            if let Some(slot) = outcomes.get_mut(place) {
                *slot = outcome;
            }
        }
        outcomes
    }

    /// Does what needs no store; says what came of it, and what needs one.
    fn settle_at_once(
        self: &Arc<Self>,
        settlements: Vec<(Uuid, Settlement)>,
        recorded: bool,
        now: Now,
    ) -> (Vec<Result<Settled, LineError>>, Vec<Move>) {
        let mut outcomes = Vec::with_capacity(settlements.len());
        let mut moves = Vec::with_capacity(settlements.len());
        let (mut freed, mut actions) = (0, Vec::new());
        let settings = self.settings();
        let mut state = self.state();
        for (place, (token, settlement)) in settlements.into_iter().enumerate() {
            outcomes.push(match self.settle_here(&mut state, &settings, token, settlement, now) {
                Ok(Here::Done(settled)) => Ok(settled),
                Ok(Here::Back(action)) => {
                    freed += 1;
                    actions.extend(action);
                    Ok(Settled::Done)
                }
                Ok(Here::Move(held, settlement)) => {
                    moves.push(Move { place, token, held, settlement, recorded });
                    // Until it is known.
                    Err(LineError::LockLost)
                }
                Err(error) => Err(error),
            });
        }
        drop(state);
        if freed > 0 {
            self.wake(freed);
        }
        self.act(actions);
        (outcomes, moves)
    }

    fn settle_here(
        &self,
        state: &mut State,
        settings: &Settings,
        token: Uuid,
        settlement: Settlement,
        now: Now,
    ) -> Result<Here, LineError> {
        match state.doubts.of(&token, &settlement) {
            Some(Doubt::Open) => return Err(LineError::Unknown),
            Some(Doubt::Done) => return Ok(Here::Done(Settled::Done)),
            None => {}
        }
        match settlement {
            Settlement::Renew => {
                let until = state.renew(&token, settings.lock, now).ok_or(LineError::LockLost)?;
                Ok(Here::Done(Settled::LockedUntil(until)))
            }
            Settlement::DeadLetter(_) if settings.max_deliveries.is_none() => match state.held(&token) {
                Some(_) => Err(LineError::AlreadyDead),
                None => Err(LineError::LockLost),
            },
            Settlement::Defer if settings.max_deliveries.is_none() => match state.held(&token) {
                Some(_) => Err(LineError::NotDeferred),
                None => Err(LineError::LockLost),
            },
            Settlement::Abandon { delay, why } => {
                let held = state.held(&token).filter(|held| held.until > now.monotonic).ok_or(LineError::LockLost)?;
                let delay = delay.unwrap_or_else(|| self.wait_after(settings, held.deliveries));
                let exhausted = held.message.is_exhausted(held.deliveries, settings.max_deliveries);
                let waits = !exhausted && (matches!(held.place, Place::Deferred(_)) || !delay.is_zero());
                // A settlement under way has the message already.
                let held = state.begin_settle(&token, now).ok_or(LineError::LockLost)?;
                // That a delivery failed without a word is known anyway: it was counted, and did not succeed.
                if waits || !why.is_empty() {
                    let delay = if waits { delay } else { Duration::ZERO };
                    return Ok(Here::Move(held, Settlement::Abandon { delay: Some(delay), why }));
                }
                let attempt = attempt("abandoned", why, now);
                Ok(Here::Back(state.release(&token, settings, attempt, Duration::ZERO, now)))
            }
            settlement => {
                let held = state.begin_settle(&token, now).ok_or(LineError::LockLost)?;
                Ok(Here::Move(held, settlement))
            }
        }
    }

    async fn move_all(self: &Arc<Self>, moves: Vec<Move>, now: Now) -> Vec<(usize, Result<Settled, LineError>)> {
        let mut outcomes = Vec::with_capacity(moves.len());
        let mut transactions: Vec<Prepared> = Vec::new();
        let mut groups: Vec<Vec<Move>> = Vec::new();
        // Each step in turn, with the room that the last one left.
        let mut one = Prepared::default();
        for step in moves {
            if let Err(error) = self.prepare_move(&step, now, &mut one).await {
                drop(std::mem::take(&mut one));
                self.state().unsettled(&step.token);
                outcomes.push((step.place, Err(error.into())));
                continue;
            }
            one.fence(self, step.held.epoch);
            let is_alone = one.join(&mut transactions);
            match groups.last_mut() {
                Some(group) if !is_alone => group.push(step),
                _ => groups.push(vec![step]),
            }
        }
        let results = Prepared::run_each(&*self.shared.store, transactions).await;
        for (group, result) in groups.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    self.left(&group, now);
                    outcomes.extend(group.iter().map(|step| (step.place, Ok(Settled::Done))));
                }
                Err(error) if self.is_in_doubt(&error) => outcomes.extend(self.clear_up(group, &error, now).await),
                Err(error) => {
                    for step in group {
                        self.state().unsettled(&step.token);
                        outcomes.push((step.place, Err(again(&error).into())));
                    }
                }
            }
        }
        outcomes
    }

    /// These messages are no longer where they were.
    pub(super) fn left(self: &Arc<Self>, steps: &[Move], now: Now) {
        let settings = self.settings();
        let (mut waits, mut actions) = (false, Vec::new());
        let mut state = self.state();
        for Move { token, held, settlement, .. } in steps {
            if let Settlement::Abandon { delay, why } = settlement {
                let exhausted = held.message.is_exhausted(held.deliveries, settings.max_deliveries);
                if delay.is_none_or(|delay| delay.is_zero()) && (exhausted || matches!(held.place, Place::Lane(..))) {
                    let attempt = attempt("abandoned", why.clone(), now);
                    actions.extend(state.release(token, &settings, attempt, Duration::ZERO, now));
                    continue;
                }
                let message = Arc::new(failed(held, "abandoned", why.clone(), now));
                state.given_back(token, message, now.monotonic + delay.unwrap_or_default(), &settings);
                waits = true;
            } else {
                state.settled(token);
            }
        }
        let none_out = state.held_len() == 0;
        drop(state);
        self.act(actions);
        if waits {
            self.shared.alarm.notify_one();
        }
        let completed = steps.iter().filter(|step| step.settlement == Settlement::Complete);
        self.watch.completed(completed.map(|step| &step.held), now.wall);
        // On an ordered line their keys are free.
        self.wake(steps.len());
        if none_out && self.fence.is_leaving() {
            self.shared.doubt();
        }
    }

    /// Adds the writes of a step to what is prepared, which is empty.
    async fn prepare_move(self: &Arc<Self>, step: &Move, now: Now, prepared: &mut Prepared) -> Result<(), Error> {
        let Move { held, settlement, .. } = step;
        match settlement {
            Settlement::Complete => self.complete(held, prepared),
            Settlement::DeadLetter(why) => {
                let reason = why.reason.as_deref().unwrap_or("DeadLetteredByReceiver");
                let mut message = failed(held, "failed", why.clone(), now);
                message.deliveries = held.deliveries;
                self.bury(held.place, &message, reason, why.description.as_deref(), prepared).await?;
            }
            Settlement::Defer => {
                let mut message = failed(held, DEFERRED, Why::default(), now);
                message.deferrals = message.deferrals.saturating_add(1);
                let number = message.sequence;
                if held.place != Place::Deferred(number) {
                    self.remove(held.place, &held.message, true, prepared);
                    prepared.count(self, Delta { waiting: -1, deferred: 1, ..Delta::default() });
                }
                if !self.is_of_dead_letters() {
                    self.row(&message, End::Deferred, held.deliveries).into_iter().for_each(|row| prepared.write(row));
                }
                prepared.put(self.layout.key(Place::Deferred(number)), &message)?;
            }
            Settlement::Abandon { delay, why } if delay.is_none_or(|delay| delay.is_zero()) => {
                self.put_failure(held.place, &failed(held, "abandoned", why.clone(), now), prepared)?;
            }
            Settlement::Abandon { delay, why } => {
                let due = now.wall.saturating_add(delay.unwrap_or_default()).unwrap_or(Timestamp::MAX);
                self.put_return(held.place, failed(held, "abandoned", why.clone(), now), due, prepared)?;
            }
            Settlement::Renew => {}
        }
        Ok(())
    }

    /// How long a message waits after so many deliveries, by the line's own policy.
    pub(super) fn wait_after(&self, settings: &Settings, deliveries: u32) -> Duration {
        let Some(policy) = &settings.retry else { return Duration::ZERO };
        let mut random = [0; 8];
        self.shared.ids.random(&mut random);
        wait(policy, deliveries, u64::from_le_bytes(random))
    }
}

/// A settlement that is done, or one that needs the store.
enum Here {
    Done(Settled),
    /// The message waits again, unless that is to be done about it.
    Back(Option<Action>),
    Move(Held, Settlement),
}

/// How long to wait before the next delivery.
fn wait(policy: &tidings_core::retry::Policy, deliveries: u32, random: u64) -> Duration {
    // Whether there is another one is not for the policy to say.
    let policy = tidings_core::retry::Policy { max_retries: u32::MAX, ..policy.clone() };
    policy.delay(deliveries.max(1), random).unwrap_or_default()
}

fn attempt(outcome: &'static str, why: Why, now: Now) -> Attempt {
    let cut = |text: String| text.chars().take(REASON_CHARS).collect();
    Attempt {
        delivery: 0,
        at: now.wall,
        outcome: outcome.into(),
        consumer: None,
        reason: why.reason.map(cut),
        description: why.description.map(cut),
    }
}

/// The message after a delivery that ended so.
fn failed(held: &Held, outcome: &'static str, why: Why, now: Now) -> Stored {
    let mut message = Stored::clone(&held.message);
    message.deliveries = held.deliveries;
    let attempt = attempt(outcome, why, now);
    let consumer = held.consumer.as_deref().map(ToOwned::to_owned);
    message.note(Attempt { delivery: held.deliveries, consumer, ..attempt });
    message
}

/// The same error for another one of the same transaction.
fn again(error: &Error) -> Error {
    match error {
        Error::Full(why) => Error::Full(why.clone()),
        Error::ReadOnly(why) => Error::ReadOnly(why.clone()),
        other => Error::Throttled(other.to_string()),
    }
}
