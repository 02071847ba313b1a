//! An item that is looked into where its bytes are.
//!
//! The one thread that everybody waits for needs a few attributes of an item: those that a condition names, those that lead
//! to it in an index, and when it expires. To take the whole item apart for them costs several times as much.

use super::{Reader, TAG_BYTES, TAG_NUMBER, TAG_STRING, VERSION, unreadable};
use crate::Error;
use crate::item::Value;
use crate::number::Number;

/// The bytes of an item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded<'a>(&'a [u8]);

/// The attributes of such an item, for who needs several of them.
#[derive(Debug)]
pub(crate) struct Listed<'a>(Vec<Attribute<'a>>);

/// An attribute that may stand in a key, as it stands in the bytes.
pub(crate) enum KeyPart<'a> {
    /// A text, or bytes.
    Text(&'a [u8]),
    /// A number in the form whose order is that of the numbers.
    Number(&'a [u8]),
}

impl<'a> Encoded<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// All of its attributes; an error if the bytes are not those of an item.
    pub(crate) fn listed(self) -> Result<Listed<'a>, Error> {
        let list = || {
            let mut reader = self.attributes()?;
            let count = reader.len()?;
            // As far as it is true: an attribute has two bytes at least.
            let mut all = Vec::with_capacity(count.min(reader.rest.len() / 2));
            for _ in 0..count {
                all.push(reader.attribute()?);
            }
            reader.rest.is_empty().then_some(Listed(all))
        };
        list().ok_or_else(|| unreadable(self.0))
    }

    fn attributes(self) -> Option<Reader<'a>> {
        self.0.strip_prefix(&[VERSION]).map(|rest| Reader { rest })
    }

    /// The bytes of an attribute's value.
    fn find(self, name: &str) -> Option<&'a [u8]> {
        let mut reader = self.attributes()?;
        for _ in 0..reader.len()? {
            let attribute = reader.attribute()?;
            if attribute.name == name.as_bytes() {
                return Some(attribute.value);
            }
        }
        None
    }

    pub(crate) fn get(self, name: &str) -> Option<Value> {
        Reader { rest: self.find(name)? }.value(0)
    }

    /// The attribute as a number, if it is one.
    pub(crate) fn number(self, name: &str) -> Option<Number> {
        number_of(self.find(name)?)
    }
}

impl<'a> Listed<'a> {
    pub(crate) fn key_part(&self, name: &str) -> Option<KeyPart<'a>> {
        // Names of another length are told apart at once.
        let found = self.0.iter().find(|attribute| attribute.name == name.as_bytes())?;
        let (tag, value) = found.value.split_first()?;
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

/// One attribute in the bytes of an item.
#[derive(Debug)]
pub(super) struct Attribute<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
    /// Both, as they stand there.
    pub whole: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn attribute(&mut self) -> Option<Attribute<'a>> {
        let before = self.rest;
        let name = self.bytes()?;
        let from = self.rest;
        self.skip(0)?;
        let up_to_here = |start: &'a [u8]| start.get(..start.len() - self.rest.len());
        Some(Attribute { name, value: up_to_here(from)?, whole: up_to_here(before)? })
    }
}
