//! Keys as bytes whose order is the order of the keys.
//!
//! Item: table id, partition, sort. Index entry: index id, its partition and sort, then the item's partition
//! and sort (the latter left out where the index sorts by the same attribute). Entry list: what its entries start
//! with, commit, part. Expiry list: second, commit, part.
//! Ids are assigned once and kept (`layout`). Each part of a key says where it ends, so that no partition's keys
//! lie among another's.

use fjall::Slice;

use super::scratch::built;
use crate::codec::{self, Encoded};
use crate::item::{Item, Key, KeyValue, Value};
use crate::number::Number;
use crate::query::Range;
use crate::table::{Index, KeyKind, Table};
use crate::write::Change;

/// Marks a zero byte inside text, where a bare zero would end it.
const ESCAPED: u8 = 0xFF;
const END: u8 = 0x01;

/// The id under which expiry lists stand among the index entries.
pub const EXPIRY: u16 = 0;

pub fn put(out: &mut Vec<u8>, value: &KeyValue) {
    match value {
        KeyValue::S(text) => put_text(out, text.as_bytes()),
        KeyValue::B(bytes) => put_text(out, bytes),
        KeyValue::N(number) => {
            number.put_sortable(out);
            return;
        }
    }
    out.extend([0, END]);
}

fn put_text(out: &mut Vec<u8>, bytes: &[u8]) {
    if !has_zero(bytes) {
        out.extend_from_slice(bytes);
        return;
    }
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(ESCAPED);
        }
    }
}

/// Looked at to the end, which the processor does many bytes at a time: keys are short, and hardly any has one.
fn has_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | (*byte == 0))
}

fn put_key(out: &mut Vec<u8>, key: &Key) {
    put(out, &key.partition);
    if let Some(sort) = &key.sort {
        put(out, sort);
    }
}

/// The bytes of an item's key.
pub fn item(table: u16, key: &Key) -> Slice {
    built(|out| put_item(out, table, key)).unwrap_or_default()
}

/// Appends the same.
pub fn put_item(out: &mut Vec<u8>, table: u16, key: &Key) -> Option<()> {
    out.extend(table.to_be_bytes());
    put_key(out, key);
    Some(())
}

/// Appends the key of an item, which has been checked.
pub fn put_item_of(out: &mut Vec<u8>, id: u16, table: &Table, item: &impl Parts) -> Option<()> {
    out.extend(id.to_be_bytes());
    item.put_part(out, &table.partition_attribute().0)?;
    match table.sort_attribute() {
        Some((sort, _)) => item.put_part(out, sort),
        None => Some(()),
    }
}

/// The bytes of an index entry: `entry` is the key in the index, `own` the key in the table. With `same_sort`
/// both have the same sort key, and it stands there once.
pub fn index_entry(index: u16, entry: &Key, own: &Key, same_sort: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend(index.to_be_bytes());
    put_key(&mut out, entry);
    if same_sort {
        put(&mut out, &own.partition);
    } else {
        put_key(&mut out, own);
    }
    out
}

/// The index entry of an item that has been checked, or `None` if the item is not in the index. With the `same_sort`
/// the sort key stands there once.
pub fn index_entry_of_item(id: u16, index: &Index, item: &Item, own: &OwnKey<'_>, same_sort: bool) -> Option<Slice> {
    built(|out| put_index_entry(out, id, index, item, own, same_sort))
}

/// Appends the same; if there is none, what was appended is of no use.
pub fn put_index_entry(
    out: &mut Vec<u8>,
    id: u16,
    index: &Index,
    item: &impl Parts,
    own: &OwnKey<'_>,
    same_sort: bool,
) -> Option<()> {
    out.extend(id.to_be_bytes());
    item.put_part(out, &index.partition.0)?;
    let (partition, sort) = own.parts();
    if same_sort {
        out.extend_from_slice(sort);
        out.extend_from_slice(partition);
        return Some(());
    }
    if let Some((sort, _)) = &index.sort {
        item.put_part(out, sort)?;
    }
    out.extend_from_slice(partition);
    out.extend_from_slice(sort);
    Some(())
}

/// The key of an item in bytes, taken apart.
pub struct OwnKey<'a> {
    key: &'a [u8],
    sort_at: usize,
}

impl<'a> OwnKey<'a> {
    pub fn new(table: &Table, key: &'a [u8]) -> Option<Self> {
        let sort_at = 2 + part_len(key.get(2..)?, table.partition_attribute().1)?;
        Some(Self { key, sort_at })
    }

    fn parts(&self) -> (&'a [u8], &'a [u8]) {
        let (start, sort) = self.key.split_at_checked(self.sort_at).unwrap_or((self.key, &[]));
        (start.get(2..).unwrap_or_default(), sort)
    }
}

/// An item whose attributes can be made parts of keys.
pub trait Parts {
    /// Appends the same bytes as [`put`], from the attribute itself; `None` if there is none that can stand in a key.
    fn put_part(&self, out: &mut Vec<u8>, name: &str) -> Option<()>;
}

impl Parts for Item {
    fn put_part(&self, out: &mut Vec<u8>, name: &str) -> Option<()> {
        put_value(out, self.get(name)?)
    }
}

impl Parts for Encoded<'_> {
    fn put_part(&self, out: &mut Vec<u8>, name: &str) -> Option<()> {
        match self.key_part(name)? {
            codec::KeyPart::Text(text) => {
                put_text(out, text);
                out.extend([0, END]);
            }
            codec::KeyPart::Number(sortable) => out.extend_from_slice(sortable),
        }
        Some(())
    }
}

/// An item as changes will leave it that say by themselves what keys will have of it.
pub struct Changed<'a> {
    pub before: &'a Encoded<'a>,
    pub changes: &'a [Change],
}

impl Parts for Changed<'_> {
    fn put_part(&self, out: &mut Vec<u8>, name: &str) -> Option<()> {
        match self.changes.iter().find(|change| change.name() == name) {
            Some(Change::Set(_, value)) => put_value(out, value),
            Some(_) => None,
            None => self.before.put_part(out, name),
        }
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) -> Option<()> {
    match value {
        Value::S(text) => put_text(out, text.as_bytes()),
        Value::B(bytes) => put_text(out, bytes),
        Value::N(number) => {
            number.put_sortable(out);
            return Some(());
        }
        _ => return None,
    }
    out.extend([0, END]);
    Some(())
}

/// How many bytes of an index entry it shares with the others of its list: those up to the first `bytes` bytes of the
/// sort key, which is text. `None` if the sort key is not longer than that; then the entry stands alone.
pub fn shared_len(entry: &[u8], partition: KeyKind, bytes: usize) -> Option<usize> {
    let len = start_len(entry, partition, bytes)?;
    // Neither the end of the key nor an escaped zero may be cut.
    (*entry.get(len)? != 0).then_some(len)
}

/// How many bytes of an entry, or of a bound, a list starts with whose entries may stand next to it. An entry whose sort
/// key ends there, or goes on with a zero, stands alone and below all entries of that list, but above the list itself.
pub fn start_len(entry: &[u8], partition: KeyKind, bytes: usize) -> Option<usize> {
    let start = 2 + part_len(entry.get(2..)?, partition)?;
    let shared = entry.get(start..start + bytes)?;
    (!has_zero(shared)).then_some(start + bytes)
}

/// What the keys of the lists start with whose entries start with `shared`. It sorts before all of these entries.
pub fn lists_of(shared: &[u8]) -> Vec<u8> {
    [shared, &[0, END]].concat()
}

/// The key of one part of the list of entries that start with `shared` and came in the commit `sequence`.
pub fn entry_list(shared: &[u8], sequence: u64, part: u32) -> Vec<u8> {
    [shared, &[0, END], &sequence.to_be_bytes(), &part.to_be_bytes()].concat()
}

/// What the entries of a list start with.
pub fn shared_of_list(list_key: &[u8]) -> Option<&[u8]> {
    list_key.get(..list_key.len().checked_sub(14)?)
}

/// The key of one part of the list of items that got the expiry `second` in the commit `sequence`.
pub fn expiry_list(second: i64, sequence: u64, part: u32) -> Vec<u8> {
    let mut out = expiry_bound(second);
    out.extend(sequence.to_be_bytes());
    out.extend(part.to_be_bytes());
    out
}

/// Where the expiry lists of `second` start.
pub fn expiry_bound(second: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend(EXPIRY.to_be_bytes());
    // Flipping the sign bit gives negative seconds the smaller bytes.
    out.extend((second.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    out
}

/// Adds a key, or the rest of one, to the content of a list.
pub fn put_in_list(list: &mut Vec<u8>, item_key: &[u8]) {
    list.extend(u16::try_from(item_key.len()).unwrap_or(u16::MAX).to_be_bytes());
    list.extend_from_slice(item_key);
}

/// The keys in a list; stops at damage.
pub fn keys_of_list(mut list: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = list.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        list = rest;
        Some(key)
    })
}

/// The item key bytes that an index entry leads to; `kinds` are the types of the index's own key parts, and
/// `same_sort` as in [`index_entry`].
pub fn item_of_index_entry(table: u16, entry: &[u8], kinds: &[KeyKind], same_sort: bool) -> Option<Vec<u8>> {
    let mut rest = entry.get(2..)?;
    let mut last: &[u8] = &[];
    for kind in kinds {
        (last, rest) = rest.split_at_checked(part_len(rest, *kind)?)?;
    }
    let mut out = Vec::with_capacity(2 + rest.len() + last.len());
    out.extend(table.to_be_bytes());
    out.extend_from_slice(rest);
    if same_sort {
        out.extend_from_slice(last);
    }
    Some(out)
}

fn part_len(bytes: &[u8], kind: KeyKind) -> Option<usize> {
    if kind == KeyKind::N {
        return Number::sortable_len(bytes);
    }
    let mut place = 0;
    loop {
        place += bytes.get(place..)?.iter().position(|byte| *byte == 0)?;
        if *bytes.get(place + 1)? == END {
            return Some(place + 2);
        }
        place += 2;
    }
}

/// The half-open range of bytes that a query asks for, before any cursor.
pub fn range(id: u16, partition: &KeyValue, range: &Range) -> (Vec<u8>, Vec<u8>) {
    let mut all = Vec::with_capacity(64);
    all.extend(id.to_be_bytes());
    put(&mut all, partition);
    let at = |key: &KeyValue| {
        let mut out = all.clone();
        put(&mut out, key);
        out
    };
    match range {
        Range::All => (all.clone(), after_prefix(all)),
        Range::Equal(key) => (at(key), after_prefix(at(key))),
        Range::Prefix(prefix) => {
            let mut start = all;
            put_text(&mut start, prefix.as_bytes());
            (start.clone(), after_prefix(start))
        }
        Range::Between(low, high) => (at(low), after_prefix(at(high))),
        Range::Above(low) => (after_prefix(at(low)), after_prefix(all.clone())),
        Range::AtLeast(low) => (at(low), after_prefix(all.clone())),
        Range::Below(high) => (all.clone(), at(high)),
        Range::AtMost(high) => (all.clone(), after_prefix(at(high))),
    }
}

/// The first bytes after everything that starts with `prefix`.
pub fn after_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return prefix;
        }
    }
    // Ids are never 0xFFFF, so a prefix always has a byte that can grow.
    vec![u8::MAX; 3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keys_keep_their_order_and_their_ends() {
        let texts = ["\0", "\0\0", "\0a", "\u{1}", "a", "a\0", "a\0b", "a#", "a#b", "ab", "b", "é", "\u{10FFFF}"];
        let encoded: Vec<_> = texts.iter().map(|text| item(1, &Key::with_sort(*text, "s"))).collect();
        assert!(encoded.is_sorted());
        for (text, bytes) in texts.iter().zip(&encoded) {
            let len = part_len(&bytes[2..], KeyKind::S).unwrap();
            let mut expected = Vec::new();
            put(&mut expected, &KeyValue::from(*text));
            assert_eq!(bytes[2..2 + len], expected);
        }
    }

    #[test]
    fn parts_of_keys_are_the_same_wherever_they_are_taken_from() {
        let number: Number = "-12.5e10".parse().unwrap();
        let item = Item::new().with("b", vec![0, 1, 255]).with("n", number).with("s", "a\0b").with("x", true);
        let bytes = codec::encode(&item);
        let encoded = Encoded::read(&bytes).unwrap();
        let changed = Changed { before: &encoded, changes: &[Change::Remove("x".into())] };
        let all = item.0.iter().map(|(name, value)| Change::Set(name.clone(), value.clone())).collect::<Vec<_>>();
        let nothing = codec::encode(&Item::new());
        let set = Changed { before: &Encoded::read(&nothing).unwrap(), changes: &all };
        for name in ["b", "n", "s", "x", "none"] {
            let part = |item: &dyn Parts| {
                let mut out = Vec::new();
                item.put_part(&mut out, name).map(|()| out)
            };
            let one = part(&item);
            assert_eq!([part(&encoded), part(&changed), part(&set)], [one.clone(), one.clone(), one.clone()]);
            if let Some(value) = item.get(name).and_then(KeyValue::from_value) {
                let mut key = Vec::new();
                put(&mut key, &value);
                assert_eq!(one, Some(key));
            }
        }
    }

    #[test]
    fn index_entries_lead_back_to_their_item() {
        let own = Key::with_sort("p\0", -7);
        let entry = Key::with_sort(12_i64, "x\0y");
        let bytes = index_entry(9, &entry, &own, false);
        assert_eq!(item_of_index_entry(3, &bytes, &[KeyKind::N, KeyKind::S], false).unwrap(), item(3, &own).to_vec());
        let entry = Key::with_sort(12_i64, -7);
        let bytes = index_entry(9, &entry, &own, true);
        assert_eq!(item_of_index_entry(3, &bytes, &[KeyKind::N, KeyKind::N], true).unwrap(), item(3, &own).to_vec());
    }

    #[test]
    fn lists_stand_before_their_entries_and_after_others() {
        let entry = |sort: &str| index_entry(9, &Key::with_sort("p\0", sort), &Key::with_sort("day", sort), true);
        let shared = |sort: &str| shared_len(&entry(sort), KeyKind::S, 4);
        let len = shared("12:3456").unwrap();
        assert_eq!((shared("12:3"), shared("12:"), shared("1\0:34"), shared("12:3\0")), (None, None, None, None));
        let list = entry_list(&entry("12:3456")[..len], 7, 0);
        assert_eq!(shared_of_list(&list).unwrap(), &entry("12:3456")[..len]);
        assert!(list.starts_with(&lists_of(&entry("12:3999")[..len])));
        assert!(entry("12:2999") < list && list < entry("12:3\u{1}") && list < entry("12:3000"));
    }

    #[test]
    fn expiry_lists_are_in_the_order_of_time() {
        let keys = [i64::MIN, -1, 0, 1, 1_702_387_200, i64::MAX].map(|second| expiry_list(second, 7, 0));
        assert!(keys.is_sorted());
        let mut list = Vec::new();
        for key in [&b"one"[..], b"", b"three"] {
            put_in_list(&mut list, key);
        }
        assert_eq!(keys_of_list(&list).collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
        assert_eq!(keys_of_list(&list[..list.len() - 1]).count(), 2);
    }
}
