//! How far a stream has been read, as it is stored: an item for each shard that the stream still has, and one that says
//! that the source has begun.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use tidings_core::time::{self, Timestamp};
use tidings_store::{Condition, Error, Item, Key, KeyKind, Query, Store, Table, Write};

/// How far each shard of each source has been read.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> =
        LazyLock::new(|| Table::new("tidings-stream-checkpoints", "source", KeyKind::S).sort("shard", KeyKind::S));
    &TABLE
}

/// The sort key of the item that says that a source has begun; no stream's name begins like it.
const BEGUN: &str = "!begun";

/// Where a shard stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Position {
    /// Before the oldest record that it still has.
    #[default]
    Start,
    /// After this record.
    After(String),
    /// Before the first record that is not older than this.
    Since(Timestamp),
    /// Read to its end.
    Finished,
}

/// A shard's item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub source: String,
    /// The stream's label and the shard's id: [`name`].
    pub shard: String,
    /// The stream.
    pub stream: String,
    pub shard_id: String,
    /// `start`, `after`, `since` or `finished`.
    pub position: String,
    /// The last record that was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When this was noted.
    pub at: String,
    /// Counts the changes; each is made on the condition that nobody else made one.
    pub revision: i64,
}

/// The item that says that a source has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub source: String,
    pub shard: String,
    /// The table or stream; a source that is given another begins anew.
    pub of: String,
    pub at: String,
}

/// A shard's name among all that a source reads.
#[must_use]
pub fn name(stream: &str, shard_id: &str) -> String {
    let label = stream.split_once("/stream/").map_or(stream, |(_, label)| label);
    format!("{label}/{shard_id}")
}

impl Checkpoint {
    #[must_use]
    pub fn new(source: &str, stream: &str, shard_id: &str, position: &Position, before: i64, now: Timestamp) -> Self {
        let (word, sequence, since) = match position {
            Position::Start => ("start", None, None),
            Position::After(sequence) => ("after", Some(sequence.clone()), None),
            Position::Since(at) => ("since", None, Some(time::iso_micros(*at))),
            Position::Finished => ("finished", None, None),
        };
        Self {
            source: source.to_owned(),
            shard: name(stream, shard_id),
            stream: stream.to_owned(),
            shard_id: shard_id.to_owned(),
            position: word.to_owned(),
            sequence,
            since,
            at: time::iso_millis(now),
            revision: before.saturating_add(1),
        }
    }

    #[must_use]
    pub fn position(&self) -> Position {
        match (self.position.as_str(), &self.sequence, &self.since) {
            ("finished", ..) => Position::Finished,
            ("after", Some(sequence), _) => Position::After(sequence.clone()),
            ("since", _, Some(at)) => at.parse().map_or(Position::Start, Position::Since),
            _ => Position::Start,
        }
    }

    /// The write that puts it there, if it stands as it was read.
    pub fn put(&self) -> Result<Write, Error> {
        let unchanged = match self.revision {
            ..=1 => Condition::NotExists,
            revision => Condition::Equals("revision".into(), (revision - 1).into()),
        };
        Ok(Write::put(table(), Item::from_record(self)?).when(unchanged))
    }

    /// The same whatever is there: for a beginning that was broken off and is made again.
    pub fn put_anyway(&self) -> Result<Write, Error> {
        Ok(Write::put(table(), Item::from_record(self)?))
    }

    /// The write that forgets it, if it stands as it was read.
    #[must_use]
    pub fn forget(&self) -> Write {
        let unchanged = Condition::Equals("revision".into(), self.revision.into());
        Write::delete(table(), Key::with_sort(self.source.as_str(), self.shard.as_str())).when(unchanged)
    }
}

impl Begun {
    #[must_use]
    pub fn new(source: &str, of: &str, now: Timestamp) -> Self {
        Self { source: source.to_owned(), shard: BEGUN.to_owned(), of: of.to_owned(), at: time::iso_millis(now) }
    }

    pub fn put(&self) -> Result<Write, Error> {
        Ok(Write::put(table(), Item::from_record(self)?))
    }
}

/// All that is stored of a source.
///
/// # Errors
///
/// If the store does not answer.
pub async fn load(store: &dyn Store, source: &str) -> Result<(Option<Begun>, BTreeMap<String, Checkpoint>), Error> {
    let (mut begun, mut checkpoints) = (None, BTreeMap::new());
    let mut query = Query::new(source).limit(1000);
    loop {
        let page = store.query(table(), &query).await?;
        for item in &page.items {
            if item.str("shard") == Some(BEGUN) {
                begun = Some(item.to_record()?);
            } else {
                let checkpoint: Checkpoint = item.to_record()?;
                checkpoints.insert(checkpoint.shard.clone(), checkpoint);
            }
        }
        if page.next.is_none() {
            return Ok((begun, checkpoints));
        }
        query = query.after(page.next);
    }
}
