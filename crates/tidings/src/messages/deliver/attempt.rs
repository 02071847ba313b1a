//! One attempt: take the message up, hand it to its channel, record what came of it. Each step is a transaction, and
//! whoever finds that somebody else was faster leaves the message to them.

use std::time::Duration;

use tidings_core::message::{Action, Input, Status, Verdict};
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
use crate::messages::Message;
use crate::messages::record::{Lease, to_millis};
use crate::messages::transition::{Refused, Stored, Transition};

/// Added to the longest attempt: recording its outcome takes time, too.
const LEASE_SPARE: Duration = Duration::from_secs(60);
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

/// Makes the next attempt of a message, if it is due and nobody else is at it. `known` is how it was read not long ago.
pub async fn attempt(desk: &Desk, message_id: &str, known: Option<Box<Stored>>) -> Result<Looked, Error> {
    let (services, messages) = (&desk.services, &desk.services.messages);
    let mut known = known;
    // What was known may be outdated; what is read now counts.
    let taken = loop {
        let fresh = known.is_none();
        let stored = match known.take() {
            Some(stored) => *stored,
            None => match messages.get(message_id).await? {
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
    let disabled = targets::disabled(&*services.store, &taken.message).await?;
    let (sent, health) = match disabled {
        Some(why) => (Outcome::reject(why).into(), Health::Untried),
        None => {
            let started = services.clock.monotonic();
            let timeout = messages.policy_of(&taken.message).timeout;
            let sent = services.senders.attempt(&taken.message, timeout, services.clock.now()).await;
            let took = services.clock.monotonic().saturating_sub(started);
            services.metrics.delivery.attempted(&taken.message.channel, &sent.outcome, took);
            let health = sent.outcome.health();
            (sent, health)
        }
    };
    let due = record(desk, taken, sent).await?;
    Ok(Looked { health, due })
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

/// Stores what came of an attempt; gives the moment of the next one.
async fn record(desk: &Desk, taken: Stored, sent: Sent) -> Result<Option<Timestamp>, Error> {
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
        let input = Input::Ended { verdict: verdict.clone(), random: u64::from_be_bytes(random) };
        let transition = services.messages.transition_of(taken, input, now, |message| {
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
