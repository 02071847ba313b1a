//! What one group of transactions will change, item by item.

use fjall::Slice;
use rustc_hash::FxHashMap;

use super::crowds::{Crowds, Listed};
use super::front::{Op, Space};
use super::plan::{self, Entry};
use super::sheaf::{self, Place, Sheaf};
use super::tables::Tables;
use crate::Error;
use crate::codec::Encoded;

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

    /// What both come to, one after the other.
    fn then(&mut self, next: Self) {
        (self.bytes, self.expires, self.leaves_hole) = (next.bytes, next.expires, next.leaves_hole);
        self.entries.then(next.entries);
        self.expiry = next.expiry.or(self.expiry);
        // It is no longer what came with the others.
        self.sheaf = None;
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
    items: Vec<Change>,
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
    /// The entries that were left out because one would lead to the sheaf.
    fn left_out(&self, tables: &Tables, pending: &Change) -> Result<Vec<Entry>, Error> {
        let Some(bytes) = pending.bytes.as_deref().filter(|_| self.sheaf.alike != 0) else { return Ok(Vec::new()) };
        plan::entries_of(tables.at(self.sheaf.table)?, &pending.item_key, &Encoded::read(bytes)?, self.sheaf.alike)
    }

    fn count(&self) -> usize {
        self.is_there.iter().filter(|is_there| **is_there).count()
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
        let pending = self.place(item_key).and_then(|place| self.items.get(place))?;
        Some(pending.bytes.as_ref())
    }

    fn place(&self, item_key: &Slice) -> Option<usize> {
        if let Some(place) = self.places.get(item_key) {
            return Some(*place);
        }
        // Nobody asks for an item that comes with many others; to note the place of each would be for nothing.
        let may_be = self.sheaves.iter().any(|bound| item_key.starts_with(&bound.sheaf.shared));
        may_be.then(|| self.items.iter().position(|pending| pending.item_key == *item_key)).flatten()
    }

    pub fn add(&mut self, change: Change) {
        // Whoever comes with others is new.
        let known = if change.sheaf.is_some() { None } else { self.place(&change.item_key) };
        if let Some(pending) = known.and_then(|place| self.items.get_mut(place)) {
            pending.then(change);
            return;
        }
        if change.sheaf.is_none() {
            self.places.insert(change.item_key.clone(), self.items.len());
        }
        self.items.push(change);
    }

    /// Decides which sheaves are stored: those that have enough of their items.
    fn bind(&mut self, listed: &mut Listed) {
        if self.sheaves.is_empty() {
            return;
        }
        for Change { sheaf, expires, .. } in &self.items {
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
    pub fn take(&mut self, tables: &Tables, listed: &mut Listed, sequence: u64) -> Result<Vec<Op>, Error> {
        let mut ops = Vec::with_capacity(self.writes_about());
        let mut crowds = Crowds::default();
        self.bind(listed);
        let mut items = std::mem::take(&mut self.items);
        for mut pending in items.drain(..) {
            let bound = pending.sheaf.and_then(|place| self.sheaves.get(place.sheaf));
            let is_bound = bound.is_some_and(|bound| bound.is_stored);
            if let Some(bound) = bound.filter(|_| !is_bound) {
                pending.entries.new.extend(bound.left_out(tables, &pending)?);
            }
            crowds.lead(&mut ops, pending.entries, pending.expires);
            if is_bound {
                continue;
            }
            if let Some(second) = pending.expiry {
                crowds.expire(second, pending.item_key.clone());
            }
            let value = pending.bytes.or_else(|| pending.leaves_hole.then(Slice::default));
            ops.push(Op { space: Space::items(pending.apart), key: pending.item_key, value, is_new: pending.is_new });
        }
        // Its room is kept.
        self.items = items;
        for (number, bound) in (0..).zip(self.sheaves.drain(..)).filter(|(_, bound)| bound.is_stored) {
            let Bound { sheaf, is_there, expires, .. } = bound;
            let key = sheaf::key(&sheaf.shared, sequence, number);
            crowds.lead_to_sheaf(&mut ops, &sheaf, &key, (sequence, number), expires);
            crowds.expire(expires, key.clone());
            ops.push(Op { space: Space::Apart, key, value: Some(sheaf.value(&is_there)), is_new: true });
        }
        crowds.write(&mut ops, listed, sequence);
        let gone = |space| move |key| Op { space, key, value: None, is_new: false };
        ops.extend(self.entries_gone.drain(..).chain(self.lists_done.drain(..)).map(gone(Space::Index)));
        ops.extend(self.sheaves_done.drain(..).map(gone(Space::Apart)));
        Ok(ops)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
        let (mut group, no_tables) = (Group::default(), Tables::new(&[], BTreeMap::new()));
        changes.into_iter().for_each(|change| group.add(change));
        let ops = group
            .take(&no_tables, &mut Listed::default(), 1)
            .unwrap()
            .into_iter()
            .filter(|op| op.space == Space::Index);
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
