//! How many messages there are in each state, and how many ended lately: kept with every change, never counted by
//! looking (S002-36 to S002-38).
//!
//! Two kinds of items: for each day, the states of the messages created that day, which expire with them; and for each
//! five minutes, what ended then. Each is split into a few shards, so that none is hot on DynamoDB; a shard alone means
//! nothing and may be negative, the sum counts.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use tidings_core::message::Status;
use tidings_core::time::{Timestamp, iso_millis};
use tidings_store::{Change, Error, Key, KeyKind, Query, Range, Store, Table, Write};

use super::record::Message;

const SHARDS: u8 = 4;
const DAY_SECONDS: i64 = 86_400;
/// How exact "the last 24 hours" is.
const SLICE_SECONDS: i64 = 300;
const SLICES_KEPT_SECONDS: i64 = 2 * DAY_SECONDS;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-message-counters", "counter", KeyKind::S).sort("slot", KeyKind::S).ttl("ttl")
    });
    &TABLE
}

/// Messages by state.
pub type Counts = BTreeMap<&'static str, i64>;

/// What ended in the last 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub completed: i64,
    pub failed: i64,
}

/// The write that counts new messages, all of one stage and made at the same moment; `None` for none.
#[must_use]
pub fn created(messages: &[Message]) -> Option<Write> {
    let first = messages.first()?;
    let count = i64::try_from(messages.len()).unwrap_or(i64::MAX);
    Some(states(first, vec![Change::Add(Status::Created.as_str().into(), count)]))
}

/// Changes of counters that are still to be written: those of many messages are one or two writes.
#[derive(Debug, Clone, Default)]
pub struct Tally(BTreeMap<(String, String), Line>);

#[derive(Debug, Clone, Default)]
struct Line {
    adds: BTreeMap<&'static str, i64>,
    ttl: i64,
    /// Any of them will do: a shard alone means nothing.
    shard: u8,
}

impl Tally {
    /// Counts a message's change of state, if it is one.
    pub fn count(&mut self, from: Status, after: &Message) {
        let to = after.delivery.status;
        if from == to {
            return;
        }
        let states = (states_partition(&after.stage), day_of(after));
        self.add(states, &[(from, -1), (to, 1)], after.ttl.saturating_add(DAY_SECONDS), shard(after));
        if to.is_final() {
            let slice = after.updated_date.as_second().div_euclid(SLICE_SECONDS) * SLICE_SECONDS;
            let ended = (ended_partition(&after.stage), slice_text(slice));
            self.add(ended, &[(to, 1)], slice + SLICES_KEPT_SECONDS, shard(after));
        }
    }

    pub fn merge(&mut self, other: Self) {
        for (key, line) in other.0 {
            let mine = self.0.entry(key).or_insert_with(|| Line { shard: line.shard, ..Line::default() });
            mine.ttl = mine.ttl.max(line.ttl);
            for (name, by) in line.adds {
                *mine.adds.entry(name).or_default() += by;
            }
        }
    }

    /// The writes that make it count.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        let write = |((counter, slot), line): (&(String, String), &Line)| {
            // Whoever came to a state and left it again does not count there.
            let adds = line.adds.iter().filter(|(_, by)| **by != 0);
            let mut changes: Vec<Change> = adds.map(|(name, by)| Change::Add((*name).into(), *by)).collect();
            changes.push(Change::Set("ttl".into(), line.ttl.into()));
            Write::update(table(), Key::with_sort(counter, format!("{slot}#{}", line.shard)), changes)
        };
        self.0.iter().map(write).collect()
    }

    /// How many writes it is.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many more there would be with the other.
    #[must_use]
    pub fn len_with(&self, other: &Self) -> usize {
        self.0.len() + other.0.keys().filter(|key| !self.0.contains_key(*key)).count()
    }

    fn add(&mut self, key: (String, String), adds: &[(Status, i64)], ttl: i64, shard: u8) {
        let line = self.0.entry(key).or_insert_with(|| Line { shard, ..Line::default() });
        line.ttl = line.ttl.max(ttl);
        for (status, by) in adds {
            *line.adds.entry(status.as_str()).or_default() += by;
        }
    }
}

/// How many messages of a stage are in each state.
pub async fn by_state(store: &dyn Store, stage: &str) -> Result<Counts, Error> {
    let names = Status::ALL.map(Status::as_str);
    let sums = sum(store, Query::new(states_partition(stage)), &names).await?;
    // Day and message expire at different hours; a difference must not show as a negative count.
    Ok(names.into_iter().zip(sums).map(|(name, sum)| (name, sum.max(0))).collect())
}

/// What ended in the 24 hours before `now`, to five minutes.
pub async fn last_day(store: &dyn Store, stage: &str, now: Timestamp) -> Result<Ended, Error> {
    let since = now.saturating_sub(Duration::from_secs(DAY_SECONDS.unsigned_abs())).unwrap_or(Timestamp::MIN);
    // Keys go on with `#`: this takes in no slice that began before.
    let query = Query::new(ended_partition(stage)).range(Range::AtLeast(iso_millis(since).into()));
    let sums = sum(store, query, &["completed", "failed"]).await?;
    let mut sums = sums.into_iter();
    Ok(Ended { completed: sums.next().unwrap_or(0), failed: sums.next().unwrap_or(0) })
}

async fn sum(store: &dyn Store, query: Query, names: &[&str]) -> Result<Vec<i64>, Error> {
    let mut sums = vec![0; names.len()];
    let mut query = query.limit(1000);
    loop {
        let page = store.query(table(), &query).await?;
        for item in &page.items {
            for (sum, name) in sums.iter_mut().zip(names) {
                *sum += item.int(name).unwrap_or(0);
            }
        }
        if page.next.is_none() {
            return Ok(sums);
        }
        query = query.after(page.next);
    }
}

fn states(message: &Message, mut changes: Vec<Change>) -> Write {
    let day = day_of(message);
    // As long as the last message of the day.
    changes.push(Change::Set("ttl".into(), (message.ttl + DAY_SECONDS).into()));
    let key = Key::with_sort(states_partition(&message.stage), format!("{day}#{}", shard(message)));
    Write::update(table(), key, changes)
}

fn day_of(message: &Message) -> String {
    iso_millis(message.created_date).chars().take(10).collect()
}

fn shard(message: &Message) -> u8 {
    message.message_id.bytes().fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte)) % SHARDS
}

fn slice_text(second: i64) -> String {
    iso_millis(Timestamp::from_second(second).unwrap_or(Timestamp::MIN))
}

fn states_partition(stage: &str) -> String {
    format!("states#{stage}")
}

fn ended_partition(stage: &str) -> String {
    format!("ended#{stage}")
}
