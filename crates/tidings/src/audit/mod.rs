//! The audit log (SX-19): every administrative action, in the same transaction as its effect, in a hash chain.

mod export;
pub mod http;
pub mod persist;
mod record;
mod retention;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use tidings_core::time::{Clock, Timestamp};
use tidings_store::{Condition, Error, Item, Page, Query, Range, Store, Write};
use tokio::sync::Mutex;

pub use record::{Entry, table};

/// Writers that lose the race for the next number try so often; more is a sign of something else.
const TRIES: usize = 20;

/// Something somebody did that must be on record.
#[derive(Debug, Clone)]
pub struct Action {
    name: Cow<'static, str>,
    entity: Cow<'static, str>,
    entity_id: String,
    details: Value,
}

impl Action {
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        entity: impl Into<Cow<'static, str>>,
        entity_id: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), entity: entity.into(), entity_id: entity_id.into(), details: Value::Null }
    }

    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }
}

/// Which entries a reader wants; the first that is given decides the index, the rest filter.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Filter {
    pub user: Option<String>,
    pub action: Option<String>,
    pub entity: Option<String>,
    pub entity_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

pub struct Audit {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Entries of this process queue here instead of racing each other for the next number.
    turn: Mutex<()>,
}

impl Audit {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, turn: Mutex::new(()) }
    }

    /// Records an action together with the writes that are its effect: both, or neither.
    pub async fn record_with(
        &self,
        user: &str,
        correlation_id: &str,
        action: Action,
        effect: Vec<Write>,
    ) -> Result<Entry, Error> {
        let commit = |log: Vec<Write>| self.store.transact(log.into_iter().chain(effect.iter().cloned()).collect());
        Ok(self.record_within(user, correlation_id, action, commit).await?.0)
    }

    /// Records an action in a transaction that somebody else carries out, for effects that are more than writes: an
    /// event with what its rules cause. `commit` gets the log's writes, which must come first in what it counts its
    /// conflicts from, and may be called again.
    pub async fn record_within<T, F>(
        &self,
        user: &str,
        correlation_id: &str,
        action: Action,
        commit: impl Fn(Vec<Write>) -> F,
    ) -> Result<(Entry, T), Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let _turn = self.turn.lock().await;
        for _ in 0..TRIES {
            let head = self.store.get(table(), &record::head_key()).await?;
            let entry = self.next_entry(head.as_ref(), user, correlation_id, &action);
            match commit(chain(head.as_ref(), &entry)).await {
                // Only the head may have moved on; a refused effect is the caller's to judge.
                Err(error @ Error::Conflict { .. }) if error.conflict_on(0).is_some() => {}
                Err(error) => return Err(error),
                Ok(done) => return Ok((entry, done)),
            }
        }
        Err(Error::Throttled("the audit log is contended".to_owned()))
    }

    fn next_entry(&self, head: Option<&Item>, user: &str, correlation_id: &str, action: &Action) -> Entry {
        let mut entry = Entry {
            seq: head.and_then(|head| head.int("last")).unwrap_or(0) + 1,
            at: self.clock.now(),
            user: user.to_owned(),
            action: action.name.clone().into_owned(),
            entity: action.entity.clone().into_owned(),
            entity_id: action.entity_id.clone(),
            correlation_id: correlation_id.to_owned(),
            details: if action.details.is_null() { "{}".to_owned() } else { action.details.to_string() },
            previous: head.and_then(|head| head.str("hash")).unwrap_or_default().to_owned(),
            hash: String::new(),
        };
        // Never before the entry before it, whatever the clock does: who looks for a time finds it by halving.
        entry.at = entry.at.max(head.and_then(record::head_time).unwrap_or(Timestamp::MIN));
        // The stored time has microseconds; the hash must be of what is stored.
        entry.at = Timestamp::from_microsecond(entry.at.as_microsecond()).unwrap_or(entry.at);
        entry.hash = entry.compute_hash();
        entry
    }

    /// One page, newest first, with entries that do not fit the filter left out (a page may be short).
    pub async fn page(
        &self,
        filter: &Filter,
        limit: usize,
        after: Option<Item>,
    ) -> Result<(Vec<Entry>, Option<Item>), Error> {
        self.page_in_order(filter, limit, after, Order::NewestFirst).await
    }

    async fn page_in_order(
        &self,
        filter: &Filter,
        limit: usize,
        after: Option<Item>,
        order: Order,
    ) -> Result<(Vec<Entry>, Option<Item>), Error> {
        let query = match (&filter.correlation_id, &filter.user, &filter.action, &filter.entity) {
            // Few entries share one of these.
            (Some(id), ..) => Query::new(id).index("correlation-index"),
            (_, Some(user), ..) => Query::new(user).index("user-index"),
            (.., Some(action), _) => Query::new(action).index("action-index"),
            (.., Some(entity)) => Query::new(entity).index("entity-index"),
            _ => Query::new(record::LOG),
        };
        let Some(range) = self.numbers(filter).await? else { return Ok((Vec::new(), None)) };
        let query = query.range(range).limit(limit).after(after);
        let query = if order == Order::NewestFirst { query.descending() } else { query };
        let Page { items, next } = self.store.query(table(), &query).await?;
        let entries = items.iter().map(Entry::from_item).collect::<Result<Vec<_>, _>>()?;
        Ok((entries.into_iter().filter(|entry| filter.fits(entry)).collect(), next))
    }

    /// The numbers of the entries within the filter's times; `None` if there are none.
    async fn numbers(&self, filter: &Filter) -> Result<Option<Range>, Error> {
        if filter.from.is_none() && filter.to.is_none() {
            return Ok(Some(Range::AtLeast(1_i64.into())));
        }
        let head = self.store.get(table(), &record::head_key()).await?;
        let (first, last) = head.as_ref().map_or((1, 0), record::head_range);
        let low = match filter.from {
            Some(from) => self.number_at(from, first, last).await?,
            None => first,
        };
        let high = match filter.to {
            Some(to) => self.number_at(just_after(to), first, last).await? - 1,
            None => last,
        };
        Ok((low <= high).then(|| Range::Between(low.into(), high.into())))
    }

    /// The number of the first entry not before `at`; times rise with the numbers.
    async fn number_at(&self, at: Timestamp, first: i64, last: i64) -> Result<i64, Error> {
        let (mut low, mut high) = (first, last + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.store.get(table(), &record::key(middle)).await?;
            let before = entry.as_ref().map(Entry::from_item).transpose()?.is_some_and(|entry| entry.at < at);
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Checks every entry against the one before it and against the head: a changed, missing or cut-off entry shows.
    pub async fn verify(&self) -> Result<Verification, Error> {
        let start = self.store.get(table(), &record::head_key()).await?;
        let (first, mut hash) = start.as_ref().map_or((1, String::new()), record::head_start);
        let mut seq = first - 1;
        let mut query = Query::new(record::LOG).range(Range::AtLeast(1_i64.into())).limit(500);
        loop {
            let page = self.store.query(table(), &query).await?;
            for item in &page.items {
                let entry = Entry::from_item(item)?;
                let problem = if entry.seq < first {
                    Some(format!("entry {} lies before the beginning of the log", entry.seq))
                } else if entry.seq != seq + 1 {
                    Some(format!("entry {} is missing", seq + 1))
                } else if entry.previous != hash || entry.hash != entry.compute_hash() {
                    Some(format!("entry {} was changed", entry.seq))
                } else {
                    None
                };
                if problem.is_some() {
                    return Ok(Verification { entries: seq - first + 1, problem });
                }
                (seq, hash) = (entry.seq, entry.hash);
            }
            if page.next.is_none() {
                break;
            }
            query = query.after(page.next);
        }
        let problem = self.compare_with_head(start.as_ref(), seq, &hash).await?;
        Ok(Verification { entries: seq - first + 1, problem })
    }

    /// Whether the log ends where its head says. Entries may have been added since the head was read; fewer than it
    /// says means a cut.
    async fn compare_with_head(&self, start: Option<&Item>, seq: i64, hash: &str) -> Result<Option<String>, Error> {
        let last = start.map_or(0, |head| record::head_range(head).1);
        if seq < last {
            return Ok(Some(format!("entries {} to {last} are missing", seq + 1)));
        }
        let head = self.store.get(table(), &record::head_key()).await?;
        let (known, known_hash) =
            head.as_ref().map_or((0, ""), |head| (record::head_range(head).1, head.str("hash").unwrap_or_default()));
        Ok(if known < seq {
            Some(format!("the log's head says {known} entries, and there are {seq}"))
        } else if known == seq && known_hash != hash {
            Some("the log's head was changed".to_owned())
        } else {
            None
        })
    }
}

/// In which order entries are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    NewestFirst,
    OldestFirst,
}

/// The first instant that is later, as the log keeps time.
fn just_after(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond().saturating_add(1)).unwrap_or(Timestamp::MAX)
}

/// What [`Audit::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    pub entries: i64,
    pub problem: Option<String>,
}

fn chain(head: Option<&Item>, entry: &Entry) -> Vec<Write> {
    let unmoved = match head.and_then(|head| head.get("hash")) {
        Some(hash) => Condition::Equals("hash".into(), hash.clone()),
        None => Condition::NotExists,
    };
    vec![Write::put(table(), record::head_after(head, entry)).when(unmoved), Write::insert(table(), entry.to_item())]
}

impl Filter {
    fn fits(&self, entry: &Entry) -> bool {
        let same = |wanted: &Option<String>, have: &str| wanted.as_ref().is_none_or(|wanted| wanted == have);
        same(&self.user, &entry.user)
            && same(&self.action, &entry.action)
            && same(&self.entity, &entry.entity)
            && same(&self.entity_id, &entry.entity_id)
            && same(&self.correlation_id, &entry.correlation_id)
            && self.from.is_none_or(|from| entry.at >= from)
            && self.to.is_none_or(|to| entry.at <= to)
    }
}
