//! One attempt: take the message up, hand it to its channel, record what came of it. Each step is a transaction, and
//! whoever finds that somebody else was faster leaves the message to them.
//!
//! The first attempt of a message that was made a moment ago is an exception, where no other process could come between:
//! it is made at once, and if its outcome comes soon, taking up and recording are one transaction. Whoever wants to call
//! the message off meanwhile waits for its [`Hold`]. After a crash the store knows of no attempt, and it is made again,
//! this time written down before it is made: a message that kills its worker ends, too.

use std::time::Duration;

use tidings_core::message::{Action, Input, Status, Verdict};
use tidings_core::retry::Policy;
use tidings_core::time::Timestamp;
use tidings_store::{Error, Write};
use tokio::sync::watch;
use tokio::time::Instant;

use super::senders::{self, Sent};
use super::targets;
use crate::alarm::Alarm;
use crate::app::Services;
use crate::audit;
use crate::bus::push;
use crate::channel::Outcome;
use crate::channel::limiter::Health;
use crate::ingest::{Arrival, Companions};
use crate::messages::ledger::{Entry, Ledger, Left};
use crate::messages::record::{Lease, to_millis};
use crate::messages::transition::{Refused, Stored, Transition};
use crate::messages::{Hold, Message, Messages, dead};

/// Added to the longest attempt: recording its outcome takes time, too.
const LEASE_SPARE: Duration = Duration::from_secs(60);
/// How soon an outcome must come for an attempt that is not written down yet.
const SOON: Duration = Duration::from_millis(50);
/// How often the outcome is recorded anew when the store is busy. After that the lease runs out, and it is sent again.
const RECORD_TRIES: u32 = 5;

/// Why a message is given up that has no room for an attempt.
const TOO_LARGE: &str = "too large to be tried";
/// What is said of one to a target that is disabled with it.
const NOT_CALLED: &str = ", and is not, while /channels/webhook/disabled has it";
/// What is said of one whose message of the bus is gone.
const TAKEN_BACK: &str = "taken back: its message of the bus was purged, or deleted with its subscription";

/// No lease lasts longer.
#[must_use]
pub fn longest_lease() -> Duration {
    senders::LONGEST + LEASE_SPARE
}

/// What came of looking at a message.
#[derive(Debug, Clone, Copy)]
pub struct Looked {
    pub health: Health,
    /// When it is due again, as far as we know.
    pub due: Option<Timestamp>,
}

impl Looked {
    const fn untried(due: Option<Timestamp>) -> Self {
        Self { health: Health::Untried, due }
    }
}

/// What every attempt of a channel works with.
pub struct Desk {
    pub services: Services,
    /// Whose leases are ours.
    pub owner: String,
    pub ledger: Ledger,
    /// Turns true when the server stops.
    pub stop: watch::Receiver<bool>,
}

/// A message as it was read or made not long ago.
pub struct Known {
    pub stored: Box<Stored>,
    /// What [`crate::messages::Holds::changes`] said before.
    pub seen: Option<u64>,
}

impl Known {
    /// Whether it is still so, asked by whoever holds the message.
    async fn is_still(&self, messages: &Messages) -> Result<bool, Error> {
        Ok(self.seen == Some(messages.holds.changes()) || messages.is_still(&self.stored).await?)
    }
}

/// Makes the next attempt of a message, if it is due and nobody else is at it. `known` is how it was not long ago;
/// `is_new` says that it was made by this process and not tried yet.
pub async fn attempt(
    desk: &Desk,
    alarm: &mut Alarm,
    message_id: &str,
    known: Option<Known>,
    is_new: bool,
) -> Result<Looked, Error> {
    let (services, messages) = (&desk.services, &desk.services.messages);
    let mut known = known;
    let mut hold = if is_new && services.embedded.is_some() { messages.holds.try_hold(message_id) } else { None };
    // What was known may be outdated; what is read now counts.
    let taken = loop {
        let fresh = known.is_none();
        let stored = match known.take() {
            Some(known) if hold.is_none() || known.is_still(messages).await? => known.stored,
            _ => match messages.get(message_id).await? {
                Some(stored) => Box::new(stored),
                None => return Ok(Looked::untried(None)),
            },
        };
        let now = services.clock.now();
        match stored.message.due_at() {
            Some(due) if due <= now => {}
            later => return Ok(Looked::untried(later)),
        }
        if let Some((until, hours)) = messages.quiet.until(&stored.message, now) {
            let put_off = match stored.put_off(&messages.table, until, hours, now) {
                Err(Error::Invalid(why)) => return Box::pin(give_up(desk, message_id, &why)).await,
                put_off => put_off?,
            };
            match desk.ledger.enter(put_off.writes, put_off.tally).await {
                Ok(()) => return Ok(Looked::untried(Some(until))),
                Err(Error::Conflict { .. }) if !fresh => continue,
                Err(Error::Conflict { .. }) => return Ok(Looked::untried(None)),
                Err(error) => return Err(error),
            }
        }
        if let Some(hold) = hold.take() {
            return attempt_at_once(desk, alarm, stored, hold, now).await;
        }
        match take_up(desk, stored, now).await {
            Ok(Some(taken)) => break taken,
            Ok(None) if fresh => return Ok(Looked::untried(None)),
            Ok(None) => {}
            Err(Error::Invalid(why)) => return Box::pin(give_up(desk, message_id, &why)).await,
            Err(error) => return Err(error),
        }
    };
    if taken.message.delivery.status != Status::Processing {
        services.metrics.delivery.given_up(&taken.message.channel);
        return Ok(Looked::untried(None));
    }
    Box::pin(carry_out(desk, taken)).await
}

/// Sends what is in our hands, and records what came of it.
async fn carry_out(desk: &Desk, taken: Box<Stored>) -> Result<Looked, Error> {
    let (sent, health) = send(desk, &taken.message).await?;
    let due = record(desk, taken, None, sent).await?;
    Ok(Looked { health, due })
}

/// Makes an attempt that is written down with its outcome, or when that is long in coming. Whatever is due can be taken up.
async fn attempt_at_once(
    desk: &Desk,
    alarm: &mut Alarm,
    stored: Box<Stored>,
    hold: Hold<'_>,
    now: Timestamp,
) -> Result<Looked, Error> {
    let (taken, sent) = {
        let mut sending = std::pin::pin!(send(desk, &stored.message));
        match alarm.wait(Instant::now() + SOON, sending.as_mut()).await {
            Some(sent) => (None, sent),
            None => {
                let written = async {
                    let taken = take_up(desk, stored.clone(), now).await;
                    drop(hold);
                    taken
                };
                let (taken, sent) = tokio::join!(written, sending);
                (Some(taken), sent)
            }
        }
    };
    let (sent, health) = sent?;
    let due = match taken {
        None => record(desk, stored, Some(now), sent).await?,
        Some(Ok(Some(taken))) => record(desk, taken, None, sent).await?,
        // That it is being sent cannot be written down; what came of it can, once it has ended.
        Some(Err(Error::Invalid(_))) => match desk.services.messages.get(&stored.message.message_id).await? {
            Some(stored) => record(desk, Box::new(stored), Some(now), sent).await?,
            None => None,
        },
        Some(taken) => {
            taken?;
            None
        }
    };
    Ok(Looked { health, due })
}

/// Ends a message that cannot be tried: its item has no room for an attempt. Only what somebody else or an earlier version
/// wrote is so large.
async fn give_up(desk: &Desk, message_id: &str, why: &str) -> Result<Looked, Error> {
    let now = desk.services.clock.now();
    let stored = desk.services.messages.get(message_id).await?;
    let Some(stored) = stored.filter(|stored| stored.message.due_at().is_some_and(|due| due <= now)) else {
        return Ok(Looked::untried(None));
    };
    tracing::error!(message_id, why, "a message is too large to be sent");
    let began = (!stored.message.delivery.in_flight()).then_some(now);
    let sent = Sent { recipients: stored.message.recipients.clone(), ..Outcome::reject(TOO_LARGE).into() };
    Ok(Looked::untried(record(desk, Box::new(stored), began, sent).await?))
}

/// Hands a message to its channel, unless its target wants no more.
async fn send(desk: &Desk, message: &Message) -> Result<(Sent, Health), Error> {
    let services = &desk.services;
    if let Some(why) = targets::disabled(&*services.store, message).await? {
        return Ok((Outcome::reject(why).into(), Health::Untried));
    }
    if services.bus.is_taken_back(message).await? {
        return Ok((Outcome::reject(TAKEN_BACK).into(), Health::Untried));
    }
    let started = services.clock.monotonic();
    let policy = services.messages.policy_of(message);
    let sent = services.senders.attempt(message, policy.timeout, services.clock.now(), &desk.stop).await;
    let took = services.clock.monotonic().saturating_sub(started);
    services.metrics.delivery.attempted(&message.channel, &sent.outcome, took);
    let health = match sent.outcome.health() {
        Health::Throttled(wait) => Health::Throttled(wait.min(policy.cap)),
        health => health,
    };
    Ok((sent, health))
}

/// The message in our hands, or `None` if somebody else was faster.
async fn take_up(desk: &Desk, stored: Box<Stored>, now: Timestamp) -> Result<Option<Box<Stored>>, Error> {
    let services = &desk.services;
    let timeout = services.messages.policy_of(&stored.message).timeout;
    let lease = senders::longest(timeout, stored.message.pending_recipients().len()) + LEASE_SPARE;
    let until = now.saturating_add(lease).unwrap_or(Timestamp::MAX);
    let transition = services.messages.transition_of(stored, Input::TakenUp, now, |message| {
        let owner = desk.owner.clone();
        message.put_off_by = None;
        message.lease = Some(Lease { owner, until: to_millis(until) });
    });
    let transition = match transition {
        Ok(transition) => transition,
        Err(Refused::Conflict(_)) => return Ok(None),
        Err(Refused::Store(error)) => return Err(error),
    };
    match desk.ledger.enter(transition.writes, transition.tally).await {
        Ok(()) => Ok(Some(transition.after)),
        Err(error) if error.conflict_on(0).is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stores what came of an attempt, and that it was made if only we know when it `began`; gives the moment of the next one.
async fn record(
    desk: &Desk,
    taken: Box<Stored>,
    began: Option<Timestamp>,
    sent: Sent,
) -> Result<Option<Timestamp>, Error> {
    let services = &desk.services;
    let (mut verdict, gone) = judged(&services.messages.policy_of(&taken.message), sent.outcome, sent.is_cut_short);
    // Of the message and its letter alone.
    let mut is_bare = false;
    // Whether it was not decided about because of somebody else in the same transaction.
    let mut was_left = false;
    let mut random = [0; 8];
    services.ids.random(&mut random);
    // A store over a network may have to be asked again, and not only to write.
    let spare = services.embedded.is_none().then(|| taken.clone());
    let message_id = taken.message.message_id.clone();
    let mut taken = taken;
    for again in 0.. {
        let now = services.clock.now();
        let ended = Input::Ended { verdict: verdict.clone(), random: u64::from_be_bytes(random) };
        let inputs = began.map(|began| (Input::TakenUp, began)).into_iter().chain([(ended, now)]);
        let transition = services.messages.passage_of(taken, inputs, |message| {
            message.lease = None;
            message.recipients.clone_from(&sent.recipients);
            if message.delivery.status.is_final() {
                message.recipients.extend(sent.undecided.clone());
            }
        });
        let Transition { mut writes, tally, actions, after } = match transition {
            Ok(transition) => transition,
            Err(Refused::Conflict(_)) => return Ok(None),
            // There is no room for one more attempt; that this one was made has room.
            Err(Refused::Store(Error::Invalid(why)))
                if matches!(verdict, Verdict::Retry { .. } | Verdict::Interrupted { .. }) =>
            {
                tracing::error!(message_id, why, "a message is too large to be tried again");
                verdict = given_up(verdict);
                let Some(stored) = anew(services, spare.as_deref(), &message_id).await? else { return Ok(None) };
                taken = stored;
                continue;
            }
            Err(Refused::Store(error)) => return Err(error),
        };
        if is_bare {
            writes
                .retain(|write| [services.messages.table.name(), dead::table().name()].contains(&write.table().name()));
        }
        let due = actions.iter().find_map(|action| if let Action::RetryAt(at) = action { Some(*at) } else { None });
        let stored = match &gone {
            Some(reason) if !is_bare => {
                let writes = writes.into_iter().chain(tally.writes()).collect();
                Box::pin(disable(services, &after.message, reason, writes, now)).await.map_err(Left::Refused)
            }
            _ if was_left => desk.ledger.enter(writes, tally).await.map_err(Left::Refused),
            // Nobody copies what is most probably written at once; it can be decided anew.
            _ => desk.ledger.enter_once(Entry::new(writes, tally)).await,
        };
        match stored {
            Ok(()) => {
                tell(services, &after.message);
                return Ok(due);
            }
            Err(Left::Undecided) => was_left = true,
            // Our lease ran out and somebody else has it: the outcome is theirs to find.
            Err(Left::Refused(Error::Conflict { .. })) => return Ok(None),
            Err(Left::Refused(error @ (Error::Throttled(_) | Error::Full(_)))) if again < RECORD_TRIES => {
                tracing::warn!(%error, message_id, "an outcome cannot be recorded yet");
                tokio::time::sleep(Duration::from_millis(20) * 2_u32.pow(again)).await;
            }
            // What was sent is not sent again because of what others would have written with it.
            Err(Left::Refused(error @ Error::Invalid(_))) if !is_bare => {
                tracing::error!(%error, message_id, "an outcome is recorded without what follows from it");
                is_bare = true;
            }
            Err(Left::Refused(error)) => return Err(error),
        }
        let Some(stored) = anew(services, spare.as_deref(), &message_id).await? else { return Ok(None) };
        taken = stored;
    }
    Ok(None)
}

/// What an outcome means, and why its target is not to be called again, if that is so. The policy's word on a code is the
/// last one (SX-06).
fn judged(policy: &Policy, outcome: Outcome, is_cut_short: bool) -> (Verdict, Option<String>) {
    let is_retried = |code: Option<u16>| code.and_then(|code| policy.verdict(code)) == Some(true);
    match outcome {
        Outcome::Reject { disable_target: true, error, code } if !is_retried(code) => {
            (Verdict::Reject { error: format!("{error}{NOT_CALLED}"), code }, Some(error))
        }
        // Who was not tried is not given up for it.
        Outcome::Retry { error, .. } if is_cut_short => (Verdict::Interrupted { error }, None),
        outcome => (Verdict::from(outcome), None),
    }
}

/// A message as it was, to decide about it once more.
async fn anew(services: &Services, spare: Option<&Stored>, message_id: &str) -> Result<Option<Box<Stored>>, Error> {
    let stored = match spare {
        Some(spare) => Some(spare.clone()),
        None => services.messages.get(message_id).await?,
    };
    Ok(stored.map(Box::new))
}

/// Says what was recorded to who counts and who waits for it.
fn tell(services: &Services, message: &Message) {
    count(services, message);
    services.metrics.delivery.recorded(message, services.clock.now());
    // Whoever comes to listen from now on finds it in the store.
    let is_heard = services.messages.recorded.receiver_count() > 0;
    services.messages.recorded.send_if_modified(|count| {
        *count += 1;
        is_heard
    });
    if message.delivery.status.is_final() && push::stands_for_another(message) {
        // Nobody may listen.
        let _ = services.messages.pushed.send(message.message_id.clone());
    }
}

/// The same without another attempt.
fn given_up(verdict: Verdict) -> Verdict {
    match verdict {
        // Without its code, by which a policy might want another one.
        Verdict::Retry { error, .. } | Verdict::Interrupted { error } => {
            Verdict::Reject { error: format!("{TOO_LARGE} again: {error}"), code: None }
        }
        verdict => verdict,
    }
}

/// Counts a message that has ended, and how long it took from the moment it was to go.
fn count(services: &Services, message: &Message) {
    match message.delivery.status {
        Status::Completed => {
            let ended = message.processing_completed_at.unwrap_or(message.updated_date);
            let took = ended.duration_since(message.deliver_at);
            services.metrics.tally.completed(took.try_into().unwrap_or_default());
        }
        Status::Failed => services.metrics.tally.failed(),
        Status::Created | Status::Queued | Status::Processing => {}
    }
}

/// The other side asks not to be called again: what came of the message, the disabled target, the audit log's entry and
/// the event that rules can tell people of are one transaction.
async fn disable(
    services: &Services,
    message: &Message,
    reason: &str,
    mut writes: Vec<Write>,
    now: Timestamp,
) -> Result<(), Error> {
    let destination = senders::destination(message);
    // Of several that were under way, the first one tells.
    let known = targets::disabled(&*services.store, message).await?.is_some();
    let Some((id, write)) = targets::disable(message, &destination, reason, now).filter(|_| !known) else {
        return services.store.transact(writes).await;
    };
    let ending = writes.clone();
    writes.push(write);
    tracing::warn!(destination = &*destination, target = id, reason, "a webhook target is disabled");
    let details = serde_json::json!({ "destination": destination, "reason": reason, "message_id": message.message_id });
    let event = targets::disabled_event(message, &id, &destination, reason, now);
    let action = audit::Action::new("target.disable", "target", id).details(details);
    let told = services.audit.record_within("tidings", &message.correlation_id, action, |mut log| {
        log.extend(writes.iter().cloned());
        let arrival = Arrival { envelope: event.clone(), with: Companions { writes: log, ..Companions::default() } };
        async {
            for outcome in services.ingest.accept_each(vec![arrival]).await? {
                outcome?;
            }
            Ok(())
        }
    });
    match told.await {
        // Another one told in this moment.
        Err(Error::Conflict { .. }) if targets::disabled(&*services.store, message).await?.is_some() => {
            services.store.transact(ending).await
        }
        told => told.map(drop),
    }
}
