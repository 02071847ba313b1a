//! Inbox entries, in the seed's table and with its keys (S001-54 to S001-71).
//!
//! One partition has a user's entries, a counter (`counter`), and nothing else; the notification map lies in a partition
//! of its own (`map`). `rules::react` writes entries in the transaction of their event.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidings_core::time::{self, Timestamp};
use tidings_store::{Change, Error, Item, Key, KeyKind, Table, Write};
use uuid::Uuid;

use super::counter;

/// The partition of the notification map: no user's name (S001-53).
pub const MAP: &str = "notificationmap";

/// How an entry's identifier begins, which is also its sort key.
pub const ALL: &str = "all#";
/// Beside the seed's two indexes: the entries that are read, by when that was (S001-80). Others lack the attribute, so
/// that the index costs nothing until somebody reads.
pub const BY_READING: &str = "read_at-index";
pub const READING: &str = "read_ordenar";
const DAY_SECONDS: i64 = 86_400;

#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tbff2022_notification_centro", "cod_chav_patc", KeyKind::S)
            .sort("cod_ordenar_chav", KeyKind::S)
            .local_index("xxnc_2022", ("status_ordenar".into(), KeyKind::S))
            .local_index("xxnc_2022_v1", ("tipo_ordenar".into(), KeyKind::S))
            .index(BY_READING, ("cod_chav_patc".into(), KeyKind::S), Some((READING.into(), KeyKind::S)))
            .ttl("ttl")
            .mostly_new()
    });
    &TABLE
}

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A question turned out not to be compliant.
    Question,
    /// A score changed.
    Score,
    /// Anything else.
    Notice,
}

impl Kind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Score => "score",
            Self::Notice => "notice",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Question, Self::Score, Self::Notice].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Whether the user has seen an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Unread,
    Read,
    Archived,
}

impl Status {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Read => "read",
            Self::Archived => "archived",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Unread, Self::Read, Self::Archived].into_iter().find(|status| status.as_str() == text)
    }
}

/// What the seed records of a question or a score; absent where an event does not say it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compliance: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pillar_information: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_score: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_score: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_event: Option<String>,
    /// Where to read more of it (S001-109).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// One notification of one user.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub user: String,
    /// The part that all its keys share; the notification's identifier, which never changes. See [`time_of`].
    pub time: String,
    pub kind: Kind,
    pub status: Status,
    pub title: String,
    pub text: String,
    pub about: About,
    pub event_id: String,
    pub rule: String,
    pub correlation_id: String,
    pub created_at: Timestamp,
    pub read_at: Option<Timestamp>,
    /// Second since 1970 at which it ceases to exist; see [`expiry`].
    pub ttl: i64,
}

/// When an entry ceases to exist: `keep_seconds` after `received_at`, and then with the end of the day (UTC). All entries
/// of a day go at once, so that the unread can be counted by day, and none has to be subtracted when it goes (S001-71).
#[must_use]
pub fn expiry(received_at: Timestamp, keep_seconds: i64) -> i64 {
    let last = received_at.as_second().saturating_add(keep_seconds);
    last.div_euclid(DAY_SECONDS).saturating_add(1).saturating_mul(DAY_SECONDS)
}

/// The `<time>` of an event's entries: nanoseconds, padded so that text order is time order, then what tells the event
/// from others of the same instant. The same event always gives the same (S001-41, S001-49, S001-59).
#[must_use]
pub fn time_of(received_at: Timestamp, event_id: &str, source: Option<&str>) -> String {
    let event = format!("{}\n{event_id}", source.unwrap_or_default());
    let (tie, _) = Uuid::new_v5(&Uuid::NAMESPACE_OID, event.as_bytes()).as_u64_pair();
    format!("{:020}-{tie:016x}", received_at.as_nanosecond().max(0))
}

/// The key of the entry of that user and identifier.
#[must_use]
pub fn key(user: &str, time: &str) -> Key {
    Key::with_sort(user, format!("{ALL}{time}"))
}

/// An entry for many users: all of it but whose it is.
#[derive(Debug)]
pub struct Stamp {
    /// With a user's name to be filled in.
    item: Item,
    counted: Vec<Change>,
}

impl Stamp {
    /// Whatever user the entry names is left out.
    pub fn of(entry: &Entry) -> Result<Self, Error> {
        let item = entry.to_item()?.with("cod_chav_patc", "");
        Ok(Self { item, counted: counter::more(entry.ttl, entry.created_at) })
    }

    /// The writes that put the entry into one user's inbox and count it, as [`Entry::writes`].
    #[must_use]
    pub fn writes(&self, user: &str) -> [Write; 2] {
        let item = self.item.clone().with("cod_chav_patc", user);
        [Write::insert(table(), item), Write::update(table(), counter::key(user), self.counted.clone())]
    }
}

/// The value of `status_ordenar` (S001-56).
#[must_use]
pub fn status_key(status: Status, time: &str) -> String {
    format!("{}#{time}", status.as_str())
}

/// The value of `tipo_ordenar` (S001-57, S001-58).
#[must_use]
pub fn kind_key(kind: Kind, status: Status, time: &str) -> String {
    format!("{}#{}#{time}", kind.as_str(), status.as_str())
}

impl Entry {
    /// What the API calls it, for ever (S001-88, S001-98).
    #[must_use]
    pub fn identifier(&self) -> String {
        format!("{ALL}{}", self.time)
    }

    /// The value of `status_ordenar`.
    #[must_use]
    pub fn status_key(&self) -> String {
        status_key(self.status, &self.time)
    }

    /// The value of `tipo_ordenar`.
    #[must_use]
    pub fn kind_key(&self) -> String {
        kind_key(self.kind, self.status, &self.time)
    }

    /// The writes that put a new, unread entry into the inbox and count it.
    pub fn writes(&self) -> Result<[Write; 2], Error> {
        Ok([Write::insert(table(), self.to_item()?), counter::one_more(&self.user, self.ttl, self.created_at)])
    }

    pub fn to_item(&self) -> Result<Item, Error> {
        let mut item = Item::from_record(&self.about)?;
        item = item
            .with("cod_chav_patc", &self.user)
            .with("cod_ordenar_chav", self.identifier())
            .with("status_ordenar", self.status_key())
            .with("tipo_ordenar", self.kind_key())
            .with("event_type", self.kind.as_str())
            .with("title", &self.title)
            .with("text", &self.text)
            .with("event_id", &self.event_id)
            .with("rule", &self.rule)
            .with("correlation_id", &self.correlation_id)
            .with("created_at", time::iso_millis(self.created_at))
            .with_some("read_at", self.read_at.map(time::iso_millis))
            .with("ttl", self.ttl);
        Ok(item)
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        let read = || {
            let text = |name: &str| item.str(name).map(ToOwned::to_owned);
            let at = |name: &str| item.str(name).and_then(|text| text.parse::<Timestamp>().ok());
            Some(Self {
                user: text("cod_chav_patc")?,
                time: item.str("cod_ordenar_chav")?.strip_prefix(ALL)?.to_owned(),
                kind: Kind::parse(item.str("event_type")?)?,
                status: Status::parse(item.str("status_ordenar")?.split('#').next()?)?,
                title: text("title")?,
                text: text("text")?,
                about: item.to_record().ok()?,
                event_id: text("event_id")?,
                rule: text("rule")?,
                correlation_id: text("correlation_id")?,
                created_at: at("created_at")?,
                read_at: at("read_at"),
                ttl: item.int("ttl")?,
            })
        };
        read().ok_or_else(|| Error::Corrupt("a stored inbox entry cannot be read".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event_id: &str) -> Entry {
        let at: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        Entry {
            user: "u1".to_owned(),
            time: time_of(at, event_id, None),
            kind: Kind::Score,
            status: Status::Unread,
            title: "T".to_owned(),
            text: "x".to_owned(),
            about: About { env: Some("dev".to_owned()), old_score: Some(1.5.into()), ..About::default() },
            event_id: event_id.to_owned(),
            rule: "scores".to_owned(),
            correlation_id: "c".to_owned(),
            created_at: at,
            read_at: None,
            ttl: at.as_second() + 10,
        }
    }

    // S001-54 to S001-58
    #[test]
    fn an_entry_has_the_seeds_keys_and_comes_back_whole() {
        let entry = entry("e1");
        let item = entry.to_item().unwrap();
        table().check_item(&item).unwrap();
        assert_eq!(item.str("cod_chav_patc"), Some("u1"));
        for (name, start) in [
            ("cod_ordenar_chav", "all#01767323045678000000-"),
            ("status_ordenar", "unread#01767323045678000000-"),
            ("tipo_ordenar", "score#unread#01767323045678000000-"),
        ] {
            assert!(item.str(name).unwrap().starts_with(start), "{item:?}");
        }
        assert_eq!(Entry::from_item(&item).unwrap(), entry);
    }

    #[test]
    fn a_stamp_writes_what_the_entry_would() {
        let entry = entry("e1");
        let stamp = Stamp::of(&Entry { user: String::new(), ..entry.clone() }).unwrap();
        assert_eq!(stamp.writes("u1"), entry.writes().unwrap());
    }

    // S001-71
    #[test]
    fn an_entry_stays_its_days_and_goes_with_the_end_of_the_last() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let end = at("2026-01-04T00:00:00Z").as_second();
        for received in ["2026-01-02T00:00:00Z", "2026-01-02T03:04:05.9Z", "2026-01-02T23:59:59.9Z"] {
            assert_eq!(expiry(at(received), DAY_SECONDS), end, "{received}");
        }
        assert_eq!(expiry(at("2026-01-03T00:00:00Z"), DAY_SECONDS), end + DAY_SECONDS);
        assert!(expiry(Timestamp::MAX, i64::MAX) > 0);
    }

    // S001-59
    #[test]
    fn two_events_of_one_instant_have_two_keys_and_one_event_has_one() {
        assert_ne!(entry("e1").time, entry("e2").time);
        assert_eq!(entry("e1").time, entry("e1").time);
        let at = Timestamp::UNIX_EPOCH;
        assert_ne!(time_of(at, "e", Some("a")), time_of(at, "e", None));
    }
}
