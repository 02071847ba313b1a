//! An entry of the audit log: append-only, each holding the hash of the one before it.

use std::sync::LazyLock;

use ring::digest;
use tidings_core::time::{self, Timestamp};
use tidings_store::{Error, Item, Key, KeyKind, Table};

/// Entries by number; the other ways to look for them are indexes.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let sequence = || Some(("seq".into(), KeyKind::N));
        Table::new("tidings-audit", "log", KeyKind::S)
            .sort("seq", KeyKind::N)
            .index("user-index", ("user".into(), KeyKind::S), sequence())
            .index("action-index", ("action".into(), KeyKind::S), sequence())
            .index("entity-index", ("entity".into(), KeyKind::S), sequence())
            .index("correlation-index", ("correlationId".into(), KeyKind::S), sequence())
    });
    &TABLE
}

pub const LOG: &str = "main";
/// The head stands under number 0; entries start at 1.
#[must_use]
pub fn head_key() -> Key {
    Key::with_sort(LOG, 0_i64)
}

#[must_use]
pub fn key(seq: i64) -> Key {
    Key::with_sort(LOG, seq)
}

/// The head once `entry` is the last.
#[must_use]
pub fn head_after(head: Option<&Item>, entry: &Entry) -> Item {
    let kept = |name: &str| head.and_then(|head| head.get(name)).cloned();
    Item::new()
        .with("log", LOG)
        .with("seq", 0_i64)
        .with("last", entry.seq)
        .with("hash", &entry.hash)
        .with("lastTime", time::iso_micros(entry.at))
        .with_some("first", kept("first"))
        .with_some("firstPrevious", kept("firstPrevious"))
}

/// The numbers of the first and the last entry.
#[must_use]
pub fn head_range(head: &Item) -> (i64, i64) {
    (head.int("first").unwrap_or(1), head.int("last").unwrap_or(0))
}

/// The number of the first entry that is kept, and the hash of the one before it.
#[must_use]
pub fn head_start(head: &Item) -> (i64, String) {
    (head_range(head).0, head.str("firstPrevious").unwrap_or_default().to_owned())
}

/// When the last entry was written.
#[must_use]
pub fn head_time(head: &Item) -> Option<Timestamp> {
    head.str("lastTime")?.parse().ok()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: i64,
    pub at: Timestamp,
    pub user: String,
    pub action: String,
    pub entity: String,
    pub entity_id: String,
    pub correlation_id: String,
    /// JSON text.
    pub details: String,
    pub previous: String,
    pub hash: String,
}

impl Entry {
    /// The hash that binds the entry to everything before it.
    #[must_use]
    pub fn compute_hash(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        let at = time::iso_micros(self.at);
        let seq = self.seq.to_string();
        let parts = [
            &self.previous,
            &seq,
            &at,
            &self.user,
            &self.action,
            &self.entity,
            &self.entity_id,
            &self.correlation_id,
            &self.details,
        ];
        for part in parts {
            // With its length before it, no part can pass for the end of its neighbour.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        hex(context.finish().as_ref())
    }

    #[must_use]
    pub fn to_item(&self) -> Item {
        Item::new()
            .with("log", LOG)
            .with("seq", self.seq)
            .with("at", self.at.as_microsecond())
            .with("user", &self.user)
            .with("action", &self.action)
            .with("entity", &self.entity)
            .with("entityId", &self.entity_id)
            .with("correlationId", &self.correlation_id)
            .with("details", &self.details)
            .with("previous", &self.previous)
            .with("hash", &self.hash)
    }

    pub fn from_item(item: &Item) -> Result<Self, Error> {
        let read = || {
            let text = |name: &str| item.str(name).map(ToOwned::to_owned);
            Some(Self {
                seq: item.int("seq")?,
                at: Timestamp::from_microsecond(item.int("at")?).ok()?,
                user: text("user")?,
                action: text("action")?,
                entity: text("entity")?,
                entity_id: text("entityId")?,
                correlation_id: text("correlationId")?,
                details: text("details")?,
                previous: text("previous")?,
                hash: text("hash")?,
            })
        };
        read().ok_or_else(|| Error::Corrupt("an entry of the audit log cannot be read".to_owned()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
