//! What a transaction will write, worked out as far as possible before the committer sees it.
//!
//! Checking, encoding and the keys of new index entries happen in the caller's task; the one committer
//! thread is left with reading what is there, deciding, and handing bytes to the log. It is not even left with
//! throwing an item away: memory that one thread took and another returns is dear.

use std::sync::Arc;

use byteview::ByteView;
use fjall::Slice;
use rustc_hash::FxHashSet;

use super::keys::OwnKey;
use super::layout::TableIds;
use super::scratch::built;
use super::{Tables, keys};
use crate::Error;
use crate::codec;
use crate::item::Item;
use crate::table::{Index, KeyKind, Table};
use crate::write::{Condition, Write, check_count, check_total, item_twice};

pub struct Plan {
    pub steps: Vec<Step>,
    pub bytes: usize,
}

pub struct Step {
    pub ids: Arc<TableIds>,
    pub table: Table,
    pub item_key: Slice,
    pub condition: Condition,
    pub action: Action,
}

pub enum Action {
    /// Store this; everything about it is known.
    Put(Stored),
    /// What will be stored depends on what is there. Kept elsewhere, for it is much larger than the others.
    Update(Box<Write>),
    Delete,
    Check,
}

/// An item as it goes to disk, with the index entries that lead to it.
pub struct Stored {
    pub bytes: Slice,
    pub entries: Vec<Entry>,
    pub expiry: Option<i64>,
}

/// An index entry that leads to an item.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key: Slice,
    /// How much of it the entries of one list have in common, if it may be in one.
    pub shared: Option<usize>,
    /// Whether the item itself stands beside it, if it is no larger than this.
    pub whole_bytes: usize,
    /// The item, where it stands beside it; else nothing.
    pub value: Slice,
}

pub fn plan(tables: &Tables, writes: Vec<Write>) -> Result<Plan, Error> {
    check_count(&writes)?;
    let mut steps: Vec<Step> = Vec::with_capacity(writes.len());
    let (mut bytes, mut total) = (0, 0);
    for write in writes {
        let size = write.checked_size()?;
        total += size;
        let ids = Arc::clone(tables.ids(write.table())?);
        let (table, condition, item_key, action) = match write {
            Write::Put { table, item, condition } => {
                let item_key = item_key(&table, &ids, &item)?;
                let stored = stored(&table, &ids, &item_key, &item, size)?;
                (table, condition, item_key, Action::Put(stored))
            }
            Write::Update { table, key, changes, condition } => {
                let item_key = keys::item(ids.table, &key);
                // Whether it may be done is decided by the step's own condition.
                let update = Write::Update { table: table.clone(), key, changes, condition: Condition::None };
                (table, condition, item_key, Action::Update(Box::new(update)))
            }
            Write::Delete { table, key, condition } => (table, condition, keys::item(ids.table, &key), Action::Delete),
            Write::Check { table, key, condition } => (table, condition, keys::item(ids.table, &key), Action::Check),
        };
        bytes += match &action {
            Action::Put(stored) => stored.bytes.len(),
            _ => 64,
        };
        steps.push(Step { ids, table, item_key, condition, action });
    }
    if let Some(twice) = named_twice(&steps) {
        return Err(item_twice(twice));
    }
    check_total(total)?;
    Ok(Plan { steps, bytes })
}

/// The table of an item that two of the steps are about.
fn named_twice(steps: &[Step]) -> Option<&Table> {
    // Few keys are compared sooner than hashed.
    const FEW: usize = 6;
    if steps.len() <= FEW {
        let mut all = steps.iter().enumerate();
        let is_twice = |n: usize, step: &Step| steps.iter().take(n).any(|other| other.item_key == step.item_key);
        return all.find(|(n, step)| is_twice(*n, step)).map(|(_, step)| &step.table);
    }
    let mut seen = FxHashSet::default();
    steps.iter().find(|step| !seen.insert(&*step.item_key)).map(|step| &step.table)
}

/// The bytes of the key of an item, which has been checked. They have a place of their own in memory: keys are compared
/// far more often than items are read, and stand closer together without them.
pub fn item_key(table: &Table, ids: &TableIds, item: &Item) -> Result<Slice, Error> {
    let key = keys::of_item(ids.table, table, item);
    key.ok_or_else(|| Error::Corrupt(format!("an item of {} lacks its key", table.name())))
}

/// The bytes and entries of an item of that size.
pub fn stored(table: &Table, ids: &TableIds, item_key: &[u8], item: &Item, size: usize) -> Result<Stored, Error> {
    let mut entries = entries(table, ids, item_key, item)?;
    let encode = |out: &mut Vec<u8>| {
        codec::encode_into(out, item, size);
        Some(())
    };
    let bytes = built(encode).unwrap_or_default();
    for entry in entries.iter_mut().filter(|entry| bytes.len() <= entry.whole_bytes) {
        entry.value = bytes.clone();
    }
    Ok(Stored { bytes, entries, expiry: table.expiry_of(item) })
}

/// The index entries that lead to an item, which has been checked.
pub fn entries(table: &Table, ids: &TableIds, item_key: &[u8], item: &Item) -> Result<Vec<Entry>, Error> {
    if ids.indexes.is_empty() {
        return Ok(Vec::new());
    }
    let own = OwnKey::new(table, item_key)
        .ok_or_else(|| Error::Corrupt(format!("the key of an item of {} cannot be read", table.name())))?;
    let mut found = Vec::with_capacity(ids.indexes.len());
    // All keys in one piece of memory: they are made together, and mostly go together.
    let keys = built(|out| {
        for (index, id) in table.indexes().iter().zip(&ids.indexes) {
            let start = out.len();
            match keys::put_index_entry(out, *id, index, item, &own, same_sort(table, index)) {
                Some(()) => found.push((index, start..out.len())),
                None => out.truncate(start),
            }
        }
        Some(())
    });
    let keys = ByteView::from(keys.unwrap_or_default());
    let entry = |(index, place): (&Index, _)| {
        let key = Slice::from(keys.slice(place));
        let shared = list_bytes(table, index).and_then(|bytes| keys::shared_len(&key, index.partition.1, bytes));
        // What stands in a list has no room for an item.
        let whole_bytes = if shared.is_some() { 0 } else { index.whole_bytes };
        Entry { key, shared, whole_bytes, value: Slice::default() }
    };
    Ok(found.into_iter().map(entry).collect())
}

/// Whether an index sorts by the attribute that the table sorts by.
pub fn same_sort(table: &Table, index: &Index) -> bool {
    index.sort.is_some() && index.sort.as_ref() == table.sort_attribute()
}

/// How many bytes of the sort key the entries of one list share, if an index has lists.
pub fn list_bytes(table: &Table, index: &Index) -> Option<usize> {
    table.list_bytes().filter(|_| index.sort.as_ref().is_some_and(|(_, kind)| *kind == KeyKind::S))
}

impl Step {
    /// Whether the item as it is must be read: to decide, to change it, or to find entries that go with it.
    pub fn needs_present(&self) -> bool {
        let is_put = matches!(self.action, Action::Put(_));
        if is_put && self.condition == Condition::Fresh {
            return false;
        }
        // What has no entries and no expiry is removed the same way whether or not it is there.
        let plain = self.table.indexes().is_empty() && self.table.ttl_attribute().is_none();
        if matches!(self.action, Action::Delete) && plain && self.condition == Condition::None {
            return false;
        }
        !is_put
            || self.condition != Condition::None
            || !self.table.indexes().is_empty()
            || self.table.ttl_attribute().is_some()
    }
}
