//! A fan-out too large for one transaction, as it is stored: which event, which rules, and how far it has come.

use std::sync::{Arc, LazyLock};

use serde_json::{Value as Json, json};
use tidings_core::envelope::{self, Defaults, Envelope};
use tidings_core::time::{self, Timestamp};
use tidings_store::{Change, Condition, Error, Item, Key, KeyKind, Table, Value, Write};
use uuid::Uuid;

use super::limits::OUTCOME_ENTRIES;
use super::notice::Occurrence;
use super::outcome::LeftOut;
use super::record;
use super::rule::Rule;
use super::served::Served;
use crate::events::record::EventKey;

/// The partition of `open-index`.
pub const OPEN: &str = "open";
/// Bytes of rules that a job keeps as they were when its event came; of the others it keeps the names, and takes them as
/// they stand when it comes to them.
const KEPT_BYTES: usize = 150 * 1024;
/// Bytes of a job's whole list. What is beyond it is found by matching the event again.
const LIST_BYTES: usize = 300 * 1024;

/// Jobs by id; those that are not done are in `open-index`, oldest first.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::new("tidings-jobs", "job_id", KeyKind::S)
            .index("open-index", ("open".into(), KeyKind::S), Some(("created_at".into(), KeyKind::S)))
            .ttl("ttl")
    });
    &TABLE
}

/// How far a job has come: the rule, the stage in it (0 is the window of its fixed targets, then its targets), the last
/// user told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    pub rule: usize,
    pub stage: usize,
    pub after: Option<String>,
    /// The rule's fixed targets were told the same not long ago.
    pub quiet: bool,
}

/// Lists in which a job notes what came of its rules.
pub const NOTES: [&str; 5] = ["gone", "no_recipients", "deduplicated", "left_out", "errors"];

/// A job as it was found in the store.
#[derive(Debug)]
pub struct Job {
    pub id: String,
    pub envelope: Envelope,
    /// The envelope's text.
    pub json: String,
    pub received_at: Timestamp,
    /// The moment that inbox entries are named for.
    pub place: Timestamp,
    /// Names, and the rules themselves where they were kept.
    pub rules: Vec<(String, Option<Rule>)>,
    /// Rules that match and have names after this one are not in the list yet.
    pub more_after: Option<String>,
    pub cursor: Cursor,
    /// The number of moves so far; every move is conditional on it.
    pub step: i64,
    /// How much it has noted of its rules: an item has its limit, and so has what is shown of it.
    pub notes: usize,
    /// The rule and the target whose errors are among it.
    pub said: Option<(usize, usize)>,
    /// The rule of which it is noted that it would have told somebody the same.
    pub repeated: Option<usize>,
    /// Who is told already, once it was read.
    pub served: Option<Served>,
    pub expires_at: i64,
}

/// A new job and the write that stores it.
#[must_use]
pub fn new(event: &Occurrence<'_>, at: &EventKey, rules: &[Arc<Rule>], keep_seconds: i64) -> (String, Write) {
    let envelope = event.envelope;
    let source = envelope.source.as_deref().unwrap_or_default();
    let received = event.received_at.as_microsecond();
    let name = format!("job\n{source}\n{}\n{received}", envelope.event_id);
    let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string();
    let (list, more_after) = list(rules.iter().map(|rule| (rule.name.as_str(), Some(&**rule))));
    let item = Item::new()
        .with("job_id", &id)
        .with("open", OPEN)
        .with("created_at", time::iso_micros(event.received_at))
        .with("received_at", nanos(event.received_at))
        .with_some("place", (event.place != event.received_at).then(|| nanos(event.place)))
        .with("event_id", &envelope.event_id)
        .with("event_day", &at.day)
        .with("event_at", &at.at)
        .with("rules", list)
        .with_some("more_after", more_after)
        .with("rule", 0_i64)
        .with("stage", 0_i64)
        .with("step", 0_i64)
        .with("notifications", 0_i64)
        .with("messages", 0_i64)
        .with("ttl", event.received_at.as_second().saturating_add(keep_seconds));
    (id, Write::insert(table(), item))
}

/// The text of a job's list, and the last name in it if not all have room.
fn list<'a>(rules: impl Iterator<Item = (&'a str, Option<&'a Rule>)>) -> (String, Option<String>) {
    let (mut kept, mut text) = (0, "[".to_owned());
    let mut last: Option<&str> = None;
    for (name, rule) in rules {
        let stored = rule.map(Rule::stored).filter(|stored| kept + stored.len() <= KEPT_BYTES);
        kept += stored.as_ref().map_or(0, String::len);
        let entry = json!({ "name": name, "rule": stored }).to_string();
        if text.len() + entry.len() > LIST_BYTES {
            return (text + "]", last.map(ToOwned::to_owned));
        }
        text.push_str(if last.is_some() { "," } else { "" });
        text.push_str(&entry);
        last = Some(name);
    }
    (text + "]", None)
}

/// Nanoseconds since 1970 as text: the identifiers of entries and messages follow from them, to the last digit.
fn nanos(at: Timestamp) -> String {
    at.as_nanosecond().to_string()
}

#[must_use]
pub fn key(id: &str) -> Key {
    Key::new(id)
}

impl Job {
    /// The job with the text of its event.
    pub fn from_item(item: &Item, event: String) -> Result<Self, Error> {
        read(item, event).ok_or_else(|| Error::Corrupt("a stored job cannot be read".to_owned()))
    }

    /// The write that moves the job on, unless somebody else has.
    #[must_use]
    pub fn moved(&self, to: &Cursor, notifications: i64, messages: i64) -> Write {
        let number = |n: usize| Value::from(i64::try_from(n).unwrap_or(i64::MAX));
        let mut changes = vec![
            Change::Set("rule".into(), number(to.rule)),
            Change::Set("stage".into(), number(to.stage)),
            match &to.after {
                Some(user) => Change::Set("after".into(), user.into()),
                None => Change::Remove("after".into()),
            },
            Change::Set("step".into(), (self.step + 1).into()),
            Change::Add("notifications".into(), notifications),
            Change::Add("messages".into(), messages),
        ];
        if to.quiet {
            changes.push(Change::Set("quiet".into(), true.into()));
        } else if self.cursor.quiet {
            changes.push(Change::Remove("quiet".into()));
        }
        self.update(changes)
    }

    /// The write that moves the job on and notes something of a rule, in one of [`NOTES`].
    #[must_use]
    pub fn noted(&mut self, to: &Cursor, list: &'static str, notes: Vec<String>) -> Write {
        let moved = self.moved(to, 0, 0);
        self.with_notes(moved, list, notes)
    }

    /// The same beside another move.
    #[must_use]
    pub fn with_notes(&mut self, moved: Write, list: &'static str, mut notes: Vec<String>) -> Write {
        notes.truncate(OUTCOME_ENTRIES.saturating_sub(self.notes));
        match moved {
            Write::Update { table, key, mut changes, condition } if !notes.is_empty() => {
                self.notes += notes.len();
                changes.push(Change::Append(list.into(), notes.into_iter().map(Value::from).collect()));
                Write::Update { table, key, changes, condition }
            }
            other => other,
        }
    }

    /// The same move, noting whom a rule does not tell because somebody else has.
    #[must_use]
    pub fn leaving_out(&mut self, moved: Write, left_out: &[LeftOut]) -> Write {
        let notes = left_out.iter().take(OUTCOME_ENTRIES).filter_map(|one| serde_json::to_string(one).ok());
        let mut moved = self.with_notes(moved, "left_out", notes.collect());
        if let (Write::Update { changes, .. }, false) = (&mut moved, left_out.is_empty()) {
            changes.push(Change::Add("left_out_count".into(), i64::try_from(left_out.len()).unwrap_or(i64::MAX)));
        }
        moved
    }

    /// The write that gives the job its next list, of these names.
    #[must_use]
    pub fn relisted(&self, names: &[String]) -> Write {
        let (list, more_after) = list(names.iter().map(|name| (name.as_str(), None)));
        self.update(vec![
            Change::Set("rules".into(), list.into()),
            match more_after {
                Some(name) => Change::Set("more_after".into(), name.into()),
                None => Change::Remove("more_after".into()),
            },
            Change::Set("rule".into(), 0_i64.into()),
            Change::Set("stage".into(), 0_i64.into()),
            Change::Remove("after".into()),
            Change::Remove("quiet".into()),
            Change::Set("step".into(), (self.step + 1).into()),
        ])
    }

    /// The write that ends the job.
    #[must_use]
    pub fn done(&self) -> Write {
        // What is left is how much came of it.
        let changes = vec![
            Change::Remove("open".into()),
            Change::Remove("rules".into()),
            Change::Set("step".into(), (self.step + 1).into()),
        ];
        self.update(changes)
    }

    fn update(&self, changes: Vec<Change>) -> Write {
        Write::update(table(), key(&self.id), changes).when(Condition::Equals("step".into(), self.step.into()))
    }
}

/// What a job has noted in one of [`NOTES`].
pub fn notes_in<'a>(item: &'a Item, list: &str) -> impl Iterator<Item = &'a str> {
    let notes = match item.get(list) {
        Some(Value::L(notes)) => notes.as_slice(),
        _ => &[],
    };
    notes.iter().filter_map(Value::as_str)
}

/// The key of the event that a job is about.
#[must_use]
pub fn event_key(item: &Item) -> Option<Key> {
    Some(Key::with_sort(item.str("event_day")?, item.str("event_at")?))
}

fn read(item: &Item, json: String) -> Option<Job> {
    let number = |name: &str| item.int(name).and_then(|n| usize::try_from(n).ok());
    let received_at = Timestamp::from_nanosecond(item.str("received_at")?.parse().ok()?).ok()?;
    let place = item.str("place").and_then(|place| Timestamp::from_nanosecond(place.parse().ok()?).ok());
    let no_id = || String::new();
    let envelope = envelope::read(&json, &Defaults { now: received_at, correlation_id: "", event_id: &no_id }).ok()?;
    let list: Vec<Json> = serde_json::from_str(item.str("rules")?).ok()?;
    let rules = list.iter().filter_map(|entry| {
        let name = entry.get("name")?.as_str()?;
        let rule = entry.get("rule").and_then(Json::as_str).and_then(|text| record::parse(name, text));
        Some((name.to_owned(), rule))
    });
    Some(Job {
        id: item.str("job_id")?.to_owned(),
        envelope,
        rules: rules.collect(),
        more_after: item.str("more_after").map(ToOwned::to_owned),
        json,
        received_at,
        place: place.unwrap_or(received_at),
        cursor: Cursor {
            rule: number("rule")?,
            stage: number("stage")?,
            after: item.str("after").map(ToOwned::to_owned),
            quiet: item.get("quiet").is_some(),
        },
        step: item.int("step")?,
        notes: NOTES.iter().map(|list| notes_in(item, list).count()).sum(),
        said: None,
        repeated: None,
        served: None,
        expires_at: item.int("ttl").unwrap_or(i64::MAX),
    })
}
