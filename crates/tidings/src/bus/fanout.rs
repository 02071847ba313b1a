//! Topics whose copies of a message do not fit in one transaction: the message is stored once, as a job, and copied from
//! there in steps. Each step is a transaction that also moves the job on, so that a crash leaves each subscription with
//! exactly one copy (or what its rules make of it), and none twice.
//!
//! While a topic has such a job, what is sent to it becomes one, too: messages do not overtake each other.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use tidings_core::time::Timestamp;
use tidings_store::{Change, Condition, Error, Item, Key, KeyValue, Query, Write, limits};

use super::entity::{Body, Entity, Subscription};
use super::filter::{self, Copy};
use super::layout;
use super::message::{Message, Stored};
use super::prepared::{Prepared, Sent};
use super::{Bus, BusError, Way};

/// Copies of a message that are made in the transaction that brings it, and their bytes.
const DIRECT_COPIES: usize = 40;
const DIRECT_WRITES: usize = 90;
const DIRECT_BYTES: usize = 3 * 1024 * 1024;
/// Steps that are handed in together.
const STEPS: usize = 8;

/// The jobs of one topic.
pub struct Fanout {
    topic: String,
    generation: String,
    /// The number of the last job.
    last: AtomicU64,
    /// Jobs that are prepared, and not known to be stored.
    preparing: AtomicUsize,
    /// Jobs that were stored, and how many of those when none was left.
    stored: AtomicU64,
    cleared: AtomicU64,
    /// One works at a time.
    turn: tokio::sync::Mutex<()>,
}

/// A message to be copied, and how far that has come.
struct Job {
    key: Key,
    message: Stored,
    at: Timestamp,
    /// The subscription that is next, and how many of its copies are made.
    cursor: (String, usize),
    step: i64,
}

impl Fanout {
    fn is_idle(&self) -> bool {
        self.preparing.load(Ordering::Acquire) == 0
            && self.stored.load(Ordering::Acquire) == self.cleared.load(Ordering::Acquire)
    }

    fn partition(&self) -> String {
        format!("{}/{}", self.generation, layout::JOBS)
    }

    pub(super) fn committed(&self) {
        // In this order: it must not seem idle in between.
        self.stored.fetch_add(1, Ordering::AcqRel);
        self.preparing.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn aborted(&self) {
        self.preparing.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn key(&self, number: u64) -> Key {
        Key::with_sort(self.partition(), layout::digits(number))
    }

    fn next(&self, now: Timestamp) -> u64 {
        let after = |last: u64| (last + 1).max(layout::micros(now));
        let before = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(after(last)));
        after(before.unwrap_or_default())
    }
}

impl Job {
    fn write(key: &Key, message: &Message, now: Timestamp) -> Result<Write, Error> {
        let stored = Stored { message: message.clone(), enqueued_at: now, ..Stored::default() };
        let (KeyValue::S(line), Some(KeyValue::S(at))) = (&key.partition, &key.sort) else {
            return Err(Error::Invalid("keys of the bus are text".to_owned()));
        };
        let item = stored.to_item(line.clone(), at.clone())?.with("next", "").with("made", 0_i64).with("step", 0_i64);
        // Numbers are made unique; if one is not after all, the one that is there must not be lost.
        Ok(Write::put(layout::table(), item).when(Condition::NotExists))
    }

    fn from_item(item: &Item) -> Result<Self, Error> {
        let message = Stored::from_item(item)?;
        Ok(Self {
            key: layout::table().key_of(item)?,
            at: message.enqueued_at,
            message,
            cursor: (
                item.str("next").unwrap_or_default().to_owned(),
                item.int("made").and_then(|made| usize::try_from(made).ok()).unwrap_or(0),
            ),
            step: item.int("step").unwrap_or(0),
        })
    }

    /// The write that moves the job on to there, or ends it.
    fn moving(&self, step: i64, to: Option<&(String, usize)>) -> Write {
        let write = match to {
            None => Write::delete(layout::table(), self.key.clone()),
            Some((next, made)) => Write::update(
                layout::table(),
                self.key.clone(),
                vec![
                    Change::Set("next".into(), next.as_str().into()),
                    Change::Set("made".into(), i64::try_from(*made).unwrap_or(i64::MAX).into()),
                    Change::Set("step".into(), (step + 1).into()),
                ],
            ),
        };
        write.when(Condition::Equals("step".into(), step.into()))
    }
}

impl Bus {
    /// How copies come to subscriptions: those of one topic may belong to several nodes.
    pub(super) fn way(&self) -> Way {
        if self.shared.nodes.is_some() { Way::Post } else { Way::Straight }
    }

    /// The jobs of a topic.
    pub(super) fn fanout(&self, entity: &Entity) -> Arc<Fanout> {
        let generation = &entity.record.generation;
        let mut all = self.fanouts.lock().unwrap_or_else(PoisonError::into_inner);
        let made = all.entry(generation.clone()).or_insert_with(|| {
            Arc::new(Fanout {
                topic: entity.record.path.clone(),
                generation: generation.clone(),
                last: AtomicU64::new(0),
                preparing: AtomicUsize::new(0),
                stored: AtomicU64::new(0),
                cleared: AtomicU64::new(0),
                turn: tokio::sync::Mutex::default(),
            })
        });
        Arc::clone(made)
    }

    pub(super) fn forget_fanout(&self, generation: &str) {
        self.fanouts.lock().unwrap_or_else(PoisonError::into_inner).remove(generation);
    }

    /// Finds out what was left behind when the process ended.
    pub(super) async fn find_jobs(&self, entity: &Entity) -> Result<(), Error> {
        let fanout = self.fanout(entity);
        let query = Query::new(fanout.partition()).descending().limit(1);
        let page = self.shared.store.query(layout::table(), &query).await?;
        if let Some(last) = page.items.first().and_then(layout::number_of) {
            fanout.last.fetch_max(last, Ordering::AcqRel);
            fanout.stored.fetch_add(1, Ordering::AcqRel);
            self.shared.copying.notify_one();
        }
        Ok(())
    }

    /// The writes that bring a message to the subscriptions of a topic: its copies, or the job that makes them.
    pub(super) async fn prepare_copies(
        &self,
        entity: &Entity,
        subscriptions: &BTreeMap<String, Arc<Subscription>>,
        message: Message,
        now: Timestamp,
        way: Way,
    ) -> Result<Prepared, BusError> {
        let fanout = self.fanout(entity);
        let mut copies = Vec::new();
        for subscription in subscriptions.values() {
            copies.extend(
                filter::copies(&subscription.rules, &message, now).into_iter().map(|copy| (subscription, copy)),
            );
            if copies.len() > DIRECT_COPIES {
                break;
            }
        }
        if copies.is_empty() {
            return Ok(Prepared::default());
        }
        if copies.len() <= DIRECT_COPIES && fanout.is_idle() {
            if let Way::PostAfter(began) = way {
                // Beside each other; below they are seen already.
                let lines = copies.iter().map(|(subscription, _)| subscription.pair.main.see_posts(began));
                futures_util::future::try_join_all(lines).await?;
            }
            let mut all = Prepared::default();
            for (subscription, copy) in copies {
                all = all.and(bring(subscription, copy, now, way).await?);
            }
            if all.len() <= DIRECT_WRITES && all.bytes() <= DIRECT_BYTES {
                return Ok(all);
            }
            all.aborted();
        }
        let number = fanout.next(now);
        let mut prepared = Prepared::default();
        prepared.write(Job::write(&fanout.key(number), &message, now)?);
        let path = entity.record.path.clone();
        prepared.sent.push(Sent { message_id: message.id, path, sequence: number });
        fanout.preparing.fetch_add(1, Ordering::AcqRel);
        prepared.arrive_job(Arc::clone(&self.shared), fanout, number);
        Ok(prepared)
    }

    /// Makes copies until told to stop.
    pub(super) async fn copy(self: Arc<Self>) {
        loop {
            if let Err(error) = self.copy_all().await {
                tracing::warn!(%error, "messages of topics could not be copied to all subscriptions; it will be tried again");
                tokio::time::sleep(super::worker::TICK).await;
                continue;
            }
            self.shared.copying.notified().await;
        }
    }

    /// Does every job there is, those of different topics beside each other.
    pub async fn copy_all(&self) -> Result<(), Error> {
        self.copy_some(usize::MAX).await
    }

    /// The same, and of each topic at most so many rounds of steps.
    pub async fn copy_some(&self, rounds: usize) -> Result<(), Error> {
        let all: Vec<Arc<Fanout>> =
            self.fanouts.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let busy = all.iter().filter(|fanout| !fanout.is_idle());
        let outcomes = futures_util::future::join_all(busy.map(|fanout| self.copy_for(fanout, rounds))).await;
        outcomes.into_iter().collect()
    }

    async fn copy_for(&self, fanout: &Fanout, rounds: usize) -> Result<(), Error> {
        let _turn = fanout.turn.lock().await;
        for _ in 0..rounds {
            let stored = fanout.stored.load(Ordering::Acquire);
            let query = Query::new(fanout.partition()).limit(1);
            let page = self.shared.store.query(layout::table(), &query).await?;
            let Some(item) = page.items.first() else {
                fanout.cleared.store(stored, Ordering::Release);
                return Ok(());
            };
            self.know_entities().await?;
            let entity = self.entity(&fanout.topic).ok().filter(|now| now.record.generation == fanout.generation);
            // A topic that is deleted takes its jobs with it.
            let Some(entity) = entity else { return Ok(()) };
            let Body::Topic(subscriptions) = &entity.body else { return Ok(()) };
            self.steps(Job::from_item(item)?, subscriptions).await?;
        }
        Ok(())
    }

    /// Some steps of a job.
    async fn steps(&self, job: Job, subscriptions: &BTreeMap<String, Arc<Subscription>>) -> Result<(), Error> {
        let mut pieces = pieces(&job, subscriptions);
        let mut transactions = Vec::new();
        let (mut step, mut done) = (job.step, false);
        let mut cursor = job.cursor.clone();
        while transactions.len() < STEPS && !done {
            let mut all = Prepared::default();
            while let Some((subscription, place)) =
                pieces.front().map(|(subscription, _, place)| (*subscription, *place))
            {
                let Some((_, copy, _)) = pieces.pop_front() else { break };
                let kept = copy.clone();
                let prepared = bring(subscription, copy, job.at, self.way()).await?;
                // One for the job.
                if !all.is_empty() && (!all.fits(&prepared) || all.len() + prepared.len() >= limits::TRANSACTION_WRITES)
                {
                    prepared.aborted();
                    pieces.push_front((subscription, kept, place));
                    break;
                }
                all = all.and(prepared);
                cursor = (subscription.name.clone(), place + 1);
            }
            done = pieces.is_empty();
            all.write_first(job.moving(step, (!done).then_some(&cursor)));
            step += 1;
            transactions.push(all);
        }
        for outcome in Prepared::run_each(&*self.shared.store, transactions).await {
            match outcome {
                Ok(()) => {}
                // Somebody else moved it on: from where it is then.
                Err(error @ Error::Conflict { .. }) if error.conflict_on(0).is_some() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What is still to be copied: to whom, what, and which of its copies it is.
type Pieces<'a> = VecDeque<(&'a Arc<Subscription>, Copy, usize)>;

/// At most so many pieces are looked at in one go: more than the steps have room for.
const PIECES: usize = STEPS * limits::TRANSACTION_WRITES;

fn pieces<'a>(job: &Job, subscriptions: &'a BTreeMap<String, Arc<Subscription>>) -> Pieces<'a> {
    let (first, made) = (&job.cursor.0, job.cursor.1);
    let rest = subscriptions.range::<String, _>((Bound::Included(first), Bound::Unbounded));
    let mut pieces = VecDeque::new();
    for (name, subscription) in rest {
        let copies = filter::copies(&subscription.rules, &job.message.message, job.at).into_iter().enumerate();
        let skip = if name == first { made } else { 0 };
        pieces.extend(copies.skip(skip).map(|(place, copy)| (subscription, copy, place)));
        if pieces.len() > PIECES {
            break;
        }
    }
    pieces
}

/// The writes that bring a copy to its subscription.
async fn bring(subscription: &Arc<Subscription>, copy: Copy, at: Timestamp, way: Way) -> Result<Prepared, Error> {
    match copy {
        Copy::Take(message) => subscription.pair.main.prepare(message, at, way).await,
        Copy::Bury(message, why) => subscription.pair.main.prepare_dead(message, &why, at, way).await,
    }
}
