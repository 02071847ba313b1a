//! What was committed and is not in tables yet: sorted, in memory, and in the log.
//!
//! Commits go into the newest sheet. When that is large it is closed, `settle` writes it into fjall's tables in one go,
//! and only then it goes. fjall's own memtables are passed by: a sheet costs a fraction of what they cost, because one
//! thread writes it, and because it knows which entries were made in it. What is made and removed again within one sheet,
//! as a message of a queue that is received at once, leaves nothing behind for the tables.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Bound;
use std::sync::Arc;

use fjall::Slice;

use super::log::Segment;

/// Bytes that an entry takes in memory besides those of its key and value, about.
const ENTRY_BYTES: usize = 160;

/// Where an entry belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Items,
    Index,
    /// Items of tables whose keys come in order: their files need no sorting in.
    Apart,
}

impl Space {
    /// The order in which a sheet goes into tables: the items, among which stands the number of the last commit, when
    /// all else is there.
    pub const SETTLED: [Self; 3] = [Self::Index, Self::Apart, Self::Items];
    /// The order of their numbers, in the log and in backups.
    pub const NUMBERED: [Self; 3] = [Self::Items, Self::Index, Self::Apart];

    pub const fn items(apart: bool) -> Self {
        if apart { Self::Apart } else { Self::Items }
    }

    pub const fn number(self) -> u8 {
        match self {
            Self::Items => 0,
            Self::Index => 1,
            Self::Apart => 2,
        }
    }

    pub fn numbered(number: u8) -> Option<Self> {
        Self::NUMBERED.get(usize::from(number)).copied()
    }
}

/// One change of a commit.
#[derive(Debug, Clone)]
pub struct Op {
    pub space: Space,
    pub key: Slice,
    /// What stands under the key from now on; `None` removes it.
    pub value: Option<Slice>,
    /// Whether nothing stood there before, for certain.
    pub is_new: bool,
}

/// A key that is mostly compared without a look at where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SheetKey {
    /// The first bytes, as a number of the same order.
    start: u128,
    key: Slice,
}

impl SheetKey {
    fn new(key: Slice) -> Self {
        let start = key.first_chunk().copied().unwrap_or_else(|| {
            let mut start = [0; 16];
            start.iter_mut().zip(&*key).for_each(|(place, byte)| *place = *byte);
            start
        });
        Self { start: u128::from_be_bytes(start), key }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    value: Option<Slice>,
    /// Whether nothing stands under the key in what lies below this sheet.
    is_new: bool,
}

/// Some commits, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Sheet {
    spaces: [BTreeMap<SheetKey, Entry>; 3],
    bytes: usize,
    /// Where the same stands on disk.
    pub segments: Vec<Arc<Segment>>,
}

/// All that is not in tables yet.
#[derive(Debug, Clone, Default)]
pub struct Front {
    /// What commits go into.
    pub open: Sheet,
    /// Closed ones, the oldest first.
    pub closed: Vec<Arc<Sheet>>,
}

impl Front {
    /// What stands under a key: `None` if only the tables know, `Some(None)` if it was removed.
    pub fn get(&self, space: Space, key: &Slice) -> Option<Option<Slice>> {
        let key = SheetKey::new(key.clone());
        self.sheets().find_map(|sheet| sheet.space(space).get(&key)).map(|entry| entry.value.clone())
    }

    /// The sheets, the newest first.
    pub fn sheets(&self) -> impl Iterator<Item = &Sheet> {
        std::iter::once(&self.open).chain(self.closed.iter().rev().map(|sheet| &**sheet))
    }

    /// Closes the open sheet, for `segment` to follow.
    pub fn close(&mut self, segment: Arc<Segment>) -> Arc<Sheet> {
        let closed = Arc::new(std::mem::take(&mut self.open));
        self.closed.push(Arc::clone(&closed));
        self.open.segments.push(segment);
        closed
    }
}

impl Sheet {
    fn space(&self, space: Space) -> &BTreeMap<SheetKey, Entry> {
        let [items, index, apart] = &self.spaces;
        match space {
            Space::Items => items,
            Space::Index => index,
            Space::Apart => apart,
        }
    }

    fn space_mut(&mut self, space: Space) -> &mut BTreeMap<SheetKey, Entry> {
        let [items, index, apart] = &mut self.spaces;
        match space {
            Space::Items => items,
            Space::Index => index,
            Space::Apart => apart,
        }
    }

    /// Bytes in memory, about.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.spaces.iter().all(BTreeMap::is_empty)
    }

    pub fn apply(&mut self, ops: impl Iterator<Item = Op>) {
        for Op { space, key, value, is_new } in ops {
            let cost = |value: &Option<Slice>| value.as_ref().map_or(0, |value| value.len());
            let own = key.len() + ENTRY_BYTES;
            let mut bytes = self.bytes;
            match self.space_mut(space).entry(SheetKey::new(key)) {
                btree_map::Entry::Vacant(place) => {
                    // Nothing was there, and nothing is to be there: nobody need know.
                    if value.is_some() || !is_new {
                        bytes += own + cost(&value);
                        place.insert(Entry { value, is_new });
                    }
                }
                btree_map::Entry::Occupied(mut place) if value.is_some() || !place.get().is_new => {
                    bytes += cost(&value);
                    bytes -= cost(&std::mem::replace(&mut place.get_mut().value, value));
                }
                btree_map::Entry::Occupied(place) => bytes -= own + cost(&place.remove().value),
            }
            self.bytes = bytes;
        }
    }

    /// The entries of a range in a direction, removed ones included.
    pub fn range(
        &self,
        space: Space,
        low: &[u8],
        high: &[u8],
        descending: bool,
    ) -> Option<impl Iterator<Item = (Slice, Option<Slice>)> + use<'_>> {
        let bound = |key: &[u8]| SheetKey::new(Slice::from(key));
        let (low, high) = (bound(low), bound(high));
        if low >= high {
            return None;
        }
        let mut range = self.space(space).range((Bound::Included(low), Bound::Excluded(high)));
        let next = move || if descending { range.next_back() } else { range.next() };
        Some(std::iter::from_fn(next).map(|(key, entry)| (key.key.clone(), entry.value.clone())))
    }

    /// All entries of a space in their order, removed ones included.
    pub fn all(&self, space: Space) -> impl Iterator<Item = (&Slice, Option<&Slice>)> {
        self.space(space).iter().map(|(key, entry)| (&key.key, entry.value.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(key: &str, value: Option<&str>, is_new: bool) -> Op {
        let (key, value) = (Slice::from(key), value.map(Slice::from));
        Op { space: Space::Items, key, value, is_new }
    }

    fn keys(sheet: &Sheet) -> Vec<(String, bool)> {
        let text = |key: &Slice| String::from_utf8_lossy(key).into_owned();
        sheet.all(Space::Items).map(|(key, value)| (text(key), value.is_some())).collect()
    }

    #[test]
    fn what_was_made_here_and_removed_leaves_nothing() {
        let mut sheet = Sheet::default();
        sheet.apply([op("a", Some("1"), true), op("b", Some("1"), false), op("c", None, false)].into_iter());
        sheet.apply([op("a", Some("2"), false), op("d", None, true)].into_iter());
        let full = sheet.bytes();
        sheet.apply([op("a", None, false), op("b", None, false)].into_iter());
        assert_eq!(keys(&sheet), [("b".to_owned(), false), ("c".to_owned(), false)]);
        assert!(sheet.bytes() < full);
        // Removed here, so what lies below it must stay hidden, whatever happens next.
        sheet.apply([op("c", Some("3"), true), op("c", None, false)].into_iter());
        assert_eq!(keys(&sheet), [("b".to_owned(), false), ("c".to_owned(), false)]);
        let (mut sheet, whole) = (Sheet::default(), [op("a", Some("1"), true), op("a", None, false)]);
        sheet.apply(whole.into_iter());
        assert!(sheet.is_empty() && sheet.bytes() == 0);
    }

    #[test]
    fn keys_are_in_the_order_of_their_bytes() {
        let long = "x".repeat(16);
        let sorted = ["", "\0", "\0\0", "a", "a\0", "a\0b", &long, &format!("{long}\0"), &format!("{long}a"), "y"];
        let mut sheet = Sheet::default();
        sheet.apply(sorted.iter().rev().map(|key| op(key, Some("v"), true)));
        assert!(keys(&sheet).iter().map(|(key, _)| key.as_str()).eq(sorted));
        let range = |low: &str, high: &str, descending| {
            let range = sheet.range(Space::Items, low.as_bytes(), high.as_bytes(), descending);
            range.into_iter().flatten().map(|(key, _)| String::from_utf8_lossy(&key).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(range("a", &long, false), ["a", "a\0", "a\0b"]);
        assert_eq!(
            range("a\0", "y", true),
            [format!("{long}a"), format!("{long}\0"), long.clone(), "a\0b".into(), "a\0".into()]
        );
        assert_eq!((range("b", "b", false), range("y", "a", true)), (vec![], vec![]));
    }

    #[test]
    fn the_newest_sheet_answers() {
        let mut front = Front::default();
        front.open.apply([op("a", Some("1"), true), op("b", Some("1"), true)].into_iter());
        front.closed.push(Arc::new(std::mem::take(&mut front.open)));
        front.open.apply([op("a", None, false)].into_iter());
        let get = |key: &str| front.get(Space::Items, &Slice::from(key));
        assert_eq!((get("a"), get("b"), get("c")), (Some(None), Some(Some(Slice::from("1"))), None));
        assert_eq!(front.get(Space::Index, &Slice::from("b")), None);
    }
}
