//! What becomes of a message: five states that only go forward, the attempts, and what to do after each of them.
//!
//! [`step`] decides; the caller stores the new [`Delivery`] under a compare-and-set of the old status and then carries
//! out the [`Action`]s.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::retry::Policy;
use crate::time::Timestamp;

/// Characters of an error that are kept; the rest of a chatty server's answer is not worth an item's space.
pub const ERROR_CHARS: usize = 1024;

/// What a message says that was called off.
pub const CANCELLED: &str = "cancelled";

/// S002-43 to S002-48
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Created,
    Queued,
    Processing,
    Completed,
    Failed,
}

impl Status {
    pub const ALL: [Self; 5] = [Self::Created, Self::Queued, Self::Processing, Self::Completed, Self::Failed];

    /// Whether a message in this state may go to `next`. Staying is not going: a retry does not leave `processing`.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Created, Self::Queued | Self::Processing)
                | (Self::Queued, Self::Processing)
                | (Self::Processing, Self::Completed | Self::Failed)
        )
    }

    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// One try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    #[serde(with = "iso")]
    pub started_at: Timestamp,
    /// Absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "iso::option")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<AttemptOutcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the other side answered: an HTTP status or an SMTP code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// What the other side calls it: ntfy's id, SES's message id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptOutcome {
    Delivered,
    /// Failed, and may go better another time.
    Transient,
    /// Failed for good.
    Permanent,
    /// The process ended before it learnt the outcome.
    Lost,
}

/// The part of a message that delivering it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    pub status: Status,
    #[serde(default)]
    pub retry_count: u32,
    /// Set while it waits in `processing` for its next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "iso::option")]
    pub next_attempt_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification_id: Option<String>,
    #[serde(default)]
    pub attempts: Vec<Attempt>,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            status: Status::Created,
            retry_count: 0,
            next_attempt_at: None,
            error_message: None,
            notification_id: None,
            attempts: Vec::new(),
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// It was put in a worker's queue.
    Queued,
    /// A worker took it up: for the first time, after a wait, or after another worker's lease ran out.
    TakenUp,
    /// The attempt that was running ended. `random` is any 64 random bits, for the jitter.
    Ended { verdict: Verdict, random: u64 },
    /// Somebody does not want it sent any more.
    Cancelled,
    /// It waited so long that it is about to be forgotten.
    Expired,
}

/// How an attempt ended, as the channel sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Delivered {
        notification_id: Option<String>,
    },
    Retry {
        after: Option<Duration>,
        error: String,
        code: Option<u16>,
    },
    /// We stopped before all of it was tried: it is due again at once, and no retry is used up.
    Interrupted {
        error: String,
    },
    Reject {
        error: String,
        code: Option<u16>,
    },
}

/// What the caller is to do, once the new delivery is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand it to its channel now.
    Send { attempt: u32 },
    /// Wake up then and take it up again.
    RetryAt(Timestamp),
    /// It is done.
    Complete,
    /// It is given up: keep it, with every attempt, where somebody will look.
    DeadLetter { reason: String },
}

/// The input does not fit the state: somebody else was faster, or the call is a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message that is {} cannot be {attempted}", .status.as_str())]
pub struct Conflict {
    pub status: Status,
    pub attempted: &'static str,
}

/// What the delivery becomes and what is to be done about it.
///
/// # Errors
///
/// [`Conflict`] if the state does not allow it; the delivery then stays as it was.
pub fn step(
    delivery: &Delivery,
    policy: &Policy,
    input: Input,
    now: Timestamp,
) -> Result<(Delivery, Vec<Action>), Conflict> {
    let mut next = delivery.clone();
    let actions = next.step(policy, input, now)?;
    Ok((next, actions))
}

impl Delivery {
    /// The same in place, for who does not need it as it was.
    ///
    /// # Errors
    ///
    /// [`Conflict`] if the state does not allow it; the delivery then stays as it was.
    pub fn step(&mut self, policy: &Policy, input: Input, now: Timestamp) -> Result<Vec<Action>, Conflict> {
        let before = self.status;
        let actions = match input {
            Input::Queued => self.queue(),
            Input::TakenUp => self.take_up(policy, now),
            Input::Ended { verdict, random } => self.end(policy, verdict, random, now),
            Input::Cancelled => self.cancel(),
            Input::Expired => self.expire(),
        };
        debug_assert!(before <= self.status, "states only go forward");
        actions
    }

    /// Whether an attempt is under way, or was when its process died.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        self.status == Status::Processing && self.attempts.last().is_some_and(|last| last.ended_at.is_none())
    }

    /// How often it was tried, whether or not all attempts are still kept.
    #[must_use]
    pub fn tries(&self) -> u32 {
        self.attempts.last().map_or(0, |last| last.number)
    }

    fn queue(&mut self) -> Result<Vec<Action>, Conflict> {
        self.advance(Status::Queued, "queued")?;
        Ok(Vec::new())
    }

    fn take_up(&mut self, policy: &Policy, now: Timestamp) -> Result<Vec<Action>, Conflict> {
        if self.status != Status::Processing {
            self.advance(Status::Processing, "taken up")?;
        } else if self.in_flight() {
            // S002-51: the one who had it is gone. Its attempt counts, so that a message that kills its worker ends too.
            self.close(AttemptOutcome::Lost, now, Some("the process ended before the outcome was known"), None);
            if policy.delay(self.retry_count + 1, 0).is_none() {
                return Ok(self.give_up("the process ended during the last attempt".to_owned()));
            }
            self.retry_count += 1;
        }
        self.next_attempt_at = None;
        let number = self.attempts.last().map_or(1, |last| last.number.saturating_add(1));
        // Most need one.
        self.attempts.reserve_exact(1);
        self.attempts.push(Attempt {
            number,
            started_at: now,
            ended_at: None,
            outcome: None,
            error: None,
            code: None,
            notification_id: None,
        });
        Ok(vec![Action::Send { attempt: number }])
    }

    fn end(&mut self, policy: &Policy, verdict: Verdict, random: u64, now: Timestamp) -> Result<Vec<Action>, Conflict> {
        if !self.in_flight() {
            return Err(Conflict { status: self.status, attempted: "ended" });
        }
        match overrule(policy, verdict) {
            Verdict::Delivered { notification_id } => {
                self.close(AttemptOutcome::Delivered, now, None, None);
                if let Some(last) = self.attempts.last_mut() {
                    last.notification_id.clone_from(&notification_id);
                }
                self.advance(Status::Completed, "completed")?;
                self.notification_id = notification_id;
                self.error_message = None;
                Ok(vec![Action::Complete])
            }
            Verdict::Interrupted { error } => {
                self.close(AttemptOutcome::Transient, now, Some(&error), None);
                self.next_attempt_at = Some(now);
                self.error_message = Some(shorten(&error));
                Ok(vec![Action::RetryAt(now)])
            }
            Verdict::Reject { error, code } => {
                self.close(AttemptOutcome::Permanent, now, Some(&error), code);
                Ok(self.give_up(error))
            }
            Verdict::Retry { after, error, code } => {
                self.close(AttemptOutcome::Transient, now, Some(&error), code);
                let Some(delay) = policy.delay_after(self.retry_count + 1, random, after) else {
                    return Ok(self.give_up(format!("{error} (after {} attempts)", self.tries())));
                };
                let at = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
                self.retry_count += 1;
                self.next_attempt_at = Some(at);
                self.error_message = Some(shorten(&error));
                Ok(vec![Action::RetryAt(at)])
            }
        }
    }

    /// There is no sixth state: a cancelled message is a failed one that says so. One that is being sent this very
    /// moment cannot be called back.
    fn cancel(&mut self) -> Result<Vec<Action>, Conflict> {
        if self.status.is_final() || self.in_flight() {
            return Err(Conflict { status: self.status, attempted: "cancelled" });
        }
        if self.status != Status::Processing {
            self.advance(Status::Processing, "cancelled")?;
        }
        self.advance(Status::Failed, "cancelled")?;
        self.next_attempt_at = None;
        self.error_message = Some(CANCELLED.to_owned());
        Ok(Vec::new())
    }

    /// What waited for its turn until the end of its time was given up like any other. SX-08
    fn expire(&mut self) -> Result<Vec<Action>, Conflict> {
        if self.status.is_final() || self.in_flight() {
            return Err(Conflict { status: self.status, attempted: "given up" });
        }
        if self.status != Status::Processing {
            self.advance(Status::Processing, "given up")?;
        }
        let last = self.error_message.take().map_or_else(String::new, |error| format!("; the last error: {error}"));
        Ok(self.give_up(format!("it could not be delivered within the time that messages are kept{last}")))
    }

    fn give_up(&mut self, reason: String) -> Vec<Action> {
        debug_assert_eq!(self.status, Status::Processing, "only from here does it go to failed");
        self.status = Status::Failed;
        self.next_attempt_at = None;
        let reason = shorten(&reason);
        self.error_message = Some(reason.clone());
        vec![Action::DeadLetter { reason }]
    }

    fn close(&mut self, outcome: AttemptOutcome, now: Timestamp, error: Option<&str>, code: Option<u16>) {
        if let Some(last) = self.attempts.last_mut() {
            // The wall clock may have jumped back meanwhile; an attempt never ends before it began.
            last.ended_at = Some(now.max(last.started_at));
            last.outcome = Some(outcome);
            last.error = error.map(shorten);
            last.code = code;
        }
    }

    fn advance(&mut self, next: Status, attempted: &'static str) -> Result<(), Conflict> {
        if !self.status.may_become(next) {
            return Err(Conflict { status: self.status, attempted });
        }
        self.status = next;
        Ok(())
    }
}

/// The policy's word on an answer code is the last one. SX-06
fn overrule(policy: &Policy, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Retry { error, code: Some(code), .. } if policy.verdict(code) == Some(false) => {
            Verdict::Reject { error, code: Some(code) }
        }
        Verdict::Reject { error, code: Some(code) } if policy.verdict(code) == Some(true) => {
            Verdict::Retry { after: None, error, code: Some(code) }
        }
        other => other,
    }
}

fn shorten(error: &str) -> String {
    error.chars().take(ERROR_CHARS).collect()
}

/// Instants as text of fixed width.
mod iso {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use crate::time::{IsoMicros, Timestamp};

    pub fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        IsoMicros(*at).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }

    pub mod option {
        use serde::{Deserialize, Deserializer, Serializer, de::Error};

        use crate::time::{IsoMicros, Timestamp};

        pub fn serialize<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
            match at {
                Some(at) => serializer.serialize_some(&IsoMicros(*at)),
                None => serializer.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
            Option::<String>::deserialize(deserializer)?.map(|text| text.parse().map_err(D::Error::custom)).transpose()
        }
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
