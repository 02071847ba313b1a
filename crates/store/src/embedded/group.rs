//! What one group of transactions will change, item by item.

use std::collections::BTreeMap;

use fjall::{Keyspace, OwnedWriteBatch, Slice};
use rustc_hash::FxHashMap;

use super::keys;

/// Items in one part of an expiry list.
const LIST_ITEMS: usize = 1000;

/// What one transaction does to one item.
pub struct Change {
    pub item_key: Slice,
    /// The item's new bytes; `None` removes it.
    pub bytes: Option<Slice>,
    /// Index entries that led to the item as it was.
    pub gone: Vec<Slice>,
    pub new: Vec<Slice>,
    /// A second at which the item will expire, if no list knows it yet.
    pub expiry: Option<i64>,
}

/// The changes of a group, by item: a later one replaces an earlier one.
#[derive(Default)]
pub struct Group {
    items: FxHashMap<Slice, Pending>,
    expiries: BTreeMap<i64, Vec<Slice>>,
    /// Expiry lists that have been dealt with.
    pub lists_done: Vec<Slice>,
    pub transactions: usize,
    pub bytes: usize,
}

struct Pending {
    bytes: Option<Slice>,
    /// Entries on disk that lead to the item as it was before the group.
    gone: Vec<Slice>,
    new: Vec<Slice>,
}

impl Group {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.lists_done.is_empty()
    }

    /// The item as the group leaves it: `None` if the group does not touch it, `Some(None)` if it removes it.
    pub fn item(&self, item_key: &Slice) -> Option<Option<&Slice>> {
        self.items.get(item_key).map(|pending| pending.bytes.as_ref())
    }

    pub fn add(&mut self, change: Change) {
        let Change { item_key, bytes, gone, new, expiry } = change;
        if let Some(second) = expiry {
            self.expiries.entry(second).or_default().push(item_key.clone());
        }
        match self.items.get_mut(&item_key) {
            // `gone` names entries of an earlier change in this group, which will never be written.
            Some(pending) => (pending.bytes, pending.new) = (bytes, new),
            None => drop(self.items.insert(item_key, Pending { bytes, gone, new })),
        }
    }

    /// How many writes there will be, to make room for.
    pub fn writes_about(&self) -> usize {
        self.items.len() * 4 + self.expiries.len() + self.lists_done.len() + 1
    }

    pub fn write_to(self, batch: &mut OwnedWriteBatch, items: &Keyspace, index: &Keyspace, sequence: u64) {
        for (item_key, pending) in self.items {
            for entry in pending.gone {
                if !pending.new.contains(&entry) {
                    batch.remove(index, entry);
                }
            }
            for entry in pending.new {
                batch.insert(index, entry, Slice::from([]));
            }
            match pending.bytes {
                Some(bytes) => batch.insert(items, item_key, bytes),
                None => batch.remove(items, item_key),
            }
        }
        for (second, item_keys) in self.expiries {
            for (part, item_keys) in (0_u32..).zip(item_keys.chunks(LIST_ITEMS)) {
                let mut list = Vec::with_capacity(item_keys.len() * 64);
                item_keys.iter().for_each(|item_key| keys::put_in_list(&mut list, item_key));
                batch.insert(index, keys::expiry_list(second, sequence, part), list);
            }
        }
        for list in self.lists_done {
            batch.remove(index, list);
        }
    }
}
