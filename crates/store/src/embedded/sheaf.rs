//! Sheaves: new items that came together, packed where they were made, and from then on one entry.
//!
//! Items of one call whose keys start alike (`Table::lists`) would each cost the log, the memory and the tables an entry of
//! its own, and are read together if at all. Key: what their keys start with, `FF`, which is in no text, so that a sheaf stands
//! right behind its items, number of the commit, number in it, `FF`, with which no item's key ends. Value: how many of the
//! items are not there, and their places; then whether it is packed, the length, and for each item the rest of its key and its
//! bytes.
//!
//! A sheaf never changes. An item that is written again stands alone, and counts; one that is removed leaves a *hole*, an entry
//! without bytes that hides what the sheaf has of it. Both go as items do, the sheaf when the last of its items expires.

use byteview::ByteView;
use fjall::Slice;

use crate::Error;
use crate::codec::{Reader, put_len};

/// Fewer items stand alone.
pub const LEAST: usize = 4;
/// Items of a sheaf at the most: who wants one of them unpacks all. A larger item stands alone.
pub const MOST: usize = 1000;
pub const ITEM_BYTES: usize = 16 * 1024;
/// Bytes of a sheaf at which the next one begins.
pub const BYTES: usize = 64 * 1024;
/// No sheaf has more: the last item, and the keys of all.
const LONGEST: usize = 16 * BYTES;

const MARK: u8 = 0xFF;
const PLAIN: u8 = 0;
const PACKED: u8 = 1;

/// Items that may be stored as one.
pub struct Sheaf {
    /// The place of their table.
    pub table: usize,
    /// What their keys start with.
    pub shared: Slice,
    /// The value with all of them.
    pub value: Slice,
    pub count: usize,
    /// The indexes that lead to all of them alike, a bit for each, and what their lists start with.
    pub alike: u64,
    pub lists: Vec<Slice>,
}

/// Which item of which sheaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub sheaf: usize,
    pub item: usize,
}

/// What the keys of the sheaves begin with whose items' keys begin with `shared`.
pub fn sheaves_of(shared: &[u8]) -> Vec<u8> {
    [shared, &[MARK]].concat()
}

pub fn key(shared: &[u8], sequence: u64, number: u32) -> Slice {
    [shared, &[MARK], &sequence.to_be_bytes(), &number.to_be_bytes(), &[MARK]].concat().into()
}

/// Whether an entry among the items of a table that has sheaves is one.
pub fn is_key(key: &[u8]) -> bool {
    key.last() == Some(&MARK)
}

/// What the keys of a sheaf's items start with.
pub fn shared_of(key: &[u8]) -> Option<&[u8]> {
    key.get(..key.len().checked_sub(14)?)
}

impl Sheaf {
    /// The value with those of the items that are there.
    pub fn value(&self, is_there: &[bool]) -> Slice {
        let missing: Vec<usize> =
            (0..self.count).filter(|place| !is_there.get(*place).copied().unwrap_or_default()).collect();
        if missing.is_empty() {
            return self.value.clone();
        }
        let mut value = Vec::with_capacity(self.value.len() + 1 + 2 * missing.len());
        put_len(&mut value, missing.len());
        missing.into_iter().for_each(|place| put_len(&mut value, place));
        value.extend_from_slice(self.value.get(1..).unwrap_or_default());
        value.into()
    }
}

/// The items of a sheaf: the rest of the key of each, and its bytes.
pub fn items(value: &[u8]) -> Result<Vec<(Slice, Slice)>, Error> {
    read(value).ok_or_else(|| Error::Corrupt(format!("a sheaf of {} bytes cannot be read", value.len())))
}

fn read(value: &[u8]) -> Option<Vec<(Slice, Slice)>> {
    let mut head = Reader { rest: value };
    let missing = head.len().filter(|count| *count <= MOST)?;
    let missing = (0..missing).map(|_| head.len()).collect::<Option<Vec<_>>>()?;
    let kind = head.byte()?;
    let len = head.len().filter(|len| *len <= LONGEST)?;
    let all = match kind {
        PLAIN => head.rest.to_vec(),
        PACKED => lz4_flex::block::decompress(head.rest, len).ok()?,
        _ => return None,
    };
    if all.len() != len {
        return None;
    }
    let whole = ByteView::from(&*all);
    let mut reader = Reader { rest: &all };
    let mut part = || {
        let bytes = reader.bytes()?;
        let end = all.len() - reader.rest.len();
        Some(Slice::from(whole.slice(end - bytes.len()..end)))
    };
    let (mut items, mut missing) = (Vec::new(), missing.into_iter().peekable());
    for place in 0.. {
        let Some(rest) = part() else { break };
        let item = part()?;
        if missing.next_if_eq(&place).is_none() {
            items.push((rest, item));
        }
    }
    (reader.rest.is_empty() && missing.next().is_none()).then_some(items)
}

/// The value of a sheaf with all its items.
pub fn packed(all: &[u8]) -> Slice {
    let mut value = Vec::with_capacity(16 + lz4_flex::block::get_maximum_output_size(all.len()));
    value.extend([0, PACKED]);
    put_len(&mut value, all.len());
    let start = value.len();
    value.resize(value.capacity(), 0);
    let place = value.get_mut(start..).unwrap_or_default();
    match lz4_flex::block::compress_into(all, place) {
        Ok(len) if len < all.len() => value.truncate(start + len),
        // There is nothing to be gained by it.
        _ => {
            value.truncate(start);
            if let Some(kind) = value.get_mut(1) {
                *kind = PLAIN;
            }
            value.extend_from_slice(all);
        }
    }
    value.into()
}
