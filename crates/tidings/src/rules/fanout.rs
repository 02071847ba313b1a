//! Carries jobs on: chunk by chunk, each in a transaction that also moves the job's cursor.
//!
//! A crash loses nothing: the next start goes on at the cursor. Two nodes at the same job do no harm: every move is
//! conditional on the one before. Keys follow from event and user, and an entry that is there already is passed over.

mod message;
mod progress;
mod windows;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::StreamExt;
use tidings_core::envelope::Envelope;
use tidings_store::{Change, Error, Query, Store, Write, limits};
use tokio::sync::watch;
use tokio::time::Instant;

pub use progress::progress;

use super::book::Book;
use super::chunk::{Chunk, Flight, Piece};
use super::exclude::Exclusions;
use super::job::{self, Cursor, Job};
use super::notice::{self, Destination, Notice, Occurrence, Settings};
use super::rule::{Rule, Target};
use super::template::Fields;
use super::window::Windows;
use crate::bus::Bus;
use crate::events::{StoredEvent, record as events};
use crate::http::Metrics;
use crate::inbox::record::Stamp;
use crate::inbox::{Live, map};
use crate::messages::{Message, Signals, counters, record};

/// Users in one chunk: two writes each, one more where each has a window, and one for the job.
const CHUNK_USERS: usize = (limits::TRANSACTION_WRITES - 1) / 2;
const CHUNK_USERS_WITH_WINDOWS: usize = (limits::TRANSACTION_WRITES - 1) / 3;
/// Bytes of one chunk.
const CHUNK_BYTES: usize = limits::TRANSACTION_BYTES - 512 * 1024;
/// Chunks handed to the store at once, which makes them durable together: many while nobody else wants it, and few while
/// other events come in, for those wait behind them.
const CHUNKS: usize = 8;
const CHUNKS_AMONG_OTHERS: usize = 4;
/// How long to rest among others, measured by how long the last hand-over took, and at the most.
const REST: u32 = 2;
const LONGEST_REST: Duration = Duration::from_millis(250);
/// Hands-over under way at the same time while nobody else wants the store: the next are put together while the last is
/// being written. Many small ones keep both busy from the first entry of a job to its last.
const IN_FLIGHT: usize = 8;
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
    /// Where what rules send to queues and topics goes.
    pub bus: Option<Arc<Bus>>,
    pub arrivals: Arc<Live>,
    /// How many events have come in so far.
    pub traffic: Arc<AtomicU64>,
    pub stop: watch::Receiver<bool>,
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
            let event = Occurrence::new(&envelope, &job.json, job.received_at, &self.settings).at(job.place);
            while job.cursor.rule < job.rules.len() {
                if *self.stop.borrow() {
                    return Ok(());
                }
                if self.rule(&mut job, &event).await? == Moved::Lost {
                    continue 'fresh;
                }
            }
            let more = self.more(&job);
            let mut writes = vec![if more.is_empty() { job.done() } else { job.relisted(&more) }];
            if more.is_empty() {
                let removed: Vec<Write> = self.served(&mut job).await?.removed(id).collect();
                // More than fit expire with the job.
                writes.extend(removed.into_iter().take(limits::TRANSACTION_WRITES - 1));
            }
            return match self.store.transact(writes).await {
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
        // It was matched when it came.
        let rules = self.book.matching(&job.json).unwrap_or_default();
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
            let gone = vec![name.clone()];
            let write = job.noted(&next_rule, "gone", gone);
            return self.step(job, vec![write], next_rule).await;
        };
        let notice = Notice::of(&rule, event);
        let windows = Windows::of(&rule, &notice, event);
        let shared = windows.as_ref().filter(|_| rule.targets.iter().any(Target::is_fixed));
        match shared {
            Some(windows) if job.cursor.stage == 0 => {
                if self.open_window(job, &rule, windows).await? == Moved::Lost {
                    return Ok(Moved::Lost);
                }
            }
            _ => job.cursor.stage = job.cursor.stage.max(1),
        }
        while job.cursor.rule < next_rule.rule {
            let number = job.cursor.stage.saturating_sub(1);
            if number >= rule.targets.len() {
                let write = job.moved(&next_rule, 0, 0);
                return self.step(job, vec![write], next_rule).await;
            }
            if self.target(job, &rule, number, &notice, windows.as_ref(), event).await? == Moved::Lost {
                return Ok(Moved::Lost);
            }
            if *self.stop.borrow() {
                return Ok(Moved::Yes);
            }
        }
        Ok(Moved::Yes)
    }

    /// Does one target of the present rule, from the cursor on.
    async fn target(
        &self,
        job: &mut Job,
        rule: &Rule,
        number: usize,
        notice: &Notice,
        windows: Option<&Windows<'_>>,
        event: &Occurrence<'_>,
    ) -> Result<Moved, Error> {
        let is_fixed = rule.targets.get(number).is_some_and(Target::is_fixed);
        let windows = windows.filter(|_| !is_fixed);
        let past = match number + 1 < rule.targets.len() {
            true => Cursor { stage: job.cursor.stage + 1, after: None, ..job.cursor.clone() },
            false => Cursor { rule: job.cursor.rule + 1, ..Cursor::default() },
        };
        if is_fixed && job.cursor.quiet {
            let write = job.moved(&past, 0, 0);
            return self.step(job, vec![write], past).await;
        }
        if let Some(moved) = self.on_bus(job, rule, number, event, &past).await? {
            return Ok(moved);
        }
        let mut errors = if number == 0 { notice.errors.clone() } else { Vec::new() };
        let destination = notice.destination(rule, number, event, &mut errors);
        if self.say(job, rule, number, errors).await? == Moved::Lost {
            return Ok(Moved::Lost);
        }
        // Of users whom the event names each has a window; of those on the map all have one.
        let (users, each_apart, together): (Vec<String>, _, _) = match destination {
            Destination::Message(message) => {
                return self.message(job, rule, number, &message, windows, past).await;
            }
            Destination::Users(users) => (users.into_iter().collect(), windows, None),
            Destination::Product { product, groups } => {
                let found = map::recipients(&*self.store, &product, &groups).await?;
                let window = windows.map(|windows| windows.open(windows.product(&product, &groups)));
                (found.into_iter().filter(|user| notice::is_user(user)).collect(), None, window)
            }
            Destination::Nobody => (Vec::new(), None, None),
        };
        if users.is_empty() {
            self.metrics.rules("no_recipients", 1);
            tracing::warn!(rule = rule.name, event = event.envelope.event_id, "a target of the rule leads to nobody");
            let write = job.noted(&past, "no_recipients", vec![rule.name.clone()]);
            return self.step(job, vec![write], past).await;
        }
        if let (Some(window), None) = (together, &job.cursor.after) {
            // Before the first user: nobody has an empty name.
            let into = Cursor { after: Some(String::new()), ..job.cursor.clone() };
            return self.open_or_pass(job, rule, window, into, past).await;
        }
        let from = match &job.cursor.after {
            Some(last) => users.partition_point(|user| user <= last),
            None => 0,
        };
        let most_bytes = notice.title.len() + notice.text.len() + 2048;
        let most = if each_apart.is_some() { CHUNK_USERS_WITH_WINDOWS } else { CHUNK_USERS };
        let each = most.min(CHUNK_BYTES / most_bytes).max(1);
        let left = users.get(from..).unwrap_or_default();
        if left.is_empty() {
            let write = job.moved(&past, 0, 0);
            return self.step(job, vec![write], past).await;
        }
        let stamp = Arc::new(Stamp::of(&notice.entry(rule, "", event))?);
        let mut flights = VecDeque::new();
        let moved = self.tell(job, left, each, &past, (&stamp, each_apart), &mut flights).await;
        // However it ended: a caller that goes on to close the store must not find it still in use.
        for mut flight in flights {
            flight.results().await;
        }
        moved
    }

    /// Notes what is wrong with the templates of a target, once.
    async fn say(&self, job: &mut Job, rule: &Rule, number: usize, errors: Vec<String>) -> Result<Moved, Error> {
        let here = job.cursor.clone();
        if errors.is_empty() || here.after.is_some() || job.said == Some((here.rule, number)) {
            return Ok(Moved::Yes);
        }
        let notes = errors.into_iter().map(|error| format!("{}\n{error}", rule.name)).collect();
        let write = job.noted(&here, "errors", notes);
        job.said = Some((here.rule, number));
        self.step(job, vec![write], here).await
    }

    /// Stores the entries of these users, `each` of them in a chunk. After an error some chunks may still be in flight.
    async fn tell(
        &self,
        job: &mut Job,
        mut left: &[String],
        each: usize,
        past: &Cursor,
        (stamp, windows): (&Arc<Stamp>, Option<&Windows<'_>>),
        flights: &mut VecDeque<Flight>,
    ) -> Result<Moved, Error> {
        // The step at which the next chunk will find the job, if all before it succeed.
        let mut step = job.step;
        let mut traffic = self.traffic.load(Ordering::Relaxed);
        let mut alone = true;
        loop {
            while !left.is_empty() && flights.len() < if alone { IN_FLIGHT } else { 1 } && !*self.stop.borrow() {
                let most = if alone { CHUNKS } else { CHUNKS_AMONG_OTHERS };
                let (now, later) = left.split_at(left.len().min(most * each));
                let mut chunks: Vec<Chunk> =
                    now.chunks(each).map(|users| Chunk::of(job, users, stamp, windows)).collect();
                if let (true, Some(last)) = (later.is_empty(), chunks.last_mut()) {
                    last.after = past.clone();
                }
                flights.push_back(self.launch(job, &mut step, chunks)?);
                left = later;
            }
            let Some(flight) = flights.pop_front() else { return Ok(Moved::Yes) };
            let handed_in = Instant::now();
            let again = self.land(job, flight).await?;
            if !alone {
                // Most of the time belongs to those others.
                tokio::time::sleep((handed_in.elapsed() * REST).min(LONGEST_REST)).await;
            }
            if !again.is_empty() {
                // Those behind have failed with it: none of them may come before it.
                let mut again: VecDeque<Chunk> = again.into();
                for mut flight in flights.drain(..) {
                    flight.results().await;
                    again.extend(flight.chunks);
                }
                if self.commit_all(job, again).await? == Moved::Lost {
                    return Ok(Moved::Lost);
                }
                step = job.step;
            }
            alone = std::mem::replace(&mut traffic, self.traffic.load(Ordering::Relaxed)) == traffic;
        }
    }

    /// Hands chunks to the store, the first of them for a job at `step`.
    fn launch(&self, job: &mut Job, step: &mut i64, chunks: Vec<Chunk>) -> Result<Flight, Error> {
        let transactions = self.transactions(job, *step, chunks.iter())?;
        *step += i64::try_from(chunks.len()).unwrap_or(0);
        Ok(Flight::begin(&self.store, chunks, transactions))
    }

    /// Waits for what became of chunks; gives those that are to be done again, from the first that failed on.
    async fn land(&self, job: &mut Job, mut flight: Flight) -> Result<Vec<Chunk>, Error> {
        let results = flight.results().await;
        let mut again = Vec::new();
        for (chunk, result) in flight.chunks.into_iter().zip(results) {
            match result {
                Ok(()) if again.is_empty() => self.stored(job, chunk),
                Ok(()) | Err(Error::Conflict { .. }) => again.push(chunk),
                Err(error) => return Err(error),
            }
        }
        Ok(again)
    }

    /// Moves our copy of the job along, and announces what is new.
    fn stored(&self, job: &mut Job, chunk: Chunk) {
        self.metrics.tally.notices(chunk.entries());
        self.arrivals.announce(chunk.pieces.iter().filter_map(Piece::user));
        (job.step, job.cursor) = (job.step + 1, chunk.after);
    }

    /// The transactions of chunks that follow each other, the first of them for a job at `step`.
    fn transactions<'a>(
        &self,
        job: &mut Job,
        step: i64,
        chunks: impl Iterator<Item = &'a Chunk>,
    ) -> Result<Vec<Vec<Write>>, Error> {
        let present = std::mem::replace(&mut job.step, step);
        let mut transactions = Vec::new();
        for chunk in chunks {
            transactions.push(self.writes(job, chunk));
            job.step += 1;
        }
        job.step = present;
        transactions.into_iter().collect()
    }

    /// Commits chunks in their order, handing in all of them at once.
    async fn commit_all(&self, job: &mut Job, mut chunks: VecDeque<Chunk>) -> Result<Moved, Error> {
        while !chunks.is_empty() {
            let transactions = self.transactions(job, job.step, chunks.iter())?;
            for result in self.store.transact_each(transactions).await {
                let Some(chunk) = chunks.pop_front() else { break };
                match result {
                    Ok(()) => self.stored(job, chunk),
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
            let mut writes = self.writes(job, &chunk)?;
            if chunk.repeats > 0 && job.repeated != Some(job.cursor.rule) {
                job.repeated = Some(job.cursor.rule);
                let name = job.rules.get(job.cursor.rule).map(|(name, _)| name.clone());
                let moved = writes.remove(0);
                writes.insert(0, job.with_notes(moved, "deduplicated", name.into_iter().collect()));
            }
            match self.store.transact(writes).await {
                Err(error @ Error::Conflict { .. }) if error.conflict_on(0).is_none() => {
                    let mut place = 1;
                    chunk.pieces.retain(|piece| {
                        let first = error.conflict_on(place).is_some();
                        let there = piece.has_window() && error.conflict_on(place + 1).is_some();
                        chunk.repeats += u64::from(first && piece.has_window() && !there);
                        place += piece.width();
                        !first && !there
                    });
                }
                result => {
                    if result.is_ok() {
                        self.metrics.tally.notices(chunk.entries());
                        self.signals.created(chunk.pieces.iter().filter_map(Piece::message));
                        self.arrivals.announce(chunk.pieces.iter().filter_map(Piece::user));
                    }
                    return settled(job, result, chunk.after);
                }
            }
        }
    }

    /// The job's move first, then the pieces.
    fn writes(&self, job: &Job, chunk: &Chunk) -> Result<Vec<Write>, Error> {
        let messages = record::table(&self.settings.stage);
        let entries = chunk.entries();
        let others = chunk.pieces.len() as u64 - entries;
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mut moved = job.moved(&chunk.after, count(entries), count(others));
        if let (Write::Update { changes, .. }, 1..) = (&mut moved, chunk.repeats) {
            changes.push(Change::Add("repeats".into(), count(chunk.repeats)));
        }
        let mut writes = vec![moved];
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
