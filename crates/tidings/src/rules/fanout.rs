//! Carries jobs on: chunk by chunk, each in a transaction that also moves the job's cursor.
//!
//! A crash loses nothing: the next start goes on at the cursor. Two nodes at the same job do no harm: every move is
//! conditional on the one before. Keys follow from event and user, and an entry that is there already is passed over.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use tidings_core::envelope::Envelope;
use tidings_store::{Error, Query, Store, Table, Value, Write, limits};
use tokio::sync::watch;

use super::book::Book;
use super::exclude::Exclusions;
use super::job::{self, Cursor, Job};
use super::notice::{self, Destination, Notice, Occurrence, Settings};
use super::outcome::Outcome;
use super::rule::Rule;
use super::template::Fields;
use crate::events::{StoredEvent, record as events};
use crate::http::Metrics;
use crate::inbox::{Entry, map};
use crate::messages::{Message, Signals, counters, record};

/// Users in one chunk: two writes each, and one for the job.
const CHUNK_USERS: usize = (limits::TRANSACTION_WRITES - 1) / 2;
/// Bytes of one chunk.
const CHUNK_BYTES: usize = limits::TRANSACTION_BYTES - 512 * 1024;
/// Chunks handed to the store at once: it makes them durable together.
const CHUNKS: usize = 16;
/// Jobs looked up at a time, and carried on at the same time: a long one must not hold up the short ones.
const JOBS: usize = 20;
const JOBS_AT_ONCE: usize = 4;

/// Does what was too much for the transactions of events.
pub struct Fanout {
    pub store: Arc<dyn Store>,
    pub book: Arc<Book>,
    pub metrics: Arc<Metrics>,
    pub settings: Settings,
    pub signals: Arc<Signals>,
    pub stop: watch::Receiver<bool>,
}

/// Something to be stored by a job.
enum Piece {
    Entry(Box<Entry>),
    Message(Box<Message>),
}

/// Pieces of one transaction, and where the job stands after it.
struct Chunk {
    pieces: Vec<Piece>,
    after: Cursor,
}

/// What became of an attempt to move a job.
#[derive(PartialEq)]
enum Moved {
    Yes,
    /// Somebody else moved it.
    Lost,
}

impl Fanout {
    /// Carries on every open job until it is done, or the server stops. A job that fails does not keep the others
    /// from their turn; the next activation tries it again.
    pub async fn activate(&self) -> Result<(), Error> {
        let mut failed = None;
        let mut query = Query::new(job::OPEN).index("open-index").limit(JOBS);
        loop {
            let page = self.store.query(job::table(), &query).await?;
            let mut jobs = Vec::with_capacity(page.items.len());
            for item in &page.items {
                jobs.push(self.carry_on(item.str("job_id").unwrap_or_default()));
            }
            let mut running = futures_util::stream::iter(jobs).buffer_unordered(JOBS_AT_ONCE);
            while let Some(result) = running.next().await {
                failed = failed.or(result.err());
            }
            if page.next.is_none() || *self.stop.borrow() {
                return failed.map_or(Ok(()), Err);
            }
            query = query.after(page.next);
        }
    }

    async fn carry_on(&self, id: &str) -> Result<(), Error> {
        'fresh: loop {
            let Some(item) = self.store.get(job::table(), &job::key(id)).await? else { return Ok(()) };
            if item.get("open").is_none() {
                return Ok(());
            }
            let event = match job::event_key(&item) {
                Some(key) => self.store.get(events::table(), &key).await?.map(StoredEvent::from_item).transpose()?,
                None => None,
            };
            let Some(event) = event else {
                tracing::warn!(job = id, "the event of a fan-out has expired");
                return self.store.transact(vec![Write::delete(job::table(), job::key(id))]).await;
            };
            let mut job = Job::from_item(&item, event.json)?;
            let envelope: Envelope = job.envelope.clone();
            let event = Occurrence::new(&envelope, &job.json, job.received_at, &self.settings);
            while job.cursor.rule < job.rules.len() {
                if *self.stop.borrow() {
                    return Ok(());
                }
                if self.rule(&mut job, &event).await? == Moved::Lost {
                    continue 'fresh;
                }
            }
            let more = self.more(&job);
            let write = if more.is_empty() { job.done() } else { job.relisted(&more) };
            return match self.store.transact(vec![write]).await {
                Ok(()) if more.is_empty() => Ok(()),
                Ok(()) | Err(Error::Conflict { .. }) => continue 'fresh,
                Err(error) => Err(error),
            };
        }
    }

    /// The names of the rules that had no room in the job's list. An event that matches thousands of rules is matched
    /// again for them; a rule that was done already finds its work there and does nothing.
    fn more(&self, job: &Job) -> Vec<String> {
        let Some(after) = &job.more_after else { return Vec::new() };
        let rules = self.book.matching(&job.json);
        let exclusions = Exclusions::among(&rules, &Fields::of(&job.json));
        let telling = rules.iter().filter(|rule| rule.exclusion.is_none() && exclusions.covers(&rule.name).is_none());
        telling.map(|rule| rule.name.clone()).filter(|name| name > after).collect()
    }

    /// Does the job's present rule from where the cursor stands.
    async fn rule(&self, job: &mut Job, event: &Occurrence<'_>) -> Result<Moved, Error> {
        let next_rule = Cursor { rule: job.cursor.rule + 1, ..Cursor::default() };
        let Some((name, kept)) = job.rules.get(job.cursor.rule) else { return Ok(Moved::Yes) };
        let known = match kept {
            Some(rule) => Some(Arc::new(rule.clone())),
            None => self.book.get(name),
        };
        let Some(rule) = known else {
            tracing::warn!(rule = name, job = job.id, "the rule was deleted before its fan-out came to it");
            let write = job.noted(&next_rule, "gone", &name.clone());
            return self.step(job, vec![write], next_rule).await;
        };
        let notice = Notice::of(&rule, event);
        if rule.dedupe_seconds == 0 {
            job.cursor.stage = job.cursor.stage.max(1);
        }
        if job.cursor.stage == 0 && self.open_window(job, &rule, &notice, event).await? == Moved::Lost {
            return Ok(Moved::Lost);
        }
        while job.cursor.rule < next_rule.rule {
            let number = job.cursor.stage.saturating_sub(1);
            if number >= rule.targets.len() {
                let write = job.moved(&next_rule, 0, 0);
                return self.step(job, vec![write], next_rule).await;
            }
            if self.target(job, &rule, number, &notice, event).await? == Moved::Lost {
                return Ok(Moved::Lost);
            }
            if *self.stop.borrow() {
                return Ok(Moved::Yes);
            }
        }
        Ok(Moved::Yes)
    }

    /// Opens the rule's window, or passes the rule over if one is open.
    async fn open_window(
        &self,
        job: &mut Job,
        rule: &Rule,
        notice: &Notice,
        event: &Occurrence<'_>,
    ) -> Result<Moved, Error> {
        let into = Cursor { stage: 1, ..job.cursor.clone() };
        let mut writes = vec![job.moved(&into, 0, 0)];
        writes.extend(notice.marker(rule, event));
        match self.store.transact(writes).await {
            Err(error) if error.conflict_on(0).is_none() && error.conflict_on(1).is_some() => {
                let past = Cursor { rule: job.cursor.rule + 1, ..Cursor::default() };
                self.metrics.rules("deduplicated", 1);
                let write = job.noted(&past, "deduplicated", &rule.name);
                self.step(job, vec![write], past).await
            }
            result => settled(job, result, into),
        }
    }

    /// Does one target of the present rule, from the cursor on.
    async fn target(
        &self,
        job: &mut Job,
        rule: &Rule,
        number: usize,
        notice: &Notice,
        event: &Occurrence<'_>,
    ) -> Result<Moved, Error> {
        let past = match number + 1 < rule.targets.len() {
            true => Cursor { stage: job.cursor.stage + 1, after: None, ..job.cursor.clone() },
            false => Cursor { rule: job.cursor.rule + 1, ..Cursor::default() },
        };
        let users: Vec<String> = match notice.destination(rule, number, event) {
            Destination::Message(message) => {
                let chunk = Chunk { pieces: vec![Piece::Message(message)], after: past };
                return self.commit(job, chunk).await;
            }
            Destination::Users(users) => users.into_iter().collect(),
            Destination::Product { product, groups } => {
                let found = map::recipients(&*self.store, &product, &groups).await?;
                found.into_iter().filter(|user| notice::is_user(user)).collect()
            }
            Destination::Nobody => Vec::new(),
        };
        if users.is_empty() {
            self.metrics.rules("no_recipients", 1);
            tracing::warn!(rule = rule.name, event = event.envelope.event_id, "a target of the rule leads to nobody");
            let write = job.noted(&past, "no_recipients", &rule.name);
            return self.step(job, vec![write], past).await;
        }
        let from = match &job.cursor.after {
            Some(last) => users.partition_point(|user| user <= last),
            None => 0,
        };
        let most_bytes = notice.title.len() + notice.text.len() + 2048;
        let each = CHUNK_USERS.min(CHUNK_BYTES / most_bytes).max(1);
        let mut left = users.get(from..).unwrap_or_default();
        if left.is_empty() {
            let write = job.moved(&past, 0, 0);
            return self.step(job, vec![write], past).await;
        }
        while !left.is_empty() && !*self.stop.borrow() {
            let (now, later) = left.split_at(left.len().min(CHUNKS * each));
            let mut chunks: Vec<Chunk> = now.chunks(each).map(|users| chunk(job, rule, users, notice, event)).collect();
            if let (true, Some(last)) = (later.is_empty(), chunks.last_mut()) {
                last.after = past.clone();
            }
            if self.commit_all(job, chunks.into()).await? == Moved::Lost {
                return Ok(Moved::Lost);
            }
            left = later;
        }
        Ok(Moved::Yes)
    }

    /// Commits chunks in their order, handing in all of them at once.
    async fn commit_all(&self, job: &mut Job, mut chunks: VecDeque<Chunk>) -> Result<Moved, Error> {
        while !chunks.is_empty() {
            let step = job.step;
            let mut transactions = Vec::with_capacity(chunks.len());
            for chunk in &chunks {
                transactions.push(self.writes(job, chunk)?);
                job.step += 1;
            }
            job.step = step;
            for result in self.store.transact_each(transactions).await {
                let Some(chunk) = chunks.pop_front() else { break };
                match result {
                    Ok(()) => {
                        self.metrics.tally.notices(entries(&chunk));
                        (job.step, job.cursor) = (job.step + 1, chunk.after);
                    }
                    Err(Error::Conflict { .. }) => {
                        // Those behind it have failed with it: none of them may come before it.
                        if self.commit(job, chunk).await? == Moved::Lost {
                            return Ok(Moved::Lost);
                        }
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Moved::Yes)
    }

    /// Commits one chunk without what is there already.
    async fn commit(&self, job: &mut Job, mut chunk: Chunk) -> Result<Moved, Error> {
        loop {
            match self.store.transact(self.writes(job, &chunk)?).await {
                Err(error @ Error::Conflict { .. }) if error.conflict_on(0).is_none() => {
                    let mut place = 1;
                    chunk.pieces.retain(|piece| {
                        let there = error.conflict_on(place).is_some();
                        place += piece.width();
                        !there
                    });
                }
                result => {
                    if result.is_ok() {
                        self.metrics.tally.notices(entries(&chunk));
                        self.signals.created(chunk.pieces.iter().filter_map(Piece::message));
                    }
                    return settled(job, result, chunk.after);
                }
            }
        }
    }

    /// The job's move first, then the pieces.
    fn writes(&self, job: &Job, chunk: &Chunk) -> Result<Vec<Write>, Error> {
        let messages = record::table(&self.settings.stage);
        let entries = chunk.pieces.iter().filter(|piece| matches!(piece, Piece::Entry(_))).count();
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let mut writes = vec![job.moved(&chunk.after, count(entries), count(chunk.pieces.len() - entries))];
        for piece in &chunk.pieces {
            piece.add_to(&mut writes, &messages)?;
        }
        let made: Vec<Message> = chunk.pieces.iter().filter_map(Piece::message).cloned().collect();
        writes.extend(counters::created(&made));
        Ok(writes)
    }

    async fn step(&self, job: &mut Job, writes: Vec<Write>, to: Cursor) -> Result<Moved, Error> {
        let result = self.store.transact(writes).await;
        settled(job, result, to)
    }
}

/// How many inbox entries a chunk has.
fn entries(chunk: &Chunk) -> u64 {
    chunk.pieces.iter().filter(|piece| matches!(piece, Piece::Entry(_))).count() as u64
}

/// Completes an outcome with how far its job has come.
pub async fn progress(store: &dyn Store, outcome: &mut Outcome) -> Result<(), Error> {
    let Some(fanout) = &mut outcome.fanout else { return Ok(()) };
    let Some(job) = store.get(job::table(), &job::key(&fanout.job)).await? else { return Ok(()) };
    let number = |name: &str| job.int(name).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    fanout.state = if job.get("open").is_some() { "open" } else { "done" }.to_owned();
    (fanout.notifications, fanout.messages) = (number("notifications"), number("messages"));
    outcome.totals.notifications += fanout.notifications;
    outcome.totals.messages += fanout.messages;
    for (list, name) in [(&mut outcome.no_recipients, "no_recipients"), (&mut outcome.deduplicated, "deduplicated")] {
        if let Some(Value::L(rules)) = job.get(name) {
            list.extend(rules.iter().filter_map(Value::as_str).map(ToOwned::to_owned));
        }
    }
    Ok(())
}

impl Piece {
    /// How many writes it takes.
    fn width(&self) -> usize {
        match self {
            Self::Entry(_) => 2,
            Self::Message(_) => 1,
        }
    }

    fn message(&self) -> Option<&Message> {
        match self {
            Self::Entry(_) => None,
            Self::Message(message) => Some(message),
        }
    }

    fn add_to(&self, writes: &mut Vec<Write>, messages: &Table) -> Result<(), Error> {
        match self {
            Self::Entry(entry) => writes.extend(entry.writes()?),
            Self::Message(message) => writes.push(Write::insert(messages, message.to_item()?)),
        }
        Ok(())
    }
}

/// The entries of some users, after which the job stands at the last of them.
fn chunk(job: &Job, rule: &Rule, users: &[String], notice: &Notice, event: &Occurrence<'_>) -> Chunk {
    let pieces = users.iter().map(|user| Piece::Entry(Box::new(notice.entry(rule, user, event)))).collect();
    Chunk { pieces, after: Cursor { after: users.last().cloned(), ..job.cursor.clone() } }
}

/// Moves our copy of the job along with the stored one.
fn settled(job: &mut Job, result: Result<(), Error>, to: Cursor) -> Result<Moved, Error> {
    match result {
        Ok(()) => {
            (job.step, job.cursor) = (job.step + 1, to);
            Ok(Moved::Yes)
        }
        Err(error) if error.conflict_on(0).is_some() => Ok(Moved::Lost),
        Err(error) => Err(error),
    }
}
