//! An item that is looked into where its bytes are.
//!
//! The one thread that everybody waits for needs a few attributes of an item: those that a condition names, those that lead
//! to it in an index, and when it expires. To take the whole item apart for them costs several times as much.

use super::{Reader, TAG_BYTES, TAG_NUMBER, TAG_STRING, VERSION, decode, unreadable};
use crate::Error;
use crate::item::{Item, Value};
use crate::number::Number;

/// The bytes of an item, and where its attributes are in them, in the order of their names.
#[derive(Debug)]
pub(crate) struct Encoded<'a> {
    bytes: &'a [u8],
    attributes: Vec<Attribute<'a>>,
}

#[derive(Debug)]
pub(super) struct Attribute<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
    /// Both, as they stand there.
    pub whole: &'a [u8],
}

/// An attribute that may stand in a key.
pub(crate) enum KeyPart<'a> {
    /// A text, or bytes.
    Text(&'a [u8]),
    /// A number in the form whose order is that of the numbers.
    Number(&'a [u8]),
}

impl<'a> Encoded<'a> {
    /// An error if these are not the bytes of an item.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let list = || {
            let mut reader = Reader { rest: bytes.strip_prefix(&[VERSION])? };
            let count = reader.len()?;
            // As far as it is true: an attribute has two bytes at least.
            let mut attributes = Vec::with_capacity(count.min(bytes.len() / 2));
            for _ in 0..count {
                attributes.push(reader.attribute()?);
            }
            reader.rest.is_empty().then_some(Self { bytes, attributes })
        };
        list().ok_or_else(|| unreadable(bytes))
    }

    pub(super) fn attributes(&self) -> &[Attribute<'a>] {
        &self.attributes
    }

    pub(crate) fn decode(&self) -> Result<Item, Error> {
        decode(self.bytes)
    }

    /// The bytes of an attribute's value.
    fn find(&self, name: &str) -> Option<&'a [u8]> {
        // Names of another length are told apart at once; to halve the range would compare their letters.
        let mut all = self.attributes.iter();
        all.find(|attribute| attribute.name == name.as_bytes()).map(|attribute| attribute.value)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        Reader { rest: self.find(name)? }.value(0)
    }

    /// The attribute as a number, if it is one.
    pub(crate) fn number(&self, name: &str) -> Option<Number> {
        number_of(self.find(name)?)
    }

    pub(crate) fn key_part(&self, name: &str) -> Option<KeyPart<'a>> {
        let (tag, value) = self.find(name)?.split_first()?;
        match *tag {
            TAG_STRING | TAG_BYTES => Reader { rest: value }.bytes().map(KeyPart::Text),
            TAG_NUMBER => Some(KeyPart::Number(value)),
            _ => None,
        }
    }
}

/// The number that these are the bytes of.
pub(super) fn number_of(value: &[u8]) -> Option<Number> {
    let number = value.strip_prefix(&[TAG_NUMBER])?;
    Number::from_sortable(number).map(|(number, _)| number)
}

impl<'a> Reader<'a> {
    fn attribute(&mut self) -> Option<Attribute<'a>> {
        let before = self.rest;
        let name = self.bytes()?;
        let from = self.rest;
        self.skip(0)?;
        let up_to_here = |start: &'a [u8]| start.get(..start.len() - self.rest.len());
        Some(Attribute { name, value: up_to_here(from)?, whole: up_to_here(before)? })
    }
}
