//! What a transaction will write, worked out as far as possible before the committer sees it.
//!
//! Checking, encoding and the keys of new index entries happen in the caller's task; the one committer
//! thread is left with reading what is there, deciding, and handing bytes to the log.

use std::sync::Arc;

use fjall::Slice;

use super::layout::TableIds;
use super::{Tables, keys};
use crate::Error;
use crate::codec;
use crate::item::{Item, Key};
use crate::table::{Index, Table};
use crate::write::{Condition, Write, check_transaction};

pub struct Plan {
    pub steps: Vec<Step>,
    pub bytes: usize,
}

pub struct Step {
    pub ids: Arc<TableIds>,
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

/// An item as it goes to disk, with the index entries that lead to it.
pub struct Stored {
    pub bytes: Slice,
    pub entries: Vec<Slice>,
    pub expiry: Option<i64>,
}

pub fn plan(tables: &Tables, writes: Vec<Write>) -> Result<Plan, Error> {
    let all_keys = check_transaction(&writes)?;
    let mut steps = Vec::with_capacity(writes.len());
    let mut bytes = 0;
    for (write, key) in writes.into_iter().zip(all_keys) {
        let ids = Arc::clone(tables.ids(write.table())?);
        let item_key = Slice::from(keys::item(ids.table, &key));
        let action = match &write {
            Write::Put { table, item, .. } => Action::Put(stored(table, &ids, &key, item)),
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
pub fn stored(table: &Table, ids: &TableIds, key: &Key, item: &Item) -> Stored {
    let entries = entries(table, ids, key, item);
    Stored { bytes: Slice::from(codec::encode(item)), entries, expiry: table.expiry_of(item) }
}

/// The index entries that lead to an item, which has been checked.
pub fn entries(table: &Table, ids: &TableIds, key: &Key, item: &Item) -> Vec<Slice> {
    let mut entries = Vec::with_capacity(ids.indexes.len());
    for (index, id) in table.indexes().iter().zip(&ids.indexes) {
        let entry = keys::index_entry_of_item(*id, index, item, key, same_sort(table, index));
        entries.extend(entry.map(Slice::from));
    }
    entries
}

/// Whether an index sorts by the attribute that the table sorts by.
pub fn same_sort(table: &Table, index: &Index) -> bool {
    index.sort.is_some() && index.sort.as_ref() == table.sort_attribute()
}

impl Step {
    /// Whether the item as it is must be read: to decide, to change it, or to find entries that go with it.
    pub fn needs_present(&self) -> bool {
        let table = self.write.table();
        if *self.write.condition() == Condition::Fresh && matches!(self.action, Action::Put(_)) {
            return false;
        }
        // What has no entries and no expiry is removed the same way whether or not it is there.
        let plain = table.indexes().is_empty() && table.ttl_attribute().is_none();
        if matches!(self.action, Action::Delete) && plain && *self.write.condition() == Condition::None {
            return false;
        }
        !matches!(self.action, Action::Put(_))
            || *self.write.condition() != Condition::None
            || !table.indexes().is_empty()
            || table.ttl_attribute().is_some()
    }
}
