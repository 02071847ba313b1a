//! What leads to the items of one commit: entries that stand alone, or in lists where many start alike; and the lists of
//! what expires.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use fjall::Slice;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::binding;
use super::front::{Op, Space};
use super::group::Entries;
use super::keys;
use super::plan::Entry;
use super::sheaf::Sheaf;

/// Keys in one part of a list, and bytes.
const LIST_KEYS: usize = 1000;
const LIST_BYTES: usize = 256 * 1024;
/// Entries that stand in lists and share a start, at the most: a query that needs one of them reads all of them.
const LISTED: usize = 4000;
/// Starts of entries that are remembered at the most; then the memory starts anew.
const REMEMBERED: usize = 100_000;

/// The parts of lists that stand for sheaves are numbered from here.
const SHEAF_PARTS: u32 = 1 << 31;

/// What is written of a commit besides its items.
#[derive(Default)]
pub struct Crowds {
    by_start: FxHashMap<Slice, Crowd>,
    expiries: BTreeMap<i64, Vec<Slice>>,
}

/// Entries of a group that start alike.
#[derive(Default)]
struct Crowd {
    entries: Vec<Slice>,
    /// When the last of the items expires.
    expires: i64,
}

/// How many entries stand in lists, by a hash of what they share. Who shares a hash only gets fewer lists.
#[derive(Default)]
pub struct Listed(FxHashMap<u64, usize>);

impl Listed {
    /// Whether `more` entries that start with `shared` may go into a list.
    pub fn admit(&mut self, shared: &[u8], more: usize) -> bool {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let count = self.0.entry(FxBuildHasher.hash_one(shared)).or_default();
        *count = count.saturating_add(more);
        *count <= LISTED
    }
}

impl Crowds {
    /// Notes that an item or a list expires.
    pub fn expire(&mut self, second: i64, key: Slice) {
        self.expiries.entry(second).or_default().push(key);
    }

    /// Takes in what becomes of the entries that lead to an item, which expires at `expires`, if it does.
    pub fn lead(&mut self, ops: &mut Vec<Op>, entries: Entries, expires: Option<i64>) {
        let Entries { gone, new } = entries;
        for entry in &gone {
            // An entry in a list stays there, and leads to nothing any more.
            if !new.iter().any(|new| new.key == entry.key) {
                ops.push(Op { space: Space::Index, key: entry.key.clone(), value: None, is_new: false });
            }
        }
        for entry in new {
            let is_new = !gone.iter().any(|gone| gone.key == entry.key);
            if stands_alone(&entry) && !is_new {
                continue;
            }
            let shared = entry.shared.and_then(|len| entry.key.get(..len));
            // A list goes when its items expire, so those that never do are in none.
            let (Some(shared), Some(expires)) = (shared, expires) else {
                ops.push(Op { space: Space::Index, key: entry.key, value: Some(entry.value), is_new });
                continue;
            };
            if let Some(crowd) = self.by_start.get_mut(shared) {
                crowd.expires = crowd.expires.max(expires);
                crowd.entries.push(entry.key);
            } else {
                let shared = Slice::from(shared);
                self.by_start.insert(shared, Crowd { entries: vec![entry.key], expires });
            }
        }
    }

    /// Leads to the items of a sheaf, the one of that number in the commit, by as many lists as lead to all alike.
    pub fn lead_to_sheaf(
        &mut self,
        ops: &mut Vec<Op>,
        sheaf: &Sheaf,
        key: &Slice,
        (sequence, number): (u64, u32),
        expires: i64,
    ) {
        // Their items are counted with the sheaf's.
        for start in &sheaf.lists {
            let list_key = Slice::from(keys::entry_list(start, sequence, SHEAF_PARTS | number));
            self.expire(expires, list_key.clone());
            ops.push(new_list(list_key, binding::list_of_sheaf(key)));
        }
    }

    /// Writes all lists.
    pub fn write(mut self, ops: &mut Vec<Op>, listed: &mut Listed, sequence: u64) {
        for (shared, crowd) in std::mem::take(&mut self.by_start) {
            write_crowd(ops, listed, &mut self.expiries, sequence, &shared, crowd);
        }
        for (second, item_keys) in self.expiries {
            for (part, list) in parts(item_keys.iter().map(|item_key| &**item_key)) {
                ops.push(new_list(keys::expiry_list(second, sequence, part).into(), list.into()));
            }
        }
    }
}

/// Whether an entry is written once and stays as it is for as long as it leads to its item: in no list that may go, and
/// nothing beside it that changes with the item.
const fn stands_alone(entry: &Entry) -> bool {
    entry.shared.is_none() && entry.whole_bytes == 0
}

/// Writes entries that start alike: in lists, which expire with the last of their items, or one by one.
fn write_crowd(
    ops: &mut Vec<Op>,
    listed: &mut Listed,
    expiries: &mut BTreeMap<i64, Vec<Slice>>,
    sequence: u64,
    shared: &[u8],
    crowd: Crowd,
) {
    if crowd.entries.len() < 2 || !listed.admit(shared, crowd.entries.len()) {
        for entry in crowd.entries {
            // It may have stood there before: an item that is written again writes it again.
            ops.push(Op { space: Space::Index, key: entry, value: Some(Slice::from([])), is_new: false });
        }
        return;
    }
    let rests = crowd.entries.iter().map(|entry| entry.get(shared.len()..).unwrap_or_default());
    for (part, list) in parts(rests) {
        let list_key = Slice::from(keys::entry_list(shared, sequence, part));
        expiries.entry(crowd.expires).or_default().push(list_key.clone());
        ops.push(new_list(list_key, list.into()));
    }
}

/// A list, whose key has the number of its commit in it.
const fn new_list(key: Slice, list: Slice) -> Op {
    Op { space: Space::Index, key, value: Some(list), is_new: true }
}

/// Keys as lists of a bounded size, numbered.
fn parts<'a>(mut all: impl ExactSizeIterator<Item = &'a [u8]>) -> impl Iterator<Item = (u32, Vec<u8>)> {
    let mut part = 0;
    std::iter::from_fn(move || {
        let mut list = Vec::with_capacity(all.len().min(LIST_KEYS) * 48);
        let mut count = 0;
        while count < LIST_KEYS
            && list.len() < LIST_BYTES
            && let Some(key) = all.next()
        {
            keys::put_in_list(&mut list, key);
            count += 1;
        }
        part += 1;
        (count > 0).then_some((part - 1, list))
    })
}
