//! Tickets of the service desk (seed 004): four calls for the voice desk, a fifth for those who work on them, and tickets
//! that rules open.
//!
//! `record` is the seed's item, `read` judges what comes in, `callers` and `redact` keep out what must not be stored,
//! `alert` is for rules, `import` for tickets from elsewhere. Every change is one transaction with its event, so that
//! rules see exactly what happened.

mod alert;
pub mod callers;
pub mod correlation;
mod digits;
pub mod http;
mod import;
pub mod read;
pub mod record;
mod redact;
mod status;

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidings_core::envelope::Envelope;
use tidings_core::ids::IdSource;
use tidings_core::time::{self, Clock, Timestamp};
use tidings_store::{Change, Condition, Error, Item, Query, Store, Write};
use uuid::Uuid;

pub use alert::{Alert, Raised};
pub use read::check_text;
pub use record::{Comment, Ticket, alerts_table, table};
pub use redact::redact;
pub use status::Status;

use self::callers::Callers;
use crate::audit::{Action, Audit};
pub use crate::business::origin::Origin;
use crate::config::{Config, Stage};
use crate::http::{Metrics, Problem};
use crate::ingest::{Arrival, Companions, Ingest, Receipt};

/// The source of tickets' events.
pub const SOURCE: &str = "tidings/tickets";
/// What the tickets' table is for; its events carry it (S004-02).
pub const ENVIRONMENT: &str = "poc";
/// Whoever finds that somebody else was faster tries again so often.
const TRIES: usize = 50;
const DAY_SECONDS: i64 = 86_400;

/// The tickets of this installation.
pub struct Tickets {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    ingest: Arc<Ingest>,
    metrics: Arc<Metrics>,
    callers: Arc<Callers>,
    keep_seconds: i64,
    /// A production installation does not take tickets of a trial.
    refused: bool,
}

/// What somebody asks for who has a problem; checked already.
#[derive(Debug, Clone)]
pub struct NewTicket {
    pub caller_id: String,
    pub issue_description: String,
}

/// Why a ticket is not what somebody wants it to be.
#[derive(Debug)]
pub enum Refused {
    Unknown,
    /// A sentence for the caller.
    Conflict(String),
    Store(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unknown => Self::not_found("there is no ticket of this id"),
            Refused::Conflict(why) => Self::conflict(why),
            Refused::Store(error) => error.into(),
        }
    }
}

impl Tickets {
    #[must_use]
    pub fn new(ingest: &Arc<Ingest>, callers: Arc<Callers>, config: &Config) -> Self {
        let (store, clock, ids) = (Arc::clone(&ingest.store), Arc::clone(&ingest.clock), Arc::clone(&ingest.ids));
        let days = i64::try_from(config.retention.tickets_days).unwrap_or(i64::MAX);
        Self {
            store,
            clock,
            ids,
            ingest: Arc::clone(ingest),
            metrics: Arc::clone(&ingest.metrics),
            callers,
            keep_seconds: days.saturating_mul(DAY_SECONDS),
            refused: config.stage == Stage::Prod && !config.tickets.in_prod,
        }
    }

    /// S004-02: the table's name says that it is for a trial, and a production installation does not mix with one.
    fn permitted(&self) -> Result<(), Refused> {
        if self.refused {
            let why =
                "tickets are stored in poc-itsm-tickets, which is not for stage prod; set tickets.in_prod to allow it";
            return Err(Refused::Conflict(why.to_owned()));
        }
        Ok(())
    }

    /// How callers are stored.
    #[must_use]
    pub fn callers(&self) -> &Arc<Callers> {
        &self.callers
    }

    /// A ticket from elsewhere as it is to be stored: a closed one is kept as long as one that is closed here.
    fn taken_over(&self, ticket: Ticket) -> Ticket {
        let closed = ticket.status == Status::Closed;
        let expires_at = closed.then(|| ticket.updated_at.as_second().saturating_add(self.keep_seconds));
        Ticket { expires_at, ..ticket }
    }

    pub async fn get(&self, ticket_id: &str) -> Result<Option<Ticket>, Error> {
        let key = record::key(ticket_id);
        // What can be no key is no ticket's.
        if table().check_key(&key).is_err() {
            return Ok(None);
        }
        match self.store.get(table(), &key).await? {
            Some(item) => Ticket::from_item(&item),
            None => Ok(None),
        }
    }

    /// A page of a caller's tickets, newest first.
    pub async fn of_caller(
        &self,
        caller_id: &str,
        limit: usize,
        after: Option<Item>,
    ) -> Result<(Vec<Item>, Option<Item>), Error> {
        let query = Query::new(caller_id).index(record::CALLERS).descending().limit(limit).after(after);
        let page = self.store.query(table(), &query).await?;
        Ok((page.items, page.next))
    }

    /// Opens a ticket. The ids make it the same ticket if the same request comes again.
    pub async fn create(
        &self,
        new: NewTicket,
        origin: Origin<'_>,
        (ticket_id, event_id): (Uuid, Uuid),
    ) -> Result<Ticket, Refused> {
        self.permitted()?;
        let ticket = self.opened(ticket_id, new);
        let event = created_event(&ticket, origin, event_id);
        let mut writes = vec![Write::insert(table(), ticket.to_item())];
        writes.extend(self.found_by(&ticket, origin, ticket.created_at));
        match self.accept(event, writes).await?.status {
            "accepted" => Ok(ticket),
            _ => self.get(&ticket.ticket_id).await?.ok_or(Refused::Unknown),
        }
    }

    fn opened(&self, ticket_id: Uuid, new: NewTicket) -> Ticket {
        let now = record::to_micros(self.clock.now());
        Ticket {
            ticket_id: ticket_id.to_string(),
            caller_id: new.caller_id,
            issue_description: self.clean(&new.issue_description),
            status: Status::Open,
            created_at: now,
            updated_at: now,
            comments: Vec::new(),
            expires_at: None,
        }
    }

    /// Adds a comment to the end. Nobody's is lost, and they stand in the order in which they came (S004-24).
    pub async fn comment(
        &self,
        ticket_id: &str,
        text: &str,
        origin: Origin<'_>,
        event_id: Uuid,
    ) -> Result<Ticket, Refused> {
        self.permitted()?;
        let text = self.clean(text);
        for _ in 0..TRIES {
            let (ticket, item) = self.present(ticket_id).await?;
            let comment = self.next_comment(&ticket, text.clone(), origin.by);
            let event = commented_event(&ticket, &comment, origin, event_id);
            let mut writes = vec![appending(&ticket, &item, &comment)];
            writes.extend(self.found_by(&ticket, origin, comment.added_at));
            match self.accept(event, writes).await {
                Ok(_) => return self.get(ticket_id).await?.ok_or(Refused::Unknown),
                Err(Error::Conflict { .. }) => {}
                Err(Error::Invalid(_)) if is_full(&item, &comment) => return Err(Refused::Conflict(full())),
                // Others may have filled it since it was read.
                Err(Error::Invalid(_)) if self.has_changed(ticket_id, &item).await? => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Throttled("the ticket is contended".to_owned()).into())
    }

    /// Not before what was there, whatever the clock does (S004-25).
    fn next_comment(&self, ticket: &Ticket, comment_text: String, by: &str) -> Comment {
        let added_at = record::to_micros(self.clock.now()).max(ticket.updated_at);
        Comment { comment_text, added_at, author: Some(by.to_owned()) }
    }

    /// Moves a ticket to another state. The same state again changes nothing and is no event.
    pub async fn set_status(
        &self,
        audit: &Audit,
        ticket_id: &str,
        status: Status,
        origin: Origin<'_>,
    ) -> Result<Ticket, Refused> {
        self.permitted()?;
        for _ in 0..TRIES {
            let (ticket, item) = self.present(ticket_id).await?;
            if ticket.status == status {
                return Ok(ticket);
            }
            if !ticket.status.leads_to(status) {
                let (from, to) = (ticket.status.as_str(), status.as_str());
                return Err(Refused::Conflict(format!("a ticket that is {from} cannot become {to}")));
            }
            let (after, write) = self.moving(&ticket, &item, status);
            let effect: Vec<Write> =
                [write].into_iter().chain(self.found_by(&after, origin, after.updated_at)).collect();
            let event_id = self.ids.uuid(after.updated_at);
            let action = Action::new("ticket.status", "ticket", ticket_id)
                .details(json!({ "from": ticket.status.as_str(), "to": status.as_str() }));
            let committed = audit
                .record_within(origin.by, origin.correlation_id, action, |log| {
                    let event = moved_event(&ticket, &after, origin, event_id);
                    self.accept(event, log.into_iter().chain(effect.iter().cloned()).collect())
                })
                .await;
            match committed {
                Ok(_) => return Ok(after),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Throttled("the ticket is contended".to_owned()).into())
    }

    fn moving(&self, ticket: &Ticket, item: &Item, status: Status) -> (Ticket, Write) {
        let now = record::to_micros(self.clock.now()).max(ticket.updated_at);
        let closed = status == Status::Closed;
        let expires_at = closed.then(|| now.as_second().saturating_add(self.keep_seconds));
        let mut changes = vec![
            Change::Set("status".into(), status.as_str().into()),
            Change::Set("updated_at".into(), time::iso_micros(now).into()),
        ];
        changes.extend(expires_at.map(|at| Change::Set(record::EXPIRY.into(), at.into())));
        let unchanged = ["status", "updated_at"].map(|name| as_read(item, name));
        let write = Write::update(table(), record::key(&ticket.ticket_id), changes);
        let after = Ticket { status, updated_at: now, expires_at, ..ticket.clone() };
        (after, write.when(Condition::All(unchanged.to_vec())))
    }

    /// A ticket that is there, and its item.
    async fn present(&self, ticket_id: &str) -> Result<(Ticket, Item), Refused> {
        let item = self.store.get(table(), &record::key(ticket_id)).await?.ok_or(Refused::Unknown)?;
        let ticket = Ticket::from_item(&item)?.ok_or(Refused::Unknown)?;
        Ok((ticket, item))
    }

    /// Whether a ticket is no longer as it was read.
    async fn has_changed(&self, ticket_id: &str, item: &Item) -> Result<bool, Error> {
        Ok(self.store.get(table(), &record::key(ticket_id)).await?.as_ref() != Some(item))
    }

    /// The text as it may be stored.
    fn clean(&self, text: &str) -> String {
        let (text, secrets) = redact(text);
        self.metrics.redactions.inc_by(secrets as u64);
        text
    }

    async fn accept(&self, envelope: Envelope, writes: Vec<Write>) -> Result<Receipt, Error> {
        let arrival = Arrival { envelope, with: Companions { writes, ..Companions::default() } };
        let mut receipts = self.ingest.accept_each(vec![arrival]).await?;
        receipts.pop().unwrap_or_else(|| Err(Error::Corrupt("an event got no receipt".to_owned())))
    }
}

/// The write that adds a comment, unless somebody has added a later one meanwhile.
fn appending(ticket: &Ticket, item: &Item, comment: &Comment) -> Write {
    let at = time::iso_micros(comment.added_at);
    let changes = vec![
        Change::Append("comments".into(), vec![comment.to_value()]),
        Change::Set("updated_at".into(), at.clone().into()),
    ];
    // A ghost's update would begin an item of its own; a ticket has a caller.
    let not_later = Condition::any(vec![
        as_read(item, "updated_at"),
        Condition::Less("updated_at".into(), at.clone().into()),
        Condition::Equals("updated_at".into(), at.into()),
    ]);
    let condition = Condition::All(vec![Condition::HasAttribute("caller_id".into()), not_later]);
    Write::update(table(), record::key(&ticket.ticket_id), changes).when(condition)
}

/// That an attribute is as it was read.
fn as_read(item: &Item, name: &'static str) -> Condition {
    match item.get(name) {
        Some(value) => Condition::Equals(name.into(), value.clone()),
        None => Condition::LacksAttribute(name.into()),
    }
}

/// Whether the comment would make the item larger than an item can be (S004-43).
fn is_full(item: &Item, comment: &Comment) -> bool {
    item.size() + comment.to_value().size() + 64 > tidings_store::limits::ITEM_BYTES
}

fn full() -> String {
    "the ticket is full: with this comment it would have more than 400 KB; open another one".to_owned()
}

fn envelope(
    event_type: &str,
    ticket_id: &str,
    at: Timestamp,
    origin: Origin<'_>,
    event_id: Uuid,
    data: &Json,
) -> Envelope {
    let mut envelope = Envelope {
        event_id: event_id.to_string(),
        event_type: event_type.to_owned(),
        event_version: "1.0".to_owned(),
        event_timestamp: at,
        correlation_id: origin.correlation_id.to_owned(),
        source: Some(SOURCE.to_owned()),
        subject: Some(format!("ticket/{ticket_id}")),
        data: data.to_string(),
        extensions: Vec::new(),
    };
    origin.join(&mut envelope);
    envelope
}

fn created_event(ticket: &Ticket, origin: Origin<'_>, event_id: Uuid) -> Envelope {
    let data = summary(ticket, json!({ "created_by": origin.by }));
    envelope("ticket.created", &ticket.ticket_id, ticket.created_at, origin, event_id, &data)
}

fn commented_event(ticket: &Ticket, comment: &Comment, origin: Origin<'_>, event_id: Uuid) -> Envelope {
    let Comment { comment_text, added_at, author } = comment;
    let more = json!({ "comment_text": comment_text, "added_at": time::iso_micros(*added_at), "author": author });
    envelope("ticket.commented", &ticket.ticket_id, *added_at, origin, event_id, &summary(ticket, more))
}

fn moved_event(before: &Ticket, after: &Ticket, origin: Origin<'_>, event_id: Uuid) -> Envelope {
    let (old, new) = (before.status.as_str(), after.status.as_str());
    let data = summary(after, json!({ "old_status": old, "new_status": new, "changed_by": origin.by }));
    envelope("ticket.status_changed", &after.ticket_id, after.updated_at, origin, event_id, &data)
}

/// What every event of a ticket tells, and what only this one does.
fn summary(ticket: &Ticket, more: Json) -> Json {
    let mut all = json!({
        "ticket_id": ticket.ticket_id, "caller_id": ticket.caller_id, "issue_description": ticket.issue_description,
        "status": ticket.status.as_str(), "created_at": time::iso_micros(ticket.created_at),
        "environment": ENVIRONMENT,
    });
    if let (Json::Object(all), Json::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}
