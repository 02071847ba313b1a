//! Items that are bytes from the beginning.
//!
//! Who stores many items of one kind and never looks at them again need not make one of names and values for each, only to
//! have it checked, written as bytes and thrown away. What is packed is checked while it is put together; whatever is
//! unusual about it is left to an [`Item`], which says what is wrong.

use serde::Serialize;

use crate::codec::{self, Encoded};
use crate::item::{Item, Value};
use crate::table::Table;
use crate::{Error, limits, serde as records};

/// Attributes of an item whose count is one byte.
const FEW: usize = 0x80;

/// An item that its table takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    table: Table,
    bytes: Vec<u8>,
    size: usize,
}

/// Puts one together.
#[derive(Debug)]
pub struct Packer<'a> {
    table: &'a Table,
    out: Packing,
    /// Where the name of the last attribute is.
    last: std::ops::Range<usize>,
    count: usize,
    /// How many of the attributes are there that each item of the table has.
    required: usize,
    is_fit: bool,
}

/// Bytes on their way, and what they would be charged for.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    pub bytes: Vec<u8>,
    pub size: usize,
}

impl Packed {
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// [`Item::size`] of the same.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The same as an item.
    pub fn item(&self) -> Result<Item, Error> {
        codec::decode(&self.bytes)
    }

    /// One of its attributes.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value> {
        Encoded::read(&self.bytes).ok()?.get(name)
    }

    /// Whether it has an attribute of that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        codec::has(&self.bytes, name)
    }

    /// One of its attributes as text, if it is a string.
    #[must_use]
    pub fn str(&self, name: &str) -> Option<&str> {
        codec::text_in(&self.bytes, name)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl<'a> Packer<'a> {
    /// For an item of this table, with room for so many bytes.
    #[must_use]
    pub fn new(table: &'a Table, room: usize) -> Self {
        let mut bytes = Vec::with_capacity(room);
        codec::begin(&mut bytes);
        let out = Packing { bytes, size: 0 };
        Self { table, out, last: 0..0, count: 0, required: 0, is_fit: true }
    }

    /// Adds an attribute; they come in the order of their names.
    #[must_use]
    pub fn with<T: Serialize + ?Sized>(mut self, name: &str, value: &T) -> Self {
        self.is_fit = self.is_fit && self.put(name, value).is_some();
        self
    }

    /// Like [`Packer::with`]; an absent value adds nothing.
    #[must_use]
    pub fn with_some<T: Serialize>(self, name: &str, value: Option<T>) -> Self {
        match value {
            Some(value) => self.with(name, &value),
            None => self,
        }
    }

    fn put<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Option<()> {
        if self.out.bytes.get(self.last.clone())? >= name.as_bytes() {
            return None;
        }
        codec::put_bytes(&mut self.out.bytes, name.as_bytes());
        let start = self.out.bytes.len();
        self.last = start - name.len()..start;
        let before = self.out.size;
        records::pack(value, &mut self.out).ok()?;
        let size = self.out.size - before;
        self.out.size += name.len();
        self.count += 1;
        let kind = codec::kind_of(self.out.bytes.get(start..)?);
        for part in self.table.key_parts().iter().filter(|part| part.attribute.0 == name) {
            self.table.check_key_part(&part.attribute, kind?, size, part.most).ok()?;
            self.required += usize::from(part.required);
        }
        Some(())
    }

    /// The item, unless there is anything unusual about it.
    #[must_use]
    pub fn finish(mut self) -> Option<Packed> {
        let required = self.table.key_parts().iter().filter(|part| part.required).count();
        let is_fit = self.is_fit && self.required == required && self.out.size <= limits::ITEM_BYTES;
        let count = u8::try_from(self.count).ok().filter(|_| is_fit && self.count < FEW)?;
        codec::set_count(&mut self.out.bytes, count)?;
        Some(Packed { table: self.table.clone(), bytes: self.out.bytes, size: self.out.size })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::table::KeyKind;

    fn table() -> Table {
        Table::new("t", "pk", KeyKind::S).sort("sk", KeyKind::N).index(
            "by-a",
            ("a".into(), KeyKind::S),
            Some(("b".into(), KeyKind::S)),
        )
    }

    fn packed(attributes: &[(&str, serde_json::Value)]) -> Option<Packed> {
        let table = table();
        let packer = Packer::new(&table, 100);
        attributes.iter().fold(packer, |packer, (name, value)| packer.with(name, value)).finish()
    }

    /// An item with this attribute is packed and the same, or left to an item, which may be refused.
    fn is_packed(name: &str, value: &serde_json::Value) -> bool {
        let mut attributes: BTreeMap<&str, serde_json::Value> = [("pk", json!("p")), ("sk", json!(1))].into();
        attributes.insert(name, value.clone());
        let all: Vec<_> = attributes.clone().into_iter().collect();
        let item = Item::from_record(&attributes);
        let size = item.as_ref().ok().and_then(|item| table().checked_size(item).ok());
        let packed = packed(&all);
        if let Some(packed) = &packed {
            let item = item.unwrap();
            for name in [name, "pk", "", "a", "z"] {
                assert_eq!(packed.has(name), item.get(name).is_some(), "{name}");
            }
            assert_eq!((Some(packed.size()), packed.item().unwrap()), (size, item), "{name}");
        }
        packed.is_some()
    }

    fn nested(levels: usize) -> serde_json::Value {
        (0..levels).fold(json!(1), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({ "k": inner }) })
    }

    #[test]
    fn what_a_table_takes_is_packed() {
        for value in
            [json!(""), json!(null), json!(-1.5e-7), json!(u64::MAX), json!([[], {}, [null, { "a": 1, "b": "" }]])]
        {
            assert!(is_packed("x", &value), "{value}");
        }
        assert!(is_packed("sk", &json!(-0.5)) && is_packed("a", &json!("x")));
    }

    #[test]
    fn what_it_does_not_take_is_not() {
        for (name, value) in [
            ("pk", json!("")),
            ("pk", json!(1)),
            ("sk", json!("1")),
            ("sk", json!(null)),
            ("a", json!("")),
            ("b", json!(7)),
            ("x", json!({ "": 1 })),
            ("x", json!([{ "a": { "": 1 } }])),
            ("", json!(1)),
        ] {
            assert!(!is_packed(name, &value), "{name}: {value}");
        }
        assert!(packed(&[("pk", json!("p"))]).is_none(), "without its sort key");
        assert!(packed(&[("sk", json!(1)), ("pk", json!("p"))]).is_none(), "out of order");
        assert!(packed(&[("pk", json!("p")), ("pk", json!("p")), ("sk", json!(1))]).is_none(), "twice the same");
    }

    #[test]
    fn limits_are_those_of_an_item() {
        let text = |bytes: usize| json!("x".repeat(bytes));
        let rest = Item::new().with("pk", "p").with("sk", 1).with("x", "").size();
        for (less, fits) in [(1, true), (0, true)] {
            assert_eq!(is_packed("x", &text(limits::ITEM_BYTES - rest - less)), fits);
        }
        assert!(!is_packed("x", &text(limits::ITEM_BYTES - rest + 1)));
        // The item itself is a level.
        for (levels, fits) in [(limits::NESTING - 2, true), (limits::NESTING - 1, true), (limits::NESTING, false)] {
            assert_eq!(is_packed("x", &nested(levels)), fits, "{levels} levels");
        }
        for (bytes, fits) in [(1023, true), (1024, true), (1025, false)] {
            assert_eq!(is_packed("b", &text(bytes)), fits, "a sort key of {bytes} bytes");
        }
        for (count, fits) in [(FEW - 2, true), (FEW - 1, true), (FEW, false)] {
            let names: Vec<_> = (0..count).map(|n| format!("{n:03}")).collect();
            let many: Vec<_> = names.iter().map(|name| (&**name, json!(0))).collect();
            let all: Vec<_> = many.into_iter().skip(2).chain([("pk", json!("p")), ("sk", json!(1))]).collect();
            assert_eq!(packed(&all).is_some(), fits, "{count} attributes");
        }
    }
}
