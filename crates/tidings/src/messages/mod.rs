//! Messages: every notice that leaves, with the seed's attribute names and forward-only states (seed 002).
//!
//! Others make messages with [`Message::new`] and [`Messages::creation`], whose writes go into their own transaction,
//! and say so with [`Signals::created`] once it is done. `deliver` sends them; `transition` is the only way to change
//! one; `counters` keep count.

pub mod counters;
pub mod dead;
pub mod deliver;
mod holds;
pub mod http;
mod ledger;
pub mod list;
pub mod metrics;
mod notice;
pub mod payload;
mod policies;
pub mod quiet;
pub mod record;
mod shorter;
mod signal;
pub mod transition;
pub mod types;
mod was;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use tidings_core::envelope::FieldError;
use tidings_core::message::Input;
use tidings_core::retry::Policy;
use tidings_core::time::Timestamp;
use tidings_core::trace;
use tidings_store::{Error, Item, Key, Query, Store, Table, Write};
use tokio::sync::{Notify, broadcast, watch};
use uuid::Uuid;

use dead::DeadLetter;
use dead::edit::Edit;
pub use holds::{Hold, Holds};
use ledger::{Ledger, Left};
use policies::Policies;
use quiet::Quiet;
pub use record::{Message, NewMessage};
pub use signal::{News, Signal, Signals};
pub use tidings_core::message::Status;
use transition::{Made, Refused, Stored, Transition};
use types::Types;

use crate::bus::push;
use crate::config::Config;
use crate::tickets::callers::Callers;

const DAY_SECONDS: i64 = 86_400;
/// Ends that a slow listener may have before it; then it looks for itself.
const PUSHED: usize = 1024;
/// Transactions under way at the most in which messages are made.
const MADE_AT_ONCE: usize = 2;
/// Messages of one key that are looked at together.
const PAGE_OF_KEY: usize = 100;

/// Adds what it wants to the transactions in which a message changes: an alert's booleans follow their message so.
/// A message never does both in one transaction.
pub trait Follower: Send + Sync + 'static {
    /// An attempt failed, and `by` more retries are counted than before.
    fn retried(&self, message: &Message, by: u32) -> Vec<Write>;
    /// It became completed or failed.
    fn ended(&self, message: &Message) -> Vec<Write>;
}

/// The messages of this installation.
pub struct Messages {
    store: Arc<dyn Store>,
    /// Those that are made at the same time are counted together.
    ledger: Ledger,
    pub table: Table,
    pub types: Types,
    pub signals: Arc<Signals>,
    /// Who of this process changes a message whose state is not to be changed by others meanwhile.
    pub holds: Holds,
    /// How many outcomes were recorded here so far: for those who wait for one.
    pub recorded: watch::Sender<u64>,
    /// The ids of messages that stood for one of the bus, as they end here.
    pub pushed: broadcast::Sender<String>,
    /// Rung when there is something to be done to many dead letters.
    pub new_letter_job: Arc<Notify>,
    policies: Policies,
    pub quiet: Quiet,
    followers: Vec<Arc<dyn Follower>>,
    callers: Option<Arc<Callers>>,
    stage: String,
    topic: String,
    keep_seconds: i64,
}

/// What somebody asks for who wants to send something over the default channel.
#[derive(Debug, Clone)]
pub struct Request {
    pub message_type: String,
    pub payload: Map<String, Value>,
    /// Absent: the installation's.
    pub stage: Option<String>,
    pub deliver_at: Option<Timestamp>,
    /// By which it may be cancelled.
    pub cancel_key: Option<String>,
}

/// On whose behalf a message is made.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// `user:<name>` or `scheduler`.
    pub created_by: &'a str,
    pub correlation_id: &'a str,
    /// Beside the correlation id.
    pub trace_parent: Option<&'a str>,
}

impl Messages {
    /// # Errors
    ///
    /// What is wrong with a configured message type.
    pub fn new(store: Arc<dyn Store>, config: &Config, followers: Vec<Arc<dyn Follower>>) -> Result<Self, String> {
        let stage = config.stage.as_str().to_owned();
        let days = i64::try_from(config.retention.messages_days).unwrap_or(i64::MAX);
        Ok(Self {
            ledger: Ledger::new(Arc::clone(&store), MADE_AT_ONCE),
            store,
            table: record::table(&stage),
            types: Types::new(&config.message_types)?.allowing_unknown(config.allow_unknown_types),
            signals: Arc::default(),
            holds: Holds::default(),
            recorded: watch::Sender::new(0),
            pushed: broadcast::Sender::new(PUSHED),
            new_letter_job: Arc::default(),
            policies: Policies::new(&config.delivery),
            quiet: Quiet::new(&config.quiet_hours),
            followers,
            callers: None,
            stage,
            topic: config.ntfy.topic.clone(),
            keep_seconds: days.saturating_mul(DAY_SECONDS),
        })
    }

    /// Makes hashes of phone numbers that tickets are for, before a message has them.
    #[must_use]
    pub fn hashing(self, callers: Arc<Callers>) -> Self {
        Self { callers: Some(callers), ..self }
    }

    #[must_use]
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// How long a message and what belongs to it are kept.
    #[must_use]
    pub fn keep_seconds(&self) -> i64 {
        self.keep_seconds
    }

    /// A message for the default channel: ntfy, on the topic that the payload names or the configured one. The payload
    /// is checked; the API and the scheduler come here.
    ///
    /// # Errors
    ///
    /// Every field that is wrong.
    pub fn compose(
        &self,
        request: Request,
        origin: Origin<'_>,
        message_id: Uuid,
        now: Timestamp,
    ) -> Result<Made, Vec<FieldError>> {
        // Held as the kind of value that validators take.
        let payload = Value::Object(request.payload);
        let mut errors = self.types.check_value(&request.message_type, &payload);
        let latest = now.as_second().saturating_add(self.keep_seconds);
        if request.deliver_at.is_some_and(|at| at.as_second() >= latest) {
            let days = self.keep_seconds / DAY_SECONDS;
            let days = if days == 1 { "1 day".to_owned() } else { format!("{days} days") };
            errors.push(FieldError::new("deliver_at", format!("must be within {days}")));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let topic = payload.get("topic").and_then(Value::as_str).unwrap_or(&self.topic);
        let target = Map::from_iter([("topic".to_owned(), topic.into())]);
        let new = NewMessage {
            message_id,
            created_by: origin.created_by.to_owned(),
            stage: request.stage.as_deref().unwrap_or(&self.stage),
            message_type: &request.message_type,
            payload: match payload {
                Value::Object(mut payload) => {
                    payload::keep_numbers(&mut payload);
                    payload
                }
                _ => Map::new(),
            },
            correlation_id: origin.correlation_id,
            channel: "ntfy",
            target,
            secret: None,
            event_id: None,
            rule: None,
            deliver_at: request.deliver_at,
            keep_seconds: self.keep_seconds,
        };
        let trace_id = origin.trace_parent.and_then(trace::carried);
        let message = Message { trace_id, cancel_key: request.cancel_key, ..Message::new(new, now) };
        // Too large, too deep, a number out of range: whatever an item cannot hold.
        let made = Made::new(message, &self.table);
        made.map_err(|error| vec![FieldError::new("payload", format!("cannot be stored: {error}"))])
    }

    /// The writes that make messages: theirs, in this order, and one that counts them. All are of one stage and made
    /// at the same moment.
    ///
    /// # Errors
    ///
    /// If a message holds what an item cannot.
    pub fn creation(&self, messages: &[Message]) -> Result<Vec<Write>, Error> {
        let mut writes = Vec::with_capacity(messages.len() + 1);
        for message in messages {
            writes.push(Write::insert(&self.table, message.to_item()?));
        }
        writes.extend(counters::created(messages));
        Ok(writes)
    }

    /// Stores messages, each for itself. One that is there already is the same request come again: it is given as it is
    /// now.
    pub async fn create(&self, messages: Vec<Message>) -> Result<Vec<Message>, Error> {
        let made =
            messages.into_iter().map(|message| Made::new(message, &self.table)).collect::<Result<Vec<_>, _>>()?;
        self.create_made(made, Message::clone).await
    }

    /// The same for those that were just composed; gives what is to be shown of each, which then goes its way.
    pub async fn create_made<T>(&self, made: Vec<Made>, show: impl Fn(&Message) -> T) -> Result<Vec<T>, Error> {
        // All are in line before anybody waits.
        let storing: Vec<_> = made.into_iter().map(|made| self.create_one(made, &show)).collect();
        let mut stored = Vec::with_capacity(storing.len());
        let mut refused = None;
        for storing in storing {
            match storing.await {
                Ok(shown) => stored.push(shown),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        refused.map_or(Ok(stored), Err)
    }

    /// The same for one, which is in line at once.
    pub fn create_one<T>(&self, made: Made, show: impl Fn(&Message) -> T) -> impl Future<Output = Result<T, Error>> {
        let seen = self.holds.changes();
        let lined_up = made.into_parts().map(|(entry, made)| (self.ledger.line_up(entry), made));
        async move {
            let (entered, made) = lined_up?;
            let outcome = match entered.await {
                Ok(()) => Ok(()),
                Err(Left::Refused(error)) => Err(error),
                Err(Left::Undecided) => self.store.transact(self.creation(std::slice::from_ref(&made.message))?).await,
            };
            match outcome {
                Ok(()) => {
                    let shown = show(&made.message);
                    self.signals.made(made, seen);
                    Ok(shown)
                }
                Err(error) => match error.conflict_on(0).and_then(|conflict| conflict.found.as_ref()) {
                    Some(found) => Ok(show(&Message::from_item(found)?)),
                    None => Err(error),
                },
            }
        }
    }

    pub async fn get(&self, message_id: &str) -> Result<Option<Stored>, Error> {
        // Whatever is no id of ours is no message of ours.
        if Uuid::parse_str(message_id).is_err() {
            return Ok(None);
        }
        self.store.get(&self.table, &Key::new(message_id)).await?.map(Stored::read).transpose()
    }

    /// Whether a message is in the store as it was read.
    pub async fn is_still(&self, stored: &Stored) -> Result<bool, Error> {
        let item = self.store.get(&self.table, &record::key(&stored.message.message_id)).await?;
        Ok(item.is_some_and(|item| stored.is_still(&item)))
    }

    /// A page of the messages of a cancelling key, newest first: of those that have `ended`, or of the others. Among these
    /// may be ended ones of an earlier version.
    pub async fn of_key(
        &self,
        key: &str,
        ended: bool,
        after: Option<Item>,
    ) -> Result<(Vec<Stored>, Option<Item>), Error> {
        let query = Query::new(record::cancel_part(key, ended)).index("cancel_key-index").descending();
        let page = self.store.query(&self.table, &query.limit(PAGE_OF_KEY).after(after)).await?;
        Ok((page.items.into_iter().map(Stored::read).collect::<Result<_, _>>()?, page.next))
    }

    /// How a message is tried again.
    #[must_use]
    pub fn policy_of(&self, message: &Message) -> Cow<'_, Policy> {
        let policy = self.policies.of(&message.channel, &message.message_type);
        match push::own_policy(message) {
            Some(own) => Cow::Owned(own.over(policy)),
            None => Cow::Borrowed(policy),
        }
    }

    /// What a message becomes by `input`.
    ///
    /// # Errors
    ///
    /// If its state does not allow that.
    pub fn transition(
        &self,
        stored: &Stored,
        input: Input,
        now: Timestamp,
        change: impl FnOnce(&mut Message),
    ) -> Result<Transition, Refused> {
        self.transition_of(Box::new(stored.clone()), input, now, change)
    }

    /// The same for one that nobody needs as it was.
    ///
    /// # Errors
    ///
    /// If its state does not allow that.
    pub fn transition_of(
        &self,
        stored: Box<Stored>,
        input: Input,
        now: Timestamp,
        change: impl FnOnce(&mut Message),
    ) -> Result<Transition, Refused> {
        self.passage_of(stored, [(input, now)], change)
    }

    /// What a message becomes by one input after the other, as one change.
    ///
    /// # Errors
    ///
    /// If its state does not allow one of them.
    pub fn passage_of(
        &self,
        stored: Box<Stored>,
        inputs: impl IntoIterator<Item = (Input, Timestamp)>,
        change: impl FnOnce(&mut Message),
    ) -> Result<Transition, Refused> {
        let policy = self.policy_of(&stored.message);
        stored.transition(&self.table, &policy, inputs, &self.followers, change)
    }

    /// The message that takes a dead letter's place, with what is to be changed.
    ///
    /// # Errors
    ///
    /// The store's; and, inside, every field that is wrong.
    pub async fn resubmission(
        &self,
        letter: &DeadLetter,
        edit: &Edit,
        created_by: &str,
        message_id: Uuid,
        now: Timestamp,
    ) -> Result<Result<Message, Vec<FieldError>>, Error> {
        let failed = match &letter.message {
            Some(message) => message.clone(),
            None => match self.get(&letter.id).await? {
                Some(stored) => stored.message,
                None => return Ok(Err(vec![FieldError::new("id", "its message has expired")])),
            },
        };
        let mut again = self.again(&failed, created_by.to_owned(), message_id, now);
        if let Err(errors) = edit.apply(&mut again, &self.types) {
            return Ok(Err(errors));
        }
        if let (Some(callers), "ticket") = (&self.callers, again.channel.as_str()) {
            let caller = again.target.get("caller").and_then(Value::as_str).unwrap_or_default();
            match callers.id(caller) {
                Ok(caller) => drop(again.target.insert("caller".to_owned(), caller.into())),
                Err(why) => return Ok(Err(vec![FieldError::new("target.caller", why)])),
            }
        }
        Ok(match again.to_item().and_then(|item| self.table.check_item(&item)) {
            Ok(()) => Ok(again),
            Err(error) => Err(vec![FieldError::new("payload", format!("cannot be stored: {error}"))]),
        })
    }

    /// A new message with what a failed one had, to those who did not get it (S002-52).
    #[must_use]
    pub fn again(&self, failed: &Message, created_by: String, message_id: Uuid, now: Timestamp) -> Message {
        let mut target = failed.target.clone();
        let missing: Vec<Value> = target.get("to").and_then(Value::as_array).into_iter().flatten().cloned().collect();
        let missing: Vec<Value> = missing
            .into_iter()
            .filter(|to| !to.as_str().and_then(|to| failed.recipients.get(to)).is_some_and(|known| known.delivered))
            .collect();
        if !missing.is_empty() {
            target.insert("to".to_owned(), missing.into());
        }
        let new = NewMessage {
            message_id,
            created_by,
            stage: &failed.stage,
            message_type: &failed.message_type,
            payload: failed.payload.clone(),
            correlation_id: &failed.correlation_id,
            channel: &failed.channel,
            target,
            secret: failed.secret.clone(),
            event_id: failed.event_id.as_deref(),
            rule: failed.rule.as_deref(),
            // One that was called off before its time has that time.
            deliver_at: Some(failed.deliver_at).filter(|at| *at > now),
            keep_seconds: self.keep_seconds,
        };
        Message {
            cancel_key: failed.cancel_key.clone(),
            retry_of: Some(failed.message_id.clone()),
            trace_id: failed.trace_id.clone(),
            lost_secret: failed.lost_secret.clone(),
            ..Message::new(new, now)
        }
    }
}
