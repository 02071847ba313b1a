//! Stored events: one item for each, found by time, type, source, correlation id, and by their own id.

use std::sync::LazyLock;

use serde_json::value::RawValue;
use tidings_core::envelope::{self, Defaults, Envelope, Lent};
use tidings_core::time::{self, Timestamp};
use tidings_store::{Condition, Error, Item, Key, KeyKind, Table, Value, Write};

use crate::rules::Outcome;

/// Events by the day they happened (UTC) and the time in it, with an index for each way to look for them.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let at = || Some(("at".into(), KeyKind::S));
        Table::new("tidings-events", "day", KeyKind::S)
            .sort("at", KeyKind::S)
            .index("type-index", ("eventType".into(), KeyKind::S), at())
            .index("source-index", ("source".into(), KeyKind::S), at())
            .index("correlation-index", ("correlationId".into(), KeyKind::S), at())
            .ttl("ttl")
            .ordered()
            // Up to the millisecond.
            .lists(23)
            .kept()
    });
    &TABLE
}

/// Where the event of an id is; also what recognises a duplicate.
#[must_use]
pub fn ids_table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-event-ids", "eventId", KeyKind::S).sort("from", KeyKind::S).ttl("ttl").mostly_new().kept()
    });
    &TABLE
}

/// The days that have events, so that a list over all of them need not try every day.
#[must_use]
pub fn days_table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-event-days", "kind", KeyKind::S).sort("day", KeyKind::S).ttl("ttl"));
    &TABLE
}

pub const DAYS: &str = "day";
/// Characters of a time that are its day.
const DAY_CHARS: usize = 10;
/// Characters of a key that tell it from others of the same instant.
const UNIQUE_CHARS: usize = 16;

/// An event and what is known of it besides.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    /// The envelope as JSON text.
    pub json: String,
    pub received_at: Timestamp,
    pub item: Item,
}

/// An event about to be stored.
pub struct NewEvent<'a> {
    pub envelope: &'a Envelope,
    pub json: String,
    pub received_at: Timestamp,
    pub key: EventKey,
    /// What came of it, as JSON text, if anything did.
    pub outcome: Option<String>,
}

/// Where an event is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventKey {
    pub day: String,
    pub at: String,
}

impl EventKey {
    /// The key of an event that happened at `at`; `unique` tells it from others of the same instant.
    #[must_use]
    pub fn new(time: Timestamp, unique: u64) -> Self {
        let mut at = String::with_capacity(time::ISO_MICROS + 1 + UNIQUE_CHARS);
        time::push_iso_micros(&mut at, time);
        let day = at.get(..DAY_CHARS).unwrap_or(&at).to_owned();
        at.push('#');
        // Most of a key is this; formatting takes several times as long.
        let digits: [u8; UNIQUE_CHARS] = std::array::from_fn(|place| {
            let digit = (unique >> (4 * (UNIQUE_CHARS - 1 - place)) & 15) as u8;
            digit + if digit < 10 { b'0' } else { b'a' - 10 }
        });
        at.push_str(std::str::from_utf8(&digits).unwrap_or_default());
        Self { day, at }
    }
}

/// When events came that are stored together, and how long they count: the same for all of them, and put into words once.
pub struct Moment {
    pub now: Timestamp,
    received_at: Value,
    expires_at: Value,
    /// Holds unless an event of the same id and source came since.
    unseen: Condition,
}

impl Moment {
    #[must_use]
    pub fn new(now: Timestamp, expires_at: i64, duplicate_since: Timestamp) -> Self {
        let since = duplicate_since.as_microsecond().into();
        Self {
            now,
            received_at: now.as_microsecond().into(),
            expires_at: expires_at.into(),
            unseen: Condition::any(vec![Condition::NotExists, Condition::Less("seen".into(), since)]),
        }
    }
}

/// What an event is found by.
pub struct Names<'a> {
    event_id: &'a str,
    event_type: &'a str,
    correlation_id: &'a str,
    source: Option<&'a str>,
}

impl<'a> From<&'a Envelope> for Names<'a> {
    fn from(envelope: &'a Envelope) -> Self {
        Self {
            event_id: &envelope.event_id,
            event_type: &envelope.event_type,
            correlation_id: &envelope.correlation_id,
            source: envelope.source.as_deref(),
        }
    }
}

impl<'a> From<&'a Lent<'_>> for Names<'a> {
    fn from(envelope: &'a Lent<'_>) -> Self {
        Self {
            event_id: &envelope.event_id,
            event_type: &envelope.event_type,
            correlation_id: &envelope.correlation_id,
            source: envelope.source.as_deref(),
        }
    }
}

impl NewEvent<'_> {
    /// The writes that store it, unless an event of the same id and source came not long before.
    #[must_use]
    pub fn writes(self, moment: &Moment) -> [Write; 2] {
        writes(&self.envelope.into(), self.key, self.json, self.outcome, moment)
    }
}

/// The writes that store an event, unless one of the same id and source came not long before.
#[must_use]
pub fn writes(names: &Names<'_>, key: EventKey, json: String, outcome: Option<String>, moment: &Moment) -> [Write; 2] {
    let EventKey { day, at } = key;
    // In the order of their names, which spares looking for their places.
    let id = Item::with_room(5)
        .with("at", &at)
        .with("eventId", names.event_id)
        .with("from", from(names.source))
        .with("seen", moment.received_at.clone())
        .with("ttl", moment.expires_at.clone());
    let event = Item::with_room(9)
        .with("at", at)
        .with("correlationId", names.correlation_id)
        .with("day", day)
        .with("event", json)
        .with("eventType", names.event_type)
        .with_some("outcome", outcome)
        .with("receivedAt", moment.received_at.clone())
        .with_some("source", names.source)
        .with("ttl", moment.expires_at.clone());
    [
        Write::Put { table: ids_table().clone(), item: id, condition: moment.unseen.clone() },
        Write::Put { table: table().clone(), item: event, condition: Condition::Fresh },
    ]
}

/// The sort key of an id's record: the source, which may be absent.
#[must_use]
pub fn from(source: Option<&str>) -> String {
    ["source=", source.unwrap_or_default()].concat()
}

#[must_use]
pub fn day_of(at: Timestamp) -> String {
    let mut day = time::iso_micros(at);
    day.truncate(DAY_CHARS);
    day
}

/// The key of the event that an id's record points at; its day is the start of its time.
#[must_use]
pub fn event_key(id: &Item) -> Option<Key> {
    let at = id.str("at")?;
    Some(Key::with_sort(at.get(..DAY_CHARS)?, at))
}

impl StoredEvent {
    pub fn from_item(item: Item) -> Result<Self, Error> {
        let read = || {
            let received_at = Timestamp::from_microsecond(item.int("receivedAt")?).ok()?;
            Some((item.str("event")?.to_owned(), received_at))
        };
        let (json, received_at) = read().ok_or_else(|| Error::Corrupt("a stored event cannot be read".to_owned()))?;
        Ok(Self { json, received_at, item })
    }

    /// The envelope as it was taken in.
    #[must_use]
    pub fn envelope(&self) -> Option<Envelope> {
        let no_id = String::new;
        let defaults = Defaults { now: self.received_at, correlation_id: "", event_id: &no_id };
        envelope::read(&self.json, &defaults).ok()
    }

    /// The envelope's text as a value that is written out as it is.
    pub fn raw(&self) -> Result<Box<RawValue>, Error> {
        RawValue::from_string(self.json.clone()).map_err(|_| Error::Corrupt("a stored event is no JSON".to_owned()))
    }

    /// The event's own id.
    #[must_use]
    pub fn id(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Id {
            #[serde(rename = "eventId")]
            event_id: String,
        }
        serde_json::from_str::<Id>(&self.json).map(|id| id.event_id).unwrap_or_default()
    }

    /// What came of it, as far as that was known when it was stored.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::from_text(self.item.str("outcome"))
    }

    #[must_use]
    pub fn event_type(&self) -> &str {
        self.item.str("eventType").unwrap_or_default()
    }

    #[must_use]
    pub fn correlation_id(&self) -> &str {
        self.item.str("correlationId").unwrap_or_default()
    }

    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.item.str("source")
    }

    #[must_use]
    pub fn at(&self) -> &str {
        self.item.str("at").unwrap_or_default()
    }
}
