//! What a transaction will write, worked out as far as possible before the committer sees it.
//!
//! Checking, encoding and the keys of new index entries happen in the caller's task; the one committer
//! thread is left with reading what is there, deciding, and handing bytes to the log.

use fjall::Slice;

use super::layout::TableIds;
use super::{Tables, keys};
use crate::Error;
use crate::codec;
use crate::item::{Item, Key};
use crate::table::Table;
use crate::write::{Condition, Write, check_transaction};

pub struct Plan {
    pub steps: Vec<Step>,
    pub bytes: usize,
}

pub struct Step {
    pub ids: TableIds,
    pub key: Key,
    pub item_key: Slice,
    pub action: Action,
    pub write: Write,
}

pub enum Action {
    /// Store this; everything about it is known.
    Put(Stored),
    /// What will be stored depends on what is there.
    Update,
    Delete,
    Check,
}

/// An item as it goes to disk, with the entries that lead to it.
pub struct Stored {
    pub bytes: Slice,
    pub entries: Vec<Slice>,
}

pub fn plan(tables: &Tables, writes: Vec<Write>) -> Result<Plan, Error> {
    let all_keys = check_transaction(&writes)?;
    let mut steps = Vec::with_capacity(writes.len());
    let mut bytes = 0;
    for (write, key) in writes.into_iter().zip(all_keys) {
        let ids = tables.ids(write.table())?.clone();
        let item_key = Slice::from(keys::item(ids.table, &key));
        let action = match &write {
            Write::Put { table, item, .. } => Action::Put(stored(table, &ids, &key, &item_key, item)?),
            Write::Update { .. } => Action::Update,
            Write::Delete { .. } => Action::Delete,
            Write::Check { .. } => Action::Check,
        };
        bytes += match &action {
            Action::Put(stored) => stored.bytes.len(),
            _ => 64,
        };
        steps.push(Step { ids, key, item_key, action, write });
    }
    Ok(Plan { steps, bytes })
}

/// The bytes and entries of an item.
pub fn stored(table: &Table, ids: &TableIds, key: &Key, item_key: &Slice, item: &Item) -> Result<Stored, Error> {
    Ok(Stored { bytes: Slice::from(codec::encode(item)), entries: entries(table, ids, key, item_key, item)? })
}

/// The index and expiry entries that lead to an item.
pub fn entries(table: &Table, ids: &TableIds, key: &Key, item_key: &[u8], item: &Item) -> Result<Vec<Slice>, Error> {
    let mut entries = Vec::with_capacity(ids.indexes.len() + 1);
    for (index, id) in table.indexes().iter().zip(&ids.indexes) {
        if let Some(entry) = table.index_key_of(index, item)? {
            entries.push(Slice::from(keys::index_entry(*id, &entry, key)));
        }
    }
    if let Some(second) = table.expiry_of(item) {
        entries.push(Slice::from(keys::expiry_entry(second, item_key)));
    }
    Ok(entries)
}

impl Step {
    /// Whether the item as it is must be read: to decide, to change it, or to find entries that go with it.
    pub fn needs_present(&self) -> bool {
        let table = self.write.table();
        !matches!(self.action, Action::Put(_))
            || *self.write.condition() != Condition::None
            || !table.indexes().is_empty()
            || table.ttl_attribute().is_some()
    }
}
