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

/// The writes that count a change of state.
#[must_use]
pub fn moved(before: &Message, after: &Message) -> Vec<Write> {
    let (from, to) = (before.delivery.status, after.delivery.status);
    if from == to {
        return Vec::new();
    }
    let changes = vec![Change::Add(from.as_str().into(), -1), Change::Add(to.as_str().into(), 1)];
    let mut writes = vec![states(after, changes)];
    if to.is_final() {
        let slice = after.updated_date.as_second().div_euclid(SLICE_SECONDS) * SLICE_SECONDS;
        let slot = format!("{}#{}", slice_text(slice), shard(after));
        let changes =
            vec![Change::Add(to.as_str().into(), 1), Change::Set("ttl".into(), (slice + SLICES_KEPT_SECONDS).into())];
        writes.push(Write::update(table(), Key::with_sort(ended_partition(&after.stage), slot), changes));
    }
    writes
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
    let day = iso_millis(message.created_date).chars().take(10).collect::<String>();
    // As long as the last message of the day.
    changes.push(Change::Set("ttl".into(), (message.ttl + DAY_SECONDS).into()));
    let key = Key::with_sort(states_partition(&message.stage), format!("{day}#{}", shard(message)));
    Write::update(table(), key, changes)
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
