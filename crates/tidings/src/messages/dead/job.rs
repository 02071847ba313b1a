//! The same thing done to many dead letters: durable, a chunk for each transaction, carried on after a restart, each
//! letter once.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value as Json};
use tidings_core::pattern::Pattern;
use tidings_core::time::{Clock, Timestamp, iso_millis};
use tidings_store::{Change, Condition, Error, Item, Key, KeyKind, Query, Store, Table, Value, Write};
use tokio::sync::watch;
use uuid::Uuid;

use super::edit::Edit;
use super::{DeadLetter, Filter, OnBus, discard, oldest};
use crate::audit::{Action, Audit};
use crate::bus::resubmit::document;
use crate::bus::{Bus, Path, Where, letters};
use crate::messages::{Message, Messages, counters};

/// The partition of `open-index`.
const OPEN: &str = "open";
/// Letters in one transaction: two writes each, and a few for the rest.
const CHUNK: usize = 40;
/// Done, a job can be looked at for so long.
const KEPT_SECONDS: i64 = 7 * 86_400;
/// A chunk that meets somebody else's change is done again so often.
const TRIES: usize = 10;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-dead-letter-jobs", "job_id", KeyKind::S)
            .index("open-index", ("open".into(), KeyKind::S), Some(("created_at".into(), KeyKind::S)))
            .ttl("ttl")
    });
    &TABLE
}

/// What is done to the letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Resubmit,
    Purge,
}

impl Deed {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resubmit => "resubmit",
            Self::Purge => "purge",
        }
    }
}

/// What somebody wants done.
#[derive(Debug, Clone)]
pub struct Order {
    pub deed: Deed,
    /// None but these.
    pub filter: Filter,
    /// Of these, a pattern over the letters; absent: all of them.
    pub pattern: Option<String>,
    pub edit: Edit,
    pub by: String,
    pub created_by: String,
    pub correlation_id: String,
}

/// A job as it is stored.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: String,
    pub order: Order,
    pub created_at: String,
    pub finished_at: Option<String>,
    /// Letters looked at, done, and left because they could not be.
    pub seen: i64,
    pub done: i64,
    pub failed: i64,
    /// Why the first of those was left.
    pub error: Option<String>,
    cursor: Option<Item>,
    /// Every letter was looked at.
    end: bool,
    step: i64,
}

/// The write that begins a job. It is about the letters that there are now.
///
/// # Errors
///
/// If the order holds what an item cannot.
pub fn begin(id: Uuid, order: &Order, now: Timestamp) -> Result<Write, Error> {
    let object = |map: &Option<Map<String, Json>>| map.as_ref().map(|map| Json::Object(map.clone()).to_string());
    let filter = (order.filter != Filter::default()).then(|| serde_json::to_string(&order.filter)).transpose();
    let filter = filter.map_err(|error| Error::Invalid(format!("a filter cannot be stored: {error}")))?;
    let item = Item::new()
        .with_some("filter", filter)
        .with("job_id", id.to_string())
        .with("open", OPEN)
        .with("created_at", iso_millis(now))
        .with("deed", order.deed.as_str())
        .with_some("pattern", order.pattern.as_ref())
        .with_some("payload", object(&order.edit.payload))
        .with_some("target", object(&order.edit.target))
        .with_some("body", order.edit.body.as_ref())
        .with("by", &order.by)
        .with("created_by", &order.created_by)
        .with("correlation_id", &order.correlation_id)
        .with("seen", 0_i64)
        .with("done", 0_i64)
        .with("failed", 0_i64)
        .with("step", 0_i64);
    table().check_item(&item)?;
    Ok(Write::insert(table(), item))
}

pub async fn get(store: &dyn Store, id: &str) -> Result<Option<Job>, Error> {
    if Uuid::parse_str(id).is_err() {
        return Ok(None);
    }
    store.get(table(), &Key::new(id)).await?.map(|item| Job::from_item(&item)).transpose()
}

/// Where a chunk has brought a job.
enum Moved {
    On(Box<Job>),
    /// Nowhere: what it stands at belongs to other nodes.
    Waits,
}

/// Carries jobs on.
pub struct Clerk {
    pub store: Arc<dyn Store>,
    pub messages: Arc<Messages>,
    pub bus: Arc<Bus>,
    pub stop: watch::Receiver<bool>,
}

impl Clerk {
    /// Does everything that is open. Two at once do each chunk once.
    pub async fn activate(&self, audit: &Audit, clock: &dyn Clock) -> Result<(), Error> {
        // What was done to letters of the bus is counted by who moves the job: one of us at a time.
        let _turn = self.bus.desk.lock().await;
        let query = Query::new(OPEN).index("open-index").limit(100);
        for item in self.store.query(table(), &query).await?.items {
            let mut job = Job::from_item(&item)?;
            while !*self.stop.borrow() {
                if job.end {
                    self.finish(&job, audit, clock.now()).await?;
                    break;
                }
                match self.chunk(&job, clock.now()).await? {
                    Some(Moved::On(next)) => job = *next,
                    // What is left here is another node's to do: that one carries it on.
                    Some(Moved::Waits) => break,
                    // Another node is at it, too: on from where it is.
                    None => match get(&*self.store, &job.id).await? {
                        Some(found) if found.finished_at.is_none() => job = found,
                        _ => break,
                    },
                }
            }
        }
        Ok(())
    }

    /// The next letters, in one transaction with the job's moving on; `None` if another node moved it on.
    async fn chunk(&self, job: &Job, now: Timestamp) -> Result<Option<Moved>, Error> {
        for _ in 0..TRIES {
            let (letters, next) = oldest(&*self.store, &job.created_at, CHUNK, job.cursor.clone()).await?;
            let Some((moved, writes, made)) = self.plan(job, letters, next, now).await? else {
                return Ok(Some(Moved::Waits));
            };
            match self.store.transact(writes).await {
                Ok(()) => {
                    self.messages.signals.created(&made);
                    return Ok(Some(Moved::On(Box::new(moved))));
                }
                Err(error @ Error::Conflict { .. }) if error.conflict_on(0).is_some() => return Ok(None),
                // A letter is gone meanwhile; what is left is looked at again.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Throttled("the dead letters are contended".to_owned()))
    }

    /// What a chunk comes to: the job as it is then, the writes, and the messages that they make; `None` if some of it is
    /// for other nodes to do first.
    async fn plan(
        &self,
        job: &Job,
        letters: Vec<DeadLetter>,
        next: Option<Item>,
        now: Timestamp,
    ) -> Result<Option<(Job, Vec<Write>, Vec<Message>)>, Error> {
        let mut moved = Job { end: next.is_none(), cursor: next, step: job.step + 1, ..job.clone() };
        let unreadable = |error| Error::Corrupt(format!("a stored job's pattern cannot be read: {error}"));
        let pattern = job.order.pattern.as_deref().map(Pattern::parse).transpose().map_err(unreadable)?;
        let (mut writes, mut made) = (Vec::new(), Vec::new());
        let (letters, others): (Vec<_>, Vec<_>) = letters.into_iter().partition(|one| job.order.filter.covers(one));
        moved.seen += i64::try_from(others.len()).unwrap_or_default();
        let (of_bus, letters): (Vec<_>, Vec<_>) = letters.into_iter().partition(|letter| letter.bus.is_some());
        if !self.on_bus(&mut moved, of_bus, pattern.as_ref()).await? {
            // What was done here is counted; the rest of the chunk is looked at again when the others have done theirs.
            return Ok(None);
        }
        for letter in letters {
            moved.seen += 1;
            let fits = pattern.as_ref().is_none_or(|p| p.matches(&letter.to_json().to_string()).unwrap_or(false));
            if !fits {
                continue;
            }
            if job.order.deed == Deed::Resubmit {
                let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("resubmit\n{}\n{}", job.id, letter.id).as_bytes());
                match self.messages.resubmission(&letter, &job.order.edit, &job.order.created_by, id, now).await? {
                    Ok(message) => {
                        writes.push(Write::insert(&self.messages.table, message.to_item()?));
                        made.push(message);
                    }
                    Err(errors) => {
                        moved.failed += 1;
                        let why = || errors.iter().map(|e| format!("{} {}", e.field, e.message)).collect::<Vec<_>>();
                        moved.error.get_or_insert_with(|| format!("{}: {}", letter.id, why().join("; ")));
                        continue;
                    }
                }
            }
            writes.push(discard(&letter.id));
            moved.done += 1;
        }
        for stage in ["dev", "stage", "prod"] {
            let of_stage: Vec<Message> = made.iter().filter(|message| message.stage == stage).cloned().collect();
            writes.extend(counters::created(&of_stage));
        }
        writes.insert(0, moved.moving(job));
        Ok(Some((moved, writes, made)))
    }

    /// Letters of the bus, in transactions of its own: each is gone and counted with that: nobody
    /// sees it a second time. Says whether all of them are this node's to deal with.
    async fn on_bus(&self, job: &mut Job, letters: Vec<DeadLetter>, pattern: Option<&Pattern>) -> Result<bool, Error> {
        let mut all = true;
        let deed = match job.order.deed {
            Deed::Resubmit => letters::Deed::SendBack(job.order.edit.body()),
            Deed::Purge => letters::Deed::Remove,
        };
        let refuse = |job: &mut Job, count: usize, why: String| {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            (job.failed, job.seen) = (job.failed.saturating_add(count), job.seen.saturating_add(count));
            job.error.get_or_insert(why);
        };
        let mut lines: BTreeMap<(String, String), (OnBus, Vec<u64>)> = BTreeMap::new();
        for letter in letters {
            let Some(at) = letter.bus.clone() else { continue };
            let fits = match pattern {
                None => true,
                Some(pattern) => match self.bus.letter(&at).await? {
                    Some(stored) => {
                        let seen = letter.on_bus_json(document(&stored)).to_string();
                        pattern.matches(&seen).unwrap_or(false)
                    }
                    // It was purged, and its entry is about to go.
                    None => continue,
                },
            };
            job.seen += i64::from(!fits);
            if fits && job.order.deed == Deed::Resubmit && job.order.edit.target.is_some() {
                refuse(job, 1, format!("{}: target cannot be changed of a message of the bus", letter.id));
            } else if fits {
                let line = lines.entry((at.path.clone(), at.generation.clone()));
                line.or_insert_with(|| (at.clone(), Vec::new())).1.push(at.number);
            }
        }
        let id = job.id.clone();
        let counted = move |count: usize| counting(&id, count);
        for (at, numbers) in lines.into_values() {
            if let Some(path) = Path::parse(&at.path)
                && self.bus.whereabouts(&path).await? != Where::Here
            {
                all = false;
                continue;
            }
            match self.bus.deal_with_all(&at, &numbers, &deed, Some(&counted)).await {
                Ok(done) => {
                    if done.locked > 0 {
                        let why = format!("{}: {}", at.path, letters::LetterError::Locked);
                        refuse(job, usize::try_from(done.locked).unwrap_or(usize::MAX), why);
                    }
                }
                Err(letters::LetterError::Bus(crate::bus::BusError::Store(error))) => return Err(error),
                Err(error) => refuse(job, numbers.len(), format!("{}: {error}", at.path)),
            }
        }
        Ok(all)
    }

    async fn finish(&self, job: &Job, audit: &Audit, now: Timestamp) -> Result<(), Error> {
        // With what all nodes have counted.
        let Some(job) = get(&*self.store, &job.id).await? else { return Ok(()) };
        let changes = vec![
            Change::Remove("open".into()),
            Change::Set("finished_at".into(), iso_millis(now).into()),
            Change::Set("ttl".into(), now.as_second().saturating_add(KEPT_SECONDS).into()),
        ];
        let write = Write::update(table(), Key::new(&job.id), changes).when(Condition::HasAttribute("open".into()));
        let (name, order) = (job.order.deed, &job.order);
        let action = match name {
            Deed::Resubmit => Action::new("dead_letters.resubmitted", "dead_letter_job", &job.id),
            Deed::Purge => Action::new("dead_letters.purged", "dead_letter_job", &job.id),
        };
        let details = serde_json::json!({ "seen": job.seen, "done": job.done, "failed": job.failed });
        match audit.record_with(&order.by, &order.correlation_id, action.details(details), vec![write]).await {
            // Another node was faster.
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The write that adds to what was looked at and done, whoever else does so.
fn counting(id: &str, count: usize) -> Write {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let changes = ["seen", "done"].map(|name| Change::Add(name.into(), count));
    Write::update(table(), Key::new(id), changes.to_vec())
}

impl Job {
    /// The write that moves the job from where it was to here.
    fn moving(&self, before: &Self) -> Write {
        let mut changes =
            vec![Change::Set("step".into(), self.step.into()), Change::Set("end".into(), Value::Bool(self.end))];
        // Others may have counted meanwhile.
        let counts = [
            ("seen", self.seen - before.seen),
            ("done", self.done - before.done),
            ("failed", self.failed - before.failed),
        ];
        changes.extend(counts.map(|(name, more)| Change::Add(name.into(), more)));
        changes.extend(self.error.as_ref().map(|error| Change::Set("error".into(), error.as_str().into())));
        changes.extend(self.cursor.as_ref().map(|cursor| Change::Set("cursor".into(), Value::M(cursor.0.clone()))));
        Write::update(table(), Key::new(&self.id), changes).when(Condition::Equals("step".into(), before.step.into()))
    }

    fn from_item(item: &Item) -> Result<Self, Error> {
        let text = |name: &str| item.str(name).map(ToOwned::to_owned);
        let count = |name: &str| item.int(name).unwrap_or(0);
        let object = |name: &str| item.str(name).and_then(|text| serde_json::from_str(text).ok());
        let unreadable = |error| Error::Corrupt(format!("a stored job cannot be read: {error}"));
        let deed = [Deed::Resubmit, Deed::Purge].into_iter().find(|deed| item.str("deed") == Some(deed.as_str()));
        Ok(Self {
            id: text("job_id").unwrap_or_default(),
            order: Order {
                deed: deed.ok_or_else(|| Error::Corrupt("a stored job cannot be read".to_owned()))?,
                // What cannot be read must not become everything.
                filter: item
                    .str("filter")
                    .map(serde_json::from_str)
                    .transpose()
                    .map_err(unreadable)?
                    .unwrap_or_default(),
                pattern: text("pattern"),
                edit: Edit { payload: object("payload"), target: object("target"), body: text("body") },
                by: text("by").unwrap_or_default(),
                created_by: text("created_by").unwrap_or_default(),
                correlation_id: text("correlation_id").unwrap_or_default(),
            },
            created_at: text("created_at").unwrap_or_default(),
            finished_at: text("finished_at"),
            seen: count("seen"),
            done: count("done"),
            failed: count("failed"),
            error: text("error"),
            cursor: match item.get("cursor") {
                Some(Value::M(cursor)) => Some(Item(cursor.clone())),
                _ => None,
            },
            end: item.get("end") == Some(&Value::Bool(true)),
            step: count("step"),
        })
    }
}
