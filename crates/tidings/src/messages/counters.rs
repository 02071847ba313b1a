//! How many messages there are in each state, and how many ended lately: kept with every change, never counted by
//! looking (S002-36 to S002-38).
//!
//! Two kinds of items: for each day, the states of the messages that expire that day, and it with them; and for each five
//! minutes, what ended then. Each is split into a few shards, so that none is hot on DynamoDB; a shard alone means
//! nothing and may be negative, the sum counts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use tidings_core::message::Status;
use tidings_core::time::{Timestamp, iso_millis};
use tidings_store::{Change, Error, Key, KeyKind, Query, Range, Store, Table, Write};

use super::record::Message;

/// S002-05
const STAGES: [&str; 3] = ["dev", "stage", "prod"];
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

/// What counts new messages: one write for all of one stage that expire on the same day, as those that are made at the same
/// moment and wait for nothing.
#[must_use]
pub fn created(messages: &[Message]) -> Vec<Write> {
    let mut tally = Tally::default();
    for message in messages {
        tally.line(Line::of_states(message, message.ttl)).add(Status::Created, 1);
    }
    tally.writes()
}

/// Changes of counters that are still to be written: those of many messages are one or two writes.
#[derive(Debug, Clone, Default)]
pub struct Tally(Vec<Line>);

/// What is added to one item. Its key becomes text only when it is written, once for many messages.
#[derive(Debug, Clone)]
struct Line {
    kind: Kind,
    stage: Cow<'static, str>,
    /// When the day or the five minutes began.
    since: i64,
    /// By the place of a state in [`Status::ALL`].
    adds: [i64; Status::ALL.len()],
    ttl: i64,
    /// Any of them will do: a shard alone means nothing.
    shard: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    States,
    Ended,
}

impl Tally {
    /// That of a new message.
    #[must_use]
    pub fn created(message: &Message) -> Self {
        let mut line = Line::of_states(message, message.ttl);
        line.add(Status::Created, 1);
        Self(vec![line])
    }

    /// Counts a message's change from a state and the second of its end to what it is, if it is one.
    pub fn count(&mut self, (from, until): (Status, i64), after: &Message) {
        let to = after.delivery.status;
        if from == to && day(until) == day(after.ttl) {
            return;
        }
        self.line(Line::of_states(after, until)).add(from, -1);
        self.line(Line::of_states(after, after.ttl)).add(to, 1);
        if from != to && to.is_final() {
            self.line(Line::of_ended(after)).add(to, 1);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for line in &other.0 {
            match self.0.iter_mut().find(|known| known.is_about_the_same(line)) {
                Some(known) => known.merge(line),
                None => self.0.push(line.clone()),
            }
        }
    }

    /// The writes that make it count.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.0.iter().map(Line::write).collect()
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
        let is_new = |line: &&Line| !self.0.iter().any(|known| known.is_about_the_same(line));
        self.0.len() + other.0.iter().filter(is_new).count()
    }

    /// The line that is about the same as a new one, which becomes it if there is none.
    fn line(&mut self, new: Line) -> &mut Line {
        let place = self.0.iter().position(|known| known.is_about_the_same(&new)).unwrap_or(self.0.len());
        match self.0.get_mut(place) {
            Some(known) => known.merge(&new),
            None => self.0.push(new),
        }
        self.0.get_mut(place).expect("it was found or pushed")
    }
}

impl Line {
    /// For the states of the messages that expire on the same day.
    fn of_states(message: &Message, until: i64) -> Self {
        let since = day(until);
        // As long as the last message of the day, and a day for who gives it up.
        Self::new(Kind::States, message, since, since.saturating_add(2 * DAY_SECONDS))
    }

    /// For what ended in the same five minutes.
    fn of_ended(message: &Message) -> Self {
        let since = message.updated_date.as_second().div_euclid(SLICE_SECONDS) * SLICE_SECONDS;
        Self::new(Kind::Ended, message, since, since + SLICES_KEPT_SECONDS)
    }

    fn new(kind: Kind, message: &Message, since: i64, ttl: i64) -> Self {
        let known = STAGES.into_iter().find(|known| *known == message.stage);
        let stage = known.map_or_else(|| Cow::Owned(message.stage.clone()), Cow::Borrowed);
        Self { kind, stage, since, adds: [0; Status::ALL.len()], ttl, shard: shard(message) }
    }

    fn is_about_the_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.since == other.since && self.stage == other.stage
    }

    fn add(&mut self, status: Status, by: i64) {
        for (sum, known) in self.adds.iter_mut().zip(Status::ALL) {
            *sum += if known == status { by } else { 0 };
        }
    }

    fn merge(&mut self, other: &Self) {
        self.ttl = self.ttl.max(other.ttl);
        for (sum, by) in self.adds.iter_mut().zip(other.adds) {
            *sum += by;
        }
    }

    fn write(&self) -> Write {
        let start = iso_millis(Timestamp::from_second(self.since).unwrap_or(Timestamp::MIN));
        let (counter, slot) = match self.kind {
            // The day alone, apart from earlier versions' days, on which messages were made.
            Kind::States => (states_partition(&self.stage), format!("until-{}", start.get(..10).unwrap_or_default())),
            Kind::Ended => (ended_partition(&self.stage), start),
        };
        // Whoever came to a state and left it again does not count there.
        let adds = Status::ALL.into_iter().zip(self.adds).filter(|(_, by)| *by != 0);
        let mut changes: Vec<Change> = adds.map(|(status, by)| Change::Add(status.as_str().into(), by)).collect();
        changes.push(Change::Set("ttl".into(), self.ttl.into()));
        Write::update(table(), Key::with_sort(counter, format!("{slot}#{}", self.shard)), changes)
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

/// The second at which a second's day began.
const fn day(second: i64) -> i64 {
    second.div_euclid(DAY_SECONDS).saturating_mul(DAY_SECONDS)
}

fn shard(message: &Message) -> u8 {
    message.message_id.bytes().fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte)) % SHARDS
}

fn states_partition(stage: &str) -> String {
    format!("states#{stage}")
}

fn ended_partition(stage: &str) -> String {
    format!("ended#{stage}")
}
