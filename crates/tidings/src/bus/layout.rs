//! Where the bus keeps what in the store.
//!
//! A line (a queue, a subscription, or the dead letters of either) has partitions of its own, named after its
//! generation: a line that is purged or deleted gets a new one or none, and the old partitions are swept at leisure.
//!
//! | partition | sort key | holds |
//! | --- | --- | --- |
//! | `<gen>/a` | time, number and node | messages that were posted by whoever does not have the line, to be taken in |
//! | `<gen>/m`, `<gen>/r` | position | messages that wait: in order, and those that came back |
//! | `<gen>/d` | lane and position | deliveries of a message that waits, and until when it does if it keeps its place |
//! | `<gen>/g` | lock token | messages that were handed out for the first time, all of one call |
//! | `<gen>/s` | due time and number | scheduled messages, and those that wait for their next delivery |
//! | `<gen>/n` | number | the due time of a scheduled message |
//! | `<gen>/k` | business key and number | the same by business key |
//! | `<gen>/f` | number | deferred messages |
//! | `<gen>/x` | expiry time, lane and position | messages that expire |
//! | `<entity gen>/c` | `0` | the counts of all lines of an entity, and the epoch of who has them |
//! | `<topic gen>/o` | number | messages that are yet to be copied to all subscriptions |
//! | `<gen>/h` | `0` | head positions and the numbers that are reserved |
//! | `<gen>/h` | `1` | the numbers that are reserved by whoever does not have the line |
//! | `entities` | path | what an entity is |
//! | `version` | `0` | how often entities were changed, where several nodes must know |
//! | `trash` | generation | partitions to be swept |
//!
//! One send is one put (and the counts); the first deliveries of one call are one small put, any other delivery is one;
//! completing is one delete, and another one of what was delivered more than once.

use std::sync::LazyLock;

use tidings_core::time::Timestamp;
use tidings_store::{Change, Error, Item, Key, KeyKind, Range, Table, Value, Write};

/// Messages, and what is known of them. Without indexes and expiry, so that a put looks for nothing.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-bus", "line", KeyKind::S).sort("at", KeyKind::S));
    &TABLE
}

/// What was seen before: ids of messages (duplicate detection), and what handlers have done. Expires by itself.
#[must_use]
pub fn seen_table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-bus-seen", "line", KeyKind::S).sort("id", KeyKind::S).ttl("ttl"));
    &TABLE
}

/// The partition of the entities' descriptions.
pub const ENTITIES: &str = "entities";
/// The partition of what is to be swept.
pub const TRASH: &str = "trash";

/// A lane of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneId {
    /// Messages that came back after a wait. Taken first.
    Front,
    Main,
}

impl LaneId {
    #[must_use]
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Front => "r",
            Self::Main => "m",
        }
    }
}

/// Where a message is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Lane(LaneId, u64),
    Deferred(u64),
}

/// Every kind of partition that a line has, for sweeping.
pub const PARTITIONS: [&str; 12] = ["a", "m", "r", "d", HANDOUTS, "s", "n", "k", "f", "x", "h", JOBS];
/// The partition of first deliveries.
pub const HANDOUTS: &str = "g";
/// The partition of a topic's messages that are yet to be copied.
pub const JOBS: &str = "o";

/// The keys of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    generation: String,
}

/// Digits that hold every number we make.
const DIGITS: usize = 19;

/// A number with so many digits that they sort as text.
#[must_use]
pub fn digits(number: u64) -> String {
    let mut text = String::with_capacity(DIGITS);
    push_digits(&mut text, number);
    text
}

/// The same at the end of a text, by hand: every message has several keys.
fn push_digits(text: &mut String, number: u64) {
    let (mut digits, mut rest) = ([b'0'; DIGITS], number);
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    match std::str::from_utf8(&digits) {
        Ok(digits) if rest == 0 => text.push_str(digits),
        _ => text.push_str(&number.to_string()),
    }
}

#[must_use]
pub fn micros(at: Timestamp) -> u64 {
    u64::try_from(at.as_microsecond()).unwrap_or(0)
}

#[must_use]
pub fn from_micros(micros: u64) -> Timestamp {
    Timestamp::from_microsecond(i64::try_from(micros).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX)
}

/// The number in a sort key's last nineteen digits.
#[must_use]
pub fn number_of(item: &Item) -> Option<u64> {
    let at = item.str("at")?;
    at.get(at.len().checked_sub(DIGITS)?..)?.parse().ok()
}

/// The microseconds in the sort key of a post.
#[must_use]
pub fn posted_at(item: &Item) -> Option<u64> {
    item.str("at")?.get(..DIGITS)?.parse().ok()
}

impl Layout {
    #[must_use]
    pub fn new(generation: &str) -> Self {
        Self { generation: generation.to_owned() }
    }

    #[must_use]
    pub fn generation(&self) -> &str {
        &self.generation
    }

    #[must_use]
    pub fn partition(&self, kind: &str) -> String {
        [&self.generation, "/", kind].concat()
    }

    #[must_use]
    pub fn key(&self, place: Place) -> Key {
        match place {
            Place::Lane(lane, position) => Key::with_sort(self.partition(lane.letter()), digits(position)),
            Place::Deferred(number) => Key::with_sort(self.partition("f"), digits(number)),
        }
    }

    /// The record of a waiting message's deliveries.
    #[must_use]
    pub fn deliveries(&self, lane: LaneId, position: u64) -> Key {
        Key::with_sort(self.partition("d"), Self::delivered(lane, position))
    }

    /// The same as the item that it will be.
    #[must_use]
    pub fn deliveries_item(&self, lane: LaneId, position: u64) -> Item {
        Item::new().with("at", Self::delivered(lane, position)).with("line", self.partition("d"))
    }

    fn delivered(lane: LaneId, position: u64) -> String {
        let mut sort = String::with_capacity(1 + DIGITS);
        sort.push_str(lane.letter());
        push_digits(&mut sort, position);
        sort
    }

    /// The records of deliveries of a stretch of a lane.
    #[must_use]
    pub fn deliveries_range(lane: LaneId, first: u64, last: u64) -> Range {
        Range::Between(Self::delivered(lane, first).into(), Self::delivered(lane, last).into())
    }

    #[must_use]
    pub fn expiry(&self, at: Timestamp, lane: LaneId, position: u64) -> Key {
        let sort = format!("{}{}{}", digits(micros(at)), lane.letter(), digits(position));
        Key::with_sort(self.partition("x"), sort)
    }

    #[must_use]
    pub fn timed(&self, due: Timestamp, number: u64) -> Key {
        Key::with_sort(self.partition("s"), format!("{}#{}", digits(micros(due)), digits(number)))
    }

    #[must_use]
    pub fn numbered(&self, number: u64) -> Key {
        Key::with_sort(self.partition("n"), digits(number))
    }

    #[must_use]
    pub fn keyed(&self, key: &str, number: u64) -> Key {
        Key::with_sort(self.partition("k"), format!("{key}#{}", digits(number)))
    }

    /// A message that is posted, at these microseconds.
    #[must_use]
    pub fn posted(&self, at: u64, number: u64, node: &str) -> Key {
        Key::with_sort(self.partition("a"), format!("{}#{}#{node}", digits(at), digits(number)))
    }

    /// The numbers of those who post.
    #[must_use]
    pub fn numbers(&self) -> Key {
        Key::with_sort(self.partition("h"), "1")
    }

    #[must_use]
    pub fn head(&self) -> Key {
        Key::with_sort(self.partition("h"), "0")
    }
}

/// The write that keeps the numbers that are reserved and the places of the heads, in front and in the main lane.
#[must_use]
pub fn head(layout: &Layout, reserved: u64, heads: (u64, u64)) -> Write {
    let number = |n: u64| Value::from(i64::try_from(n).unwrap_or(i64::MAX));
    let item = table().key_item(&layout.head());
    let item = item.with("reserved", number(reserved)).with("front", number(heads.0)).with("main", number(heads.1));
    Write::put(table(), item)
}

/// The write that keeps the places of the heads alone.
#[must_use]
pub fn moved(layout: &Layout, heads: (u64, u64)) -> Write {
    let set = |name: &'static str, n: u64| Change::Set(name.into(), i64::try_from(n).unwrap_or(i64::MAX).into());
    Write::update(table(), layout.head(), vec![set("front", heads.0), set("main", heads.1)])
}

/// A small item with a due time.
#[must_use]
pub fn pointer(key: &Key, due: Timestamp) -> Write {
    let item = table().key_item(key).with("due", i64::try_from(micros(due)).unwrap_or(i64::MAX));
    Write::put(table(), item)
}

/// The lane and position in the sort key of an expiry.
pub fn expiring(item: &Item) -> Result<(LaneId, u64), Error> {
    let letter = item.str("at").and_then(|at| at.get(19..20));
    let lane = match letter {
        Some("r") => Some(LaneId::Front),
        Some("m") => Some(LaneId::Main),
        _ => None,
    };
    lane.zip(number_of(item)).ok_or_else(|| Error::Corrupt("an expiry of the bus cannot be read".to_owned()))
}

/// How a transaction changes the counts of one line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delta {
    /// Messages in the lanes.
    pub waiting: i64,
    pub scheduled: i64,
    pub deferred: i64,
    /// Messages that came in, ever.
    pub incoming: i64,
    /// Messages that went out, ever: completed, or received and deleted.
    pub outgoing: i64,
    /// Bytes of what is in it; counted of dead letters only.
    pub bytes: i64,
}

impl Delta {
    const NAMES: [&'static str; 6] = ["waiting", "scheduled", "deferred", "incoming", "outgoing", "bytes"];

    fn parts(&self) -> [i64; 6] {
        [self.waiting, self.scheduled, self.deferred, self.incoming, self.outgoing, self.bytes]
    }

    pub fn add(&mut self, other: &Self) {
        self.waiting += other.waiting;
        self.scheduled += other.scheduled;
        self.deferred += other.deferred;
        self.incoming += other.incoming;
        self.outgoing += other.outgoing;
        self.bytes += other.bytes;
    }

    /// The counts of the line of that generation in the item of its entity.
    #[must_use]
    pub fn read(item: &Item, generation: &str) -> Self {
        let count = |name: &str| item.int(&format!("{generation}.{name}")).unwrap_or(0);
        let [waiting, scheduled, deferred, incoming, outgoing, bytes] = Self::NAMES.map(count);
        Self { waiting, scheduled, deferred, incoming, outgoing, bytes }
    }
}

#[must_use]
pub fn counts_key(entity_generation: &str) -> Key {
    Key::with_sort([entity_generation, "/c"].concat(), "0")
}

/// The write that counts; none if nothing changes.
pub fn count<'a>(entity_generation: &str, deltas: impl IntoIterator<Item = (&'a str, Delta)>) -> Option<Write> {
    let mut changes = Vec::new();
    for (generation, delta) in deltas {
        let parts = Delta::NAMES.into_iter().zip(delta.parts()).filter(|(_, by)| *by != 0);
        changes.extend(parts.map(|(name, by)| Change::Add([generation, ".", name].concat().into(), by)));
    }
    if changes.is_empty() { None } else { Some(Write::update(table(), counts_key(entity_generation), changes)) }
}

/// Forgets what is counted in a line whose messages go; what was counted for ever goes on with its successor.
#[must_use]
pub fn pass_counts(entity_generation: &str, from: &str, to: &str, counts: &Delta) -> Write {
    let on = [("incoming", counts.incoming), ("outgoing", counts.outgoing)];
    let mut changes = uncount_changes(from);
    changes
        .extend(on.into_iter().filter(|(_, n)| *n != 0).map(|(name, n)| Change::Add(format!("{to}.{name}").into(), n)));
    Write::update(table(), counts_key(entity_generation), changes)
}

#[must_use]
pub fn uncount_changes(generation: &str) -> Vec<Change> {
    Delta::NAMES.iter().map(|name| Change::Remove(format!("{generation}.{name}").into())).collect()
}

/// Where it is counted how often entities were changed.
#[must_use]
pub fn version_key() -> Key {
    Key::with_sort("version", "0")
}

/// The write that counts a change of entities.
#[must_use]
pub fn changed() -> Write {
    Write::update(table(), version_key(), vec![Change::Add("n".into(), 1)])
}

/// Notes that the partitions of a generation are to be swept.
#[must_use]
pub fn trash(generation: &str) -> Write {
    Write::put(table(), Item::new().with("line", TRASH).with("at", generation))
}

/// The same for two generations in one item.
#[must_use]
pub fn trash_both(one: &str, other: &str) -> Write {
    Write::put(table(), Item::new().with("line", TRASH).with("at", one).with("and", other))
}

/// Notes that the subscriptions of a deleted topic are to be deleted, too.
#[must_use]
pub fn trash_topic(path: &str, generation: &str) -> Write {
    let item = Item::new().with("line", TRASH).with("at", format!("topic#{generation}"));
    Write::put(table(), item.with("path", path).with("topic", generation))
}
