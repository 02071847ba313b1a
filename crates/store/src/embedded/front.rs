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

use super::database::SEQUENCE_KEY;
use super::log::Segment;

/// Bytes that an entry takes in memory besides those of its key and value, about.
const ENTRY_BYTES: usize = 200;

/// One in so many of the items that are kept apart stays behind when a sheet is closed: those with the last keys, among
/// which items that are under way at that moment have their places. Without them a sheet's tables lie behind all earlier
/// ones, and fjall need not merge them with any.
const STAYING: usize = 8;

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

/// Notes the number of the last commit that is settled with what it is written with.
pub fn sequence_op(sequence: u64) -> Op {
    let value = Some(Slice::from(sequence.to_be_bytes()));
    Op { space: Space::Items, key: SEQUENCE_KEY.into(), value, is_new: false }
}

/// A key that is mostly compared without a look at where its bytes are, which lie all over the memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SheetKey {
    /// The first bytes, as numbers of the same order: enough to tell entries of an index apart that have their partition and
    /// their moment in common.
    start: [u128; STARTS],
    key: Slice,
}

/// Numbers that the start of a key makes.
const STARTS: usize = 3;

impl SheetKey {
    fn new(key: Slice) -> Self {
        let mut start = [0; STARTS];
        for (number, bytes) in start.iter_mut().zip(key.chunks(size_of::<u128>())) {
            let whole = bytes.first_chunk().copied().unwrap_or_else(|| {
                let mut whole = [0; size_of::<u128>()];
                whole.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
                whole
            });
            *number = u128::from_be_bytes(whole);
        }
        Self { start, key }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    value: Option<Slice>,
    /// Whether nothing stands under the key in what lies below this sheet.
    is_new: bool,
    /// Whether it has stayed behind when the sheet of its commit was closed, which it may do once.
    has_stayed: bool,
}

/// Some commits, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Sheet {
    spaces: [BTreeMap<SheetKey, Entry>; 3],
    bytes: usize,
    /// Where the same stands on disk; the last one is that of its own commits.
    pub segments: Vec<Arc<Segment>>,
    /// The last commit before its own.
    before: u64,
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

    /// Closes the open sheet, which ends with the commit `sequence`, for `segment` to follow.
    pub fn close(&mut self, segment: Arc<Segment>, sequence: u64) -> Arc<Sheet> {
        let closed = std::mem::take(&mut self.open);
        self.follow(closed, segment, sequence)
    }

    /// The same while commits go on: the last of what is kept apart stays, and with it the log of its commits.
    pub fn close_most(&mut self, segment: Arc<Segment>, sequence: u64) -> Arc<Sheet> {
        let mut closed = std::mem::take(&mut self.open);
        closed.leave_last(&mut self.open, sequence);
        self.follow(closed, segment, sequence)
    }

    fn follow(&mut self, closed: Sheet, segment: Arc<Segment>, sequence: u64) -> Arc<Sheet> {
        let closed = Arc::new(closed);
        self.closed.push(Arc::clone(&closed));
        self.open.segments.push(segment);
        self.open.before = sequence;
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
                        place.insert(Entry { value, is_new, has_stayed: false });
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

    /// Moves the last of what is kept apart to the sheet that follows, unless it has been moved before. Its commits do not
    /// count as settled with this sheet then, but are to be read again after a crash, and their log goes with it.
    fn leave_last(&mut self, next: &mut Self, sequence: u64) {
        let staying = self.space(Space::Apart).len() / STAYING;
        let first = staying.checked_sub(1).and_then(|before| self.space(Space::Apart).keys().nth_back(before)).cloned();
        let Some(first) = first else { return };
        for (key, mut entry) in self.space_mut(Space::Apart).split_off(&first) {
            let bytes = key.key.len() + ENTRY_BYTES + entry.value.as_ref().map_or(0, |value| value.len());
            let place = if std::mem::replace(&mut entry.has_stayed, true) {
                &mut *self
            } else {
                self.bytes -= bytes;
                next.bytes += bytes;
                &mut *next
            };
            place.space_mut(Space::Apart).insert(key, entry);
        }
        if next.space(Space::Apart).is_empty() {
            return;
        }
        next.segments.extend(self.segments.pop());
        self.apply(std::iter::once(sequence_op(self.before)));
        next.apply(std::iter::once(sequence_op(sequence)));
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

    #[test]
    fn the_last_of_what_is_kept_apart_stays_once() {
        let log = || Arc::new(Segment::nowhere());
        let apart = |n: usize| {
            let (key, value) = (Slice::from(format!("{n:02}").as_bytes()), Some(Slice::from("v")));
            Op { space: Space::Apart, key, value, is_new: true }
        };
        let shown = |sheet: &Sheet| {
            let text = |(key, _): (&Slice, _)| String::from_utf8_lossy(key).into_owned();
            sheet.all(Space::Apart).map(text).collect::<Vec<_>>().join(" ")
        };
        let settled = |sheet: &Sheet| {
            let found = sheet.all(Space::Items).find(|(key, _)| ***key == *SEQUENCE_KEY);
            found.and_then(|(_, value)| value?.first_chunk().copied()).map(u64::from_be_bytes)
        };
        let mut front = Front::default();
        front.open.segments.push(log());
        front.open.apply((0..16).map(apart).chain([op("item", Some("v"), true), sequence_op(7)]));
        let whole = front.open.bytes();
        let first = front.close_most(log(), 7);
        assert_eq!(shown(&first), "00 01 02 03 04 05 06 07 08 09 10 11 12 13");
        assert_eq!((shown(&front.open), keys(&front.open).len()), ("14 15".to_owned(), 1), "and the number");
        // Its commits are not settled, so their log goes with what stays.
        assert_eq!((settled(&first), settled(&front.open)), (Some(0), Some(7)));
        assert_eq!((first.segments.len(), front.open.segments.len()), (0, 2));
        let number = SEQUENCE_KEY.len() + ENTRY_BYTES + 8;
        assert_eq!(first.bytes() + front.open.bytes(), whole + number);
        // What has stayed goes, though it is the last again.
        front.open.apply([8, 9, 10, 11, 12, 13].map(apart).into_iter().chain([sequence_op(9)]));
        let second = front.close_most(log(), 9);
        assert_eq!((shown(&second), shown(&front.open)), ("08 09 10 11 12 13 14 15".to_owned(), String::new()));
        assert_eq!((settled(&second), second.segments.len(), front.open.segments.len()), (Some(9), 2, 1));
        front.open.apply((16..24).map(apart).chain([sequence_op(11)]));
        let third = front.close_most(log(), 11);
        assert_eq!((shown(&front.open), settled(&third)), ("23".to_owned(), Some(9)), "the commits before its own");
        let last = front.close(log(), 11);
        assert_eq!((shown(&last), settled(&last), last.segments.len()), ("23".to_owned(), Some(11), 2));
        assert!(front.open.is_empty());
    }
}
