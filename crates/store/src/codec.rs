//! Items as bytes: a version, then names and tagged values, lengths as varints.

mod encoded;
mod patch;

use std::cell::RefCell;
use std::cmp::Ordering;

use rustc_hash::FxHashSet;

use crate::attributes::Attributes;
use crate::item::{Item, Name, Value};
use crate::number::Number;
use crate::table::KeyKind;
use crate::{Error, limits};
pub(crate) use encoded::{Encoded, KeyPart};
pub(crate) use patch::patch_into;

const VERSION: u8 = 1;

pub(crate) const TAG_STRING: u8 = b'S';
const TAG_NUMBER: u8 = b'N';
const TAG_BYTES: u8 = b'B';
const TAG_TRUE: u8 = b'1';
const TAG_FALSE: u8 = b'0';
const TAG_NULL: u8 = b'_';
pub(crate) const TAG_LIST: u8 = b'L';
pub(crate) const TAG_MAP: u8 = b'M';

/// The bytes of an item.
#[must_use]
pub fn encode(item: &Item) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(&mut out, item);
    out
}

/// The same at the end of a buffer.
pub(crate) fn encode_into(out: &mut Vec<u8>, item: &Item) {
    out.push(VERSION);
    put_map(out, &item.0);
}

/// Begins an item of a few attributes, each of which is put there by its name and its value; [`set_count`] ends it.
pub(crate) fn begin(out: &mut Vec<u8>) {
    out.extend([VERSION, 0]);
}

/// Says how many attributes an item has that was begun at the start of these bytes: fewer than fill a byte's seven bits.
pub(crate) fn set_count(bytes: &mut [u8], count: u8) -> Option<()> {
    *bytes.get_mut(1)? = count;
    Some(())
}

/// An attribute of an item as text, if it is a string, where it stands.
pub(crate) fn text_in<'a>(bytes: &'a [u8], name: &str) -> Option<&'a str> {
    let mut reader = value_in(bytes, name)?;
    if reader.byte()? == TAG_STRING { std::str::from_utf8(reader.bytes()?).ok() } else { None }
}

/// Whether an item has an attribute of that name.
pub(crate) fn has(bytes: &[u8], name: &str) -> bool {
    value_in(bytes, name).is_some()
}

/// What stands behind the name of an attribute. Names are in order, so that none is looked for behind its place.
fn value_in<'a>(bytes: &'a [u8], name: &str) -> Option<Reader<'a>> {
    let mut reader = Reader { rest: bytes.strip_prefix(&[VERSION])? };
    for _ in 0..reader.len()? {
        match reader.bytes()?.cmp(name.as_bytes()) {
            Ordering::Less => reader.skip(0)?,
            Ordering::Equal => return Some(reader),
            Ordering::Greater => return None,
        }
    }
    None
}

/// The type of a value that can stand in a key.
pub(crate) fn kind_of(value: &[u8]) -> Option<KeyKind> {
    match *value.first()? {
        TAG_STRING => Some(KeyKind::S),
        TAG_NUMBER => Some(KeyKind::N),
        TAG_BYTES => Some(KeyKind::B),
        _ => None,
    }
}

/// The item that [`encode`] made these bytes of; anything else is an error, never a panic.
pub fn decode(bytes: &[u8]) -> Result<Item, Error> {
    let mut reader = Reader { rest: bytes };
    let item = match reader.byte() {
        Some(VERSION) => reader.map(0).filter(|_| reader.rest.is_empty()),
        _ => None,
    };
    item.map(Item).ok_or_else(|| unreadable(bytes))
}

fn unreadable(bytes: &[u8]) -> Error {
    Error::Corrupt(format!("an item of {} bytes cannot be read", bytes.len()))
}

pub(crate) fn put_len(out: &mut Vec<u8>, mut len: usize) {
    while len >= 0x80 {
        out.push(u8::try_from(len & 0x7F).unwrap_or(0) | 0x80);
        len >>= 7;
    }
    out.push(u8::try_from(len).unwrap_or(0));
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_map(out: &mut Vec<u8>, map: &Attributes) {
    put_len(out, map.len());
    for (name, value) in map {
        put_bytes(out, name.as_bytes());
        put_value(out, value);
    }
}

pub(crate) fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::S(text) => {
            out.push(TAG_STRING);
            put_bytes(out, text.as_bytes());
        }
        Value::N(number) => {
            out.push(TAG_NUMBER);
            number.put_sortable(out);
        }
        Value::B(bytes) => {
            out.push(TAG_BYTES);
            put_bytes(out, bytes);
        }
        Value::Bool(true) => out.push(TAG_TRUE),
        Value::Bool(false) => out.push(TAG_FALSE),
        Value::Null => out.push(TAG_NULL),
        Value::L(list) => {
            out.push(TAG_LIST);
            put_len(out, list.len());
            list.iter().for_each(|value| put_value(out, value));
        }
        Value::M(map) => {
            out.push(TAG_MAP);
            put_map(out, map);
        }
    }
}

/// Names that a thread knows, at the most, and their bytes.
const KNOWN_NAMES: usize = 1000;
const KNOWN_BYTES: usize = 40;

/// The name of an attribute. There are few, and they are read over and over: each is kept once for good.
fn known(name: &str) -> Name {
    thread_local! {
        static NAMES: RefCell<FxHashSet<&'static str>> = RefCell::default();
    }
    if name.len() > KNOWN_BYTES {
        return Name::Owned(name.to_owned());
    }
    NAMES.with_borrow_mut(|names| match names.get(name) {
        Some(known) => Name::Borrowed(known),
        None if names.len() < KNOWN_NAMES => {
            let kept: &'static str = Box::leak(Box::from(name));
            names.insert(kept);
            Name::Borrowed(kept)
        }
        None => Name::Owned(name.to_owned()),
    })
}

pub(crate) struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub fn len(&mut self) -> Option<usize> {
        let mut len = 0_usize;
        for shift in (0..).step_by(7).take(5) {
            let byte = self.byte()?;
            len |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(len);
            }
        }
        None
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.len()?;
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        Some(std::str::from_utf8(self.bytes()?).ok()?.to_owned())
    }

    fn map(&mut self, depth: usize) -> Option<Attributes> {
        let len = self.len()?;
        // In order as they stand. No more than the few of an item are reserved for: see below.
        let mut entries = Vec::with_capacity(len.min(16));
        for _ in 0..len {
            let name = std::str::from_utf8(self.bytes()?).ok()?;
            // An item's own attributes are named by the program; what is inside them may be named by anybody.
            let name = if depth == 0 { known(name) } else { Name::Owned(name.to_owned()) };
            entries.push((name, self.value(depth)?));
        }
        Some(Attributes::from_vec(entries))
    }

    /// Passes over a value.
    fn skip(&mut self, depth: usize) -> Option<()> {
        if depth > limits::NESTING {
            return None;
        }
        match self.byte()? {
            TAG_STRING | TAG_BYTES => drop(self.bytes()?),
            TAG_NUMBER => {
                let len = Number::sortable_len(self.rest)?;
                self.rest = self.rest.get(len..)?;
            }
            TAG_TRUE | TAG_FALSE | TAG_NULL => {}
            tag @ (TAG_LIST | TAG_MAP) => {
                for _ in 0..self.len()? {
                    if tag == TAG_MAP {
                        self.bytes()?;
                    }
                    self.skip(depth + 1)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > limits::NESTING {
            return None;
        }
        Some(match self.byte()? {
            TAG_STRING => Value::S(self.text()?),
            TAG_NUMBER => {
                let (number, len) = Number::from_sortable(self.rest)?;
                self.rest = self.rest.get(len..)?;
                Value::N(number)
            }
            TAG_BYTES => Value::B(self.bytes()?.to_vec()),
            TAG_TRUE => Value::Bool(true),
            TAG_FALSE => Value::Bool(false),
            TAG_NULL => Value::Null,
            TAG_LIST => {
                let len = self.len()?;
                // Not reserved: a damaged length must not allocate more than the bytes that are there.
                let mut list = Vec::new();
                for _ in 0..len {
                    list.push(self.value(depth + 1)?);
                }
                Value::L(list)
            }
            TAG_MAP => Value::M(self.map(depth + 1)?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Key;
    use crate::table::Table;
    use crate::write::{Change, Write};

    fn sample() -> Item {
        let inner = Attributes::from([(Name::from("ü"), Value::Null), (Name::from(""), Value::Bool(true))]);
        Item::new()
            .with("id", "a\0b")
            .with("n", "-12.5e10".parse::<Number>().unwrap())
            .with("bytes", vec![0, 255, 1])
            .with("no", false)
            .with("long", "x".repeat(100_000))
            .with("list", vec![Value::M(inner), Value::L(Vec::new()), Value::from(7_i64)])
    }

    #[test]
    fn items_go_there_and_back() {
        assert_eq!(decode(&encode(&sample())).unwrap(), sample());
        assert_eq!(decode(&encode(&Item::new())).unwrap(), Item::new());
    }

    fn patched(item: &Item, changes: &[Change]) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        patch_into(&mut out, &Encoded::read(&encode(item)).unwrap(), changes)?;
        Some(out.split_off(6))
    }

    #[test]
    fn a_patched_item_is_the_changed_item() {
        let inner = Attributes::from([(Name::from("ü"), Value::Null)]);
        let all: [Change; 8] = [
            Change::Set("bytes".into(), "text".into()),
            Change::Set("later".into(), Value::Bool(true)),
            Change::Remove("list".into()),
            Change::Set("lists".into(), vec![Value::M(inner.clone()), Value::L(vec![7_i64.into()])].into()),
            Change::Add("n".into(), -7),
            Change::Add("new".into(), 5),
            Change::Remove("none".into()),
            Change::Set("zz".into(), 1_700_000_000_i64.into()),
        ];
        let table = Table::new("t", "id", KeyKind::S);
        let item = sample().with("n", 41_i64).with("list", vec![Value::M(inner), Value::L(vec![]), 7_i64.into()]);
        // Every choice of them.
        for choice in 1..1_u32 << all.len() {
            let chosen = all.iter().enumerate().filter(|(place, _)| choice >> place & 1 == 1);
            let changes: Vec<Change> = chosen.map(|(_, change)| change.clone()).collect();
            assert!(changes.iter().all(|change| table.allows(change)));
            let changed = Write::update(&table, Key::new("a"), changes.clone()).apply(Some(item.clone())).unwrap();
            assert_eq!(patched(&item, &changes), changed.map(|changed| encode(&changed)), "{changes:?}");
        }
    }

    #[test]
    fn what_takes_more_than_a_patch_is_left_alone() {
        let (item, add) = (sample(), |name: &str, by| [Change::Add(name.to_owned().into(), by)]);
        assert!(patched(&item, &add("id", 1)).is_none(), "no number");
        let most = item.clone().with("n", "9".repeat(38).parse::<Number>().unwrap());
        assert!(patched(&most, &add("n", 1)).is_some() && patched(&most, &add("n", -1)).is_some());
        assert!(patched(&item.clone().with("n", "1e-100".parse::<Number>().unwrap()), &add("n", 1)).is_none());
        let long = Value::S("x".repeat(limits::ITEM_BYTES / 2));
        assert!(patched(&item, &[Change::Set("z".into(), long)]).is_none(), "near the limit");
        let many = (0..127).fold(Item::new(), |item, n| item.with(format!("{n:03}"), n));
        assert!(patched(&many, &[Change::Remove("000".into())]).is_some());
        assert!(patched(&many, &add("zzz", 1)).is_none(), "a count of two bytes");
    }

    #[test]
    fn an_item_is_looked_into_where_its_bytes_are() {
        let (item, bytes) = (sample(), encode(&sample()));
        let encoded = Encoded::read(&bytes).unwrap();
        for (name, value) in &item.0 {
            assert_eq!(encoded.get(name).as_ref(), Some(value));
            let is_part = matches!(value, Value::S(_) | Value::N(_) | Value::B(_));
            assert_eq!(encoded.key_part(name).is_some(), is_part, "{name}");
            assert_eq!(encoded.number(name).map(Value::N).as_ref(), Some(value).filter(|_| name == "n"));
        }
        assert!(encoded.get("o").is_none() && encoded.key_part("o").is_none() && encoded.number("o").is_none());
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let bytes = encode(&sample().with("long", "short"));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err() && Encoded::read(&bytes[..cut]).is_err());
        }
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[place] ^= 1 << bit;
                let is_read = decode(&damaged).is_ok();
                let Ok(encoded) = Encoded::read(&damaged) else {
                    assert!(!is_read);
                    continue;
                };
                let _ = (encoded.get("list"), encoded.number("n"), encoded.key_part("id").is_some());
                let _ = patch_into(&mut Vec::new(), &encoded, &[Change::Add("n".into(), 1)]);
            }
        }
    }
}
