//! Records to items and back, through serde: a record's fields are an item's attributes.
//!
//! Structs and maps become maps, sequences lists, text strings, every kind of number a number, bytes bytes,
//! and nothing (`None`, `()`) null; leave a field out with `skip_serializing_if` to have no attribute. Enums
//! look as they do in JSON. Reading fails where the attribute is of another type than the field.

mod pack;
mod read;
mod write;

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::packed::Packing;
use crate::{Error, Item, Value};

/// Puts a part of a record at the end of what is there, as the bytes of the value that holds it. Refuses whatever is unusual:
/// what an item's value may not be, and some that it may.
pub(crate) fn pack<T: Serialize + ?Sized>(record: &T, out: &mut Packing) -> Result<(), Error> {
    record.serialize(pack::ToBytes { out, level: 0 }).map_err(|error| Error::Invalid(error.to_string()))
}

impl Item {
    /// The item that holds a record; [`Error::Invalid`] where the record is no struct or map, or has a value
    /// that no attribute can hold (a number out of DynamoDB's range).
    pub fn from_record<T: Serialize + ?Sized>(record: &T) -> Result<Self, Error> {
        match Value::from_record(record)? {
            Value::M(attributes) => Ok(Self(attributes)),
            _ => Err(Error::Invalid("only a struct or a map can be an item".to_owned())),
        }
    }

    /// The record an item holds; [`Error::Corrupt`] where it holds another one.
    pub fn to_record<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(read::FromMap(&self.0)).map_err(|error| Error::Corrupt(error.to_string()))
    }
}

impl Value {
    /// The value that holds a part of a record (or a `serde_json::Value`); see [`Item::from_record`].
    pub fn from_record<T: Serialize + ?Sized>(record: &T) -> Result<Self, Error> {
        record.serialize(write::ToValue).map_err(|error| Error::Invalid(error.to_string()))
    }

    /// What the value holds; see [`Item::to_record`].
    pub fn to_record<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(read::FromValue(self)).map_err(|error| Error::Corrupt(error.to_string()))
    }
}

/// Why a record and an item do not fit each other.
#[derive(Debug)]
struct Mismatch(String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mismatch {}

impl serde::ser::Error for Mismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl serde::de::Error for Mismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

#[cfg(test)]
mod tests;
