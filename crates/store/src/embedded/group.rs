//! What one group of transactions will change, item by item.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use fjall::Slice;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::front::{Op, Space};
use super::keys;
use super::plan::Entry;
use super::sheaf::{self, Place, Sheaf};

/// Keys in one part of a list, and bytes.
const LIST_KEYS: usize = 1000;
const LIST_BYTES: usize = 256 * 1024;
/// Entries that stand in lists and share a start, at the most: a query that needs one of them reads all of them.
const LISTED: usize = 4000;
/// Starts of entries that are remembered at the most; then the memory starts anew.
const REMEMBERED: usize = 100_000;

/// Items for which a group keeps room when it is over.
const KEPT: usize = 16 * 1024;

/// What one transaction does to one item.
pub struct Change {
    pub item_key: Slice,
    /// Whether its table is kept apart.
    pub apart: bool,
    /// The item's new bytes; `None` removes it.
    pub bytes: Option<Slice>,
    /// Whether there was none, for certain.
    pub is_new: bool,
    pub entries: Entries,
    /// The second at which the item will expire, if it does.
    pub expires: Option<i64>,
    /// The same, if no list knows it yet.
    pub expiry: Option<i64>,
    /// Of one that goes: whether a sheaf still has it.
    pub leaves_hole: bool,
    /// Of a new one: where it is among those that came with it.
    pub sheaf: Option<Place>,
}

impl Change {
    /// Takes an item away, and the entries that lead to it.
    pub fn removal(item_key: Slice, apart: bool, gone: Vec<Entry>, leaves_hole: bool) -> Self {
        let entries = Entries { gone, new: Vec::new() };
        let (bytes, is_new, expires, expiry, sheaf) = (None, false, None, None, None);
        Self { item_key, apart, bytes, is_new, entries, expires, expiry, leaves_hole, sheaf }
    }
}

/// What becomes of the index entries that lead to an item. Those that are in neither stay as they are.
#[derive(Debug, Default)]
pub struct Entries {
    /// Some of those that led to the item as it was.
    pub gone: Vec<Entry>,
    pub new: Vec<Entry>,
}

impl Entries {
    /// What both come to, one after the other.
    fn then(&mut self, next: Self) {
        for entry in next.gone {
            let known = self.new.iter().position(|new| new.key == entry.key);
            match known {
                // It will never be written.
                Some(place) => drop(self.new.swap_remove(place)),
                None => self.gone.push(entry),
            }
        }
        self.new.extend(next.new);
    }
}

/// The changes of a group, by item: a later one replaces an earlier one.
#[derive(Default)]
pub struct Group {
    items: Vec<Pending>,
    places: FxHashMap<Slice, usize>,
    sheaves: Vec<Bound>,
    /// Index entries that lead to items of sheaves that go.
    pub entries_gone: Vec<Slice>,
    /// Lists that have been dealt with, and sheaves.
    pub lists_done: Vec<Slice>,
    pub sheaves_done: Vec<Slice>,
    pub transactions: usize,
    pub bytes: usize,
}

struct Pending {
    item_key: Slice,
    apart: bool,
    bytes: Option<Slice>,
    /// Whether there was none before the group, for certain.
    is_new: bool,
    /// Entries on disk that lead to the item as it was before the group, and what they become.
    entries: Entries,
    expires: Option<i64>,
    expiry: Option<i64>,
    leaves_hole: bool,
    sheaf: Option<Place>,
}

/// A sheaf, and what the group has of it.
struct Bound {
    sheaf: Sheaf,
    is_there: Vec<bool>,
    /// When the last of the items expires.
    expires: i64,
    /// Whether it is stored; else its items stand alone.
    is_stored: bool,
}

impl Bound {
    fn count(&self) -> usize {
        self.is_there.iter().filter(|is_there| **is_there).count()
    }
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
    fn admit(&mut self, shared: &[u8], more: usize) -> bool {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let count = self.0.entry(FxBuildHasher.hash_one(shared)).or_default();
        *count = count.saturating_add(more);
        *count <= LISTED
    }
}

impl Group {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
            && self.lists_done.is_empty()
            && self.sheaves_done.is_empty()
            && self.entries_gone.is_empty()
    }

    /// Takes in what items that come now may be stored with; gives the number of the first.
    pub fn bring(&mut self, sheaves: Vec<Sheaf>) -> usize {
        let first = self.sheaves.len();
        self.sheaves.extend(sheaves.into_iter().map(|sheaf| Bound {
            is_there: vec![false; sheaf.count],
            sheaf,
            expires: i64::MIN,
            is_stored: false,
        }));
        first
    }

    /// The item as the group leaves it: `None` if the group does not touch it, `Some(None)` if it removes it.
    pub fn item(&self, item_key: &Slice) -> Option<Option<&Slice>> {
        let place = self.places.get(item_key)?;
        self.items.get(*place).map(|pending| pending.bytes.as_ref())
    }

    pub fn add(&mut self, change: Change) {
        let Change { item_key, apart, bytes, is_new, entries, expires, expiry, leaves_hole, sheaf } = change;
        match self.places.get(&item_key).and_then(|place| self.items.get_mut(*place)) {
            Some(pending) => {
                (pending.bytes, pending.expires, pending.leaves_hole) = (bytes, expires, leaves_hole);
                pending.entries.then(entries);
                pending.expiry = expiry.or(pending.expiry);
                // It is no longer what came with the others.
                pending.sheaf = None;
            }
            None => {
                self.places.insert(item_key.clone(), self.items.len());
                self.items.push(Pending {
                    item_key,
                    apart,
                    bytes,
                    is_new,
                    entries,
                    expires,
                    expiry,
                    leaves_hole,
                    sheaf,
                });
            }
        }
    }

    /// Decides which sheaves are stored: those that have enough of their items.
    fn bind(&mut self, listed: &mut Listed) {
        if self.sheaves.is_empty() {
            return;
        }
        for Pending { sheaf, expires, .. } in &self.items {
            let Some(Place { sheaf, item }) = *sheaf else { continue };
            let Some(bound) = self.sheaves.get_mut(sheaf) else { continue };
            if let Some(is_there) = bound.is_there.get_mut(item) {
                *is_there = true;
            }
            bound.expires = bound.expires.max(expires.unwrap_or(i64::MAX));
        }
        for bound in &mut self.sheaves {
            let count = bound.count();
            bound.is_stored = count >= sheaf::LEAST && listed.admit(&bound.sheaf.shared, count);
        }
    }

    /// Whether an item is stored in its sheaf.
    fn is_bound(&self, place: Option<Place>) -> bool {
        place.and_then(|place| self.sheaves.get(place.sheaf)).is_some_and(|bound| bound.is_stored)
    }

    /// How many writes there will be, to make room for.
    fn writes_about(&self) -> usize {
        self.items.len() * 3 + self.lists_done.len() + 1
    }

    /// Makes ready for other transactions; what is there is gone, its room is kept.
    pub fn clear(&mut self) {
        if self.places.capacity() > KEPT {
            *self = Self::default();
            return;
        }
        self.items.clear();
        self.places.clear();
        self.sheaves.clear();
        self.entries_gone.clear();
        self.lists_done.clear();
        self.sheaves_done.clear();
        (self.transactions, self.bytes) = (0, 0);
    }

    /// Takes everything out, as what the commit `sequence` changes.
    pub fn take(&mut self, listed: &mut Listed, sequence: u64) -> Vec<Op> {
        let mut ops = Vec::with_capacity(self.writes_about());
        let mut expiries: BTreeMap<i64, Vec<Slice>> = BTreeMap::new();
        let mut crowds: FxHashMap<Slice, Crowd> = FxHashMap::default();
        self.bind(listed);
        let mut items = std::mem::take(&mut self.items);
        for pending in items.drain(..) {
            let Entries { gone, new } = pending.entries;
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
                let (Some(shared), Some(expires)) = (shared, pending.expires) else {
                    ops.push(Op { space: Space::Index, key: entry.key, value: Some(entry.value), is_new });
                    continue;
                };
                if let Some(crowd) = crowds.get_mut(shared) {
                    crowd.expires = crowd.expires.max(expires);
                    crowd.entries.push(entry.key);
                } else {
                    let shared = Slice::from(shared);
                    crowds.insert(shared, Crowd { entries: vec![entry.key], expires });
                }
            }
            let Pending { item_key, apart, bytes, is_new, expiry, leaves_hole, sheaf, .. } = pending;
            if self.is_bound(sheaf) {
                continue;
            }
            if let Some(second) = expiry {
                expiries.entry(second).or_default().push(item_key.clone());
            }
            let value = bytes.or_else(|| leaves_hole.then(Slice::default));
            ops.push(Op { space: Space::items(apart), key: item_key, value, is_new });
        }
        // Its room is kept.
        self.items = items;
        for (number, bound) in (0..).zip(self.sheaves.drain(..)).filter(|(_, bound)| bound.is_stored) {
            let key = sheaf::key(&bound.sheaf.shared, sequence, number);
            expiries.entry(bound.expires).or_default().push(key.clone());
            ops.push(Op { space: Space::Apart, key, value: Some(bound.sheaf.value(&bound.is_there)), is_new: true });
        }
        for (shared, crowd) in crowds {
            write_crowd(&mut ops, listed, &mut expiries, sequence, &shared, crowd);
        }
        for (second, item_keys) in expiries {
            for (part, list) in parts(item_keys.iter().map(|item_key| &**item_key)) {
                ops.push(new_list(keys::expiry_list(second, sequence, part).into(), list));
            }
        }
        let gone = |space| move |key| Op { space, key, value: None, is_new: false };
        ops.extend(self.entries_gone.drain(..).chain(self.lists_done.drain(..)).map(gone(Space::Index)));
        ops.extend(self.sheaves_done.drain(..).map(gone(Space::Apart)));
        ops
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
        ops.push(new_list(list_key, list));
    }
}

/// A list, whose key has the number of its commit in it.
fn new_list(key: Slice, list: Vec<u8>) -> Op {
    Op { space: Space::Index, key, value: Some(list.into()), is_new: true }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(keys: &[&str]) -> Vec<Entry> {
        let entry =
            |key: &&str| Entry { key: Slice::from(*key), shared: None, whole_bytes: 0, value: Slice::default() };
        keys.iter().map(entry).collect()
    }

    fn change(bytes: Option<&str>, gone: &[&str], new: &[&str]) -> Change {
        let entries = Entries { gone: entries(gone), new: entries(new) };
        let (item_key, bytes) = (Slice::from("item"), bytes.map(Slice::from));
        let (expires, expiry, sheaf) = (None, None, None);
        Change { item_key, apart: false, bytes, is_new: false, entries, expires, expiry, leaves_hole: false, sheaf }
    }

    /// What a group of these changes does to the index: `+` writes an entry, `-` removes it.
    fn written(changes: impl IntoIterator<Item = Change>) -> Vec<String> {
        let mut group = Group::default();
        changes.into_iter().for_each(|change| group.add(change));
        let ops = group.take(&mut Listed::default(), 1).into_iter().filter(|op| op.space == Space::Index);
        let shown = |op: Op| [if op.value.is_some() { "+" } else { "-" }, &String::from_utf8_lossy(&op.key)].concat();
        let mut shown: Vec<_> = ops.map(shown).collect();
        shown.sort();
        shown
    }

    #[test]
    fn entries_of_several_changes_come_to_what_the_last_leaves() {
        let (made, moved) = (|| change(Some("1"), &[], &["a", "b"]), || change(Some("2"), &["a"], &["c"]));
        assert_eq!(written([made(), moved()]), ["+b", "+c"], "what was not touched stays");
        // Of an item that was there before, only what a change touches is known.
        assert_eq!(written([moved()]), ["+c", "-a"]);
        assert_eq!(written([moved(), change(Some("3"), &["c"], &["a"])]), Vec::<String>::new(), "as it was");
        assert_eq!(written([moved(), change(None, &["b", "c"], &[])]), ["-a", "-b"]);
        assert_eq!(written([change(Some("2"), &[], &[]), change(None, &["a", "b"], &[])]), ["-a", "-b"]);
        assert_eq!(written([change(None, &["a", "b"], &[]), made()]), Vec::<String>::new());
        assert_eq!(written([made(), moved(), change(None, &["b", "c"], &[])]), Vec::<String>::new());
    }
}
