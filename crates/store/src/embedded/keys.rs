//! Keys as bytes whose order is the order of the keys.
//!
//! Item: table id, partition, sort. Index entry: index id, its partition and sort, then the item's partition
//! and sort. Expiry entry: second, then the item's whole key. Ids are assigned once and kept (`layout`).
//! Each part says where it ends, so that no partition's keys lie among another's.

use crate::item::{Key, KeyValue};
use crate::number::Number;
use crate::query::Range;
use crate::table::KeyKind;

/// Marks a zero byte inside text, where a bare zero would end it.
const ESCAPED: u8 = 0xFF;
const END: u8 = 0x01;

/// The id under which expiry entries stand among the index entries.
pub const EXPIRY: u16 = 0;

pub fn put(out: &mut Vec<u8>, value: &KeyValue) {
    match value {
        KeyValue::S(text) => put_text(out, text.as_bytes()),
        KeyValue::B(bytes) => put_text(out, bytes),
        KeyValue::N(number) => {
            out.extend(number.to_sortable());
            return;
        }
    }
    out.extend([0, END]);
}

fn put_text(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(ESCAPED);
        }
    }
}

fn put_key(out: &mut Vec<u8>, key: &Key) {
    put(out, &key.partition);
    if let Some(sort) = &key.sort {
        put(out, sort);
    }
}

/// The bytes of an item's key.
pub fn item(table: u16, key: &Key) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend(table.to_be_bytes());
    put_key(&mut out, key);
    out
}

/// The bytes of an index entry: `entry` is the key in the index, `own` the key in the table.
pub fn index_entry(index: u16, entry: &Key, own: &Key) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend(index.to_be_bytes());
    put_key(&mut out, entry);
    put_key(&mut out, own);
    out
}

/// The bytes of an expiry entry for the item with the key bytes `item`.
pub fn expiry_entry(second: i64, item: &[u8]) -> Vec<u8> {
    let mut out = expiry_bound(second);
    out.extend_from_slice(item);
    out
}

/// Where the expiry entries of `second` start.
pub fn expiry_bound(second: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend(EXPIRY.to_be_bytes());
    // Flipping the sign bit gives negative seconds the smaller bytes.
    out.extend((second.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    out
}

/// The item key inside an expiry entry.
pub fn item_of_expiry(entry: &[u8]) -> Option<&[u8]> {
    entry.get(10..)
}

/// The item key bytes at the end of an index entry; `kinds` are the types of the index's own key parts.
pub fn item_of_index_entry(table: u16, entry: &[u8], kinds: &[KeyKind]) -> Option<Vec<u8>> {
    let mut rest = entry.get(2..)?;
    for kind in kinds {
        rest = rest.get(part_len(rest, *kind)?..)?;
    }
    let mut out = Vec::with_capacity(2 + rest.len());
    out.extend(table.to_be_bytes());
    out.extend_from_slice(rest);
    Some(out)
}

fn part_len(bytes: &[u8], kind: KeyKind) -> Option<usize> {
    if kind == KeyKind::N {
        return Number::from_sortable(bytes).map(|(_, len)| len);
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
fn after_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
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
    fn index_entries_lead_back_to_their_item() {
        let own = Key::with_sort("p\0", -7);
        let entry = Key::with_sort(12_i64, "x\0y");
        let bytes = index_entry(9, &entry, &own);
        assert_eq!(item_of_index_entry(3, &bytes, &[KeyKind::N, KeyKind::S]).unwrap(), item(3, &own));
    }

    #[test]
    fn expiry_entries_are_in_the_order_of_time() {
        let entries = [i64::MIN, -1, 0, 1, 1_702_387_200, i64::MAX].map(|second| expiry_entry(second, b"key"));
        assert!(entries.is_sorted());
        assert_eq!(item_of_expiry(&entries[0]), Some(&b"key"[..]));
    }
}
