//! One attempt: take the message up, hand it to its channel, record what came of it. Each step is a transaction, and
//! whoever finds that somebody else was faster leaves the message to them.
//!
//! The first attempt of a message that was made a moment ago is an exception, where no other process could come between:
//! it is made at once, and if its outcome comes soon, taking up and recording are one transaction. Whoever wants to call
//! the message off meanwhile waits for its [`Hold`]. After a crash the store knows of no attempt, and it is made again,
//! this time written down before it is made: a message that kills its worker ends, too.

use std::time::Duration;

use tidings_core::message::{Action, Input, Status, Verdict, step};
use tidings_core::time::Timestamp;
use tidings_store::{Error, Write};

use super::ledger::Ledger;
use super::senders::{self, Sent};
use super::targets;
use crate::app::Services;
use crate::audit;
use crate::bus::push;
use crate::channel::Outcome;
use crate::channel::limiter::Health;
use crate::ingest::{Arrival, Companions};
use crate::messages::record::{Lease, to_millis};
use crate::messages::transition::{Refused, Stored, Transition};
use crate::messages::{Hold, Message};

/// Added to the longest attempt: recording its outcome takes time, too.
const LEASE_SPARE: Duration = Duration::from_secs(60);
/// How soon an outcome must come for an attempt that is not written down yet.
const SOON: Duration = Duration::from_millis(50);
/// How often the outcome is recorded anew when the store is busy. After that the lease runs out, and it is sent again.
const RECORD_TRIES: u32 = 5;

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
}

/// Makes the next attempt of a message, if it is due and nobody else is at it. `known` is how it was read not long ago;
/// `is_new` says that it was made by this process and not tried yet.
pub async fn attempt(desk: &Desk, message_id: &str, known: Option<Box<Stored>>, is_new: bool) -> Result<Looked, Error> {
    let (services, messages) = (&desk.services, &desk.services.messages);
    let mut known = known;
    let mut hold = if is_new && services.embedded.is_some() { messages.holds.try_hold(message_id) } else { None };
    // What was known may be outdated; what is read now counts.
    let taken = loop {
        let fresh = known.is_none();
        let stored = match known.take() {
            Some(stored) if hold.is_none() || messages.is_still(&stored).await? => *stored,
            _ => match messages.get(message_id).await? {
                Some(stored) => stored,
                None => return Ok(Looked::untried(None)),
            },
        };
        let now = services.clock.now();
        match stored.message.due_at() {
            Some(due) if due <= now => {}
            later => return Ok(Looked::untried(later)),
        }
        if let Some((until, hours)) = messages.quiet.until(&stored.message, now) {
            let put_off = stored.put_off(&messages.table, until, hours, now)?;
            match desk.ledger.enter(put_off.writes, put_off.tally).await {
                Ok(()) => return Ok(Looked::untried(Some(until))),
                Err(Error::Conflict { .. }) if !fresh => continue,
                Err(Error::Conflict { .. }) => return Ok(Looked::untried(None)),
                Err(error) => return Err(error),
            }
        }
        if let Some(hold) = hold.take() {
            return Box::pin(attempt_at_once(desk, stored, hold, now)).await;
        }
        match take_up(desk, stored, now).await? {
            Some(taken) => break taken,
            None if fresh => return Ok(Looked::untried(None)),
            None => {}
        }
    };
    if taken.message.delivery.status != Status::Processing {
        services.metrics.delivery.given_up(&taken.message.channel);
        return Ok(Looked::untried(None));
    }
    let (sent, health) = send(desk, &taken.message).await?;
    let due = record(desk, taken, None, sent).await?;
    Ok(Looked { health, due })
}

/// Makes an attempt that is written down with its outcome, or when that is long in coming.
async fn attempt_at_once(desk: &Desk, stored: Stored, hold: Hold<'_>, now: Timestamp) -> Result<Looked, Error> {
    let policy = desk.services.messages.policy_of(&stored.message);
    let Ok((delivery, _)) = step(&stored.message.delivery, &policy, Input::TakenUp, now) else {
        return Ok(Looked::untried(None));
    };
    drop(policy);
    let message = Message { delivery, ..stored.message.clone() };
    let mut sending = std::pin::pin!(send(desk, &message));
    if let Ok(sent) = tokio::time::timeout(SOON, sending.as_mut()).await {
        let (sent, health) = sent?;
        let due = record(desk, stored, Some(now), sent).await?;
        return Ok(Looked { health, due });
    }
    let written = async {
        let taken = take_up(desk, stored, now).await;
        drop(hold);
        taken
    };
    let (taken, sent) = tokio::join!(written, sending);
    let (sent, health) = sent?;
    let due = match taken? {
        Some(taken) => record(desk, taken, None, sent).await?,
        None => None,
    };
    Ok(Looked { health, due })
}

/// Hands a message to its channel, unless its target wants no more.
async fn send(desk: &Desk, message: &Message) -> Result<(Sent, Health), Error> {
    let services = &desk.services;
    if let Some(why) = targets::disabled(&*services.store, message).await? {
        return Ok((Outcome::reject(why).into(), Health::Untried));
    }
    let started = services.clock.monotonic();
    let timeout = services.messages.policy_of(message).timeout;
    let sent = services.senders.attempt(message, timeout, services.clock.now()).await;
    let took = services.clock.monotonic().saturating_sub(started);
    services.metrics.delivery.attempted(&message.channel, &sent.outcome, took);
    let health = sent.outcome.health();
    Ok((sent, health))
}

/// The message in our hands, or `None` if somebody else was faster.
async fn take_up(desk: &Desk, stored: Stored, now: Timestamp) -> Result<Option<Stored>, Error> {
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
async fn record(desk: &Desk, taken: Stored, began: Option<Timestamp>, sent: Sent) -> Result<Option<Timestamp>, Error> {
    let services = &desk.services;
    let gone = match &sent.outcome {
        Outcome::Reject { disable_target: true, error, .. } => Some(error.clone()),
        _ => None,
    };
    let verdict = Verdict::from(sent.outcome);
    let mut random = [0; 8];
    services.ids.random(&mut random);
    // A store over a network may have to be asked again, and not only to write.
    let spare = services.embedded.is_none().then(|| taken.clone());
    let mut taken = taken;
    for again in 0.. {
        let now = services.clock.now();
        let ended = Input::Ended { verdict: verdict.clone(), random: u64::from_be_bytes(random) };
        let inputs = began.map(|began| (Input::TakenUp, began)).into_iter().chain([(ended, now)]);
        let transition = services.messages.passage_of(taken, inputs, |message| {
            message.lease = None;
            message.recipients.clone_from(&sent.recipients);
        });
        let Transition { writes, tally, actions, after } = match transition {
            Ok(transition) => transition,
            Err(Refused::Conflict(_)) => return Ok(None),
            Err(Refused::Store(error)) => return Err(error),
        };
        let due = actions.iter().find_map(|action| if let Action::RetryAt(at) = action { Some(*at) } else { None });
        let stored = match &gone {
            Some(reason) => {
                let writes = writes.into_iter().chain(tally.writes()).collect();
                disable(services, &after.message, reason, writes, now).await
            }
            None => desk.ledger.enter(writes, tally).await,
        };
        let message_id = &after.message.message_id;
        match stored {
            Ok(()) => {
                count(services, &after.message);
                services.metrics.delivery.recorded(&after.message, services.clock.now());
                services.messages.recorded.send_modify(|count| *count += 1);
                if after.message.delivery.status.is_final() && push::stands_for_another(&after.message) {
                    // Nobody may listen.
                    let _ = services.messages.pushed.send(message_id.clone());
                }
                return Ok(due);
            }
            // Our lease ran out and somebody else has it: the outcome is theirs to find.
            Err(Error::Conflict { .. }) => return Ok(None),
            Err(error @ (Error::Throttled(_) | Error::Full(_))) if again < RECORD_TRIES => {
                tracing::warn!(%error, message_id, "an outcome cannot be recorded yet");
                tokio::time::sleep(Duration::from_millis(20) * 2_u32.pow(again)).await;
                taken = match &spare {
                    Some(spare) => spare.clone(),
                    None => match services.messages.get(message_id).await? {
                        Some(stored) => stored,
                        None => return Ok(None),
                    },
                };
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
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
    tracing::warn!(destination, target = id, reason, "a webhook target is disabled");
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
