//! The store's values as DynamoDB's, and back.
//!
//! Sets have no counterpart in the store. Other tools may have written them, so they are read, as lists; an
//! item that is then put back as a whole has a list there.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use tidings_store::item::Name;
use tidings_store::{Attributes as Map, Error, Item, Key, KeyValue, Number, Table, Value};

/// An item as the SDK has it.
pub type Attributes = HashMap<String, AttributeValue>;

pub fn to_value(value: &Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text.clone()),
        Value::N(number) => AttributeValue::N(number.to_string()),
        Value::B(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
        Value::Bool(truth) => AttributeValue::Bool(*truth),
        Value::Null => AttributeValue::Null(true),
        Value::L(list) => AttributeValue::L(list.iter().map(to_value).collect()),
        Value::M(map) => AttributeValue::M(to_attributes(map)),
    }
}

pub fn to_key_value(value: &KeyValue) -> AttributeValue {
    match value {
        KeyValue::S(text) => AttributeValue::S(text.clone()),
        KeyValue::N(number) => AttributeValue::N(number.to_string()),
        KeyValue::B(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
    }
}

pub fn to_item(item: &Item) -> Attributes {
    to_attributes(&item.0)
}

/// The key attributes of a key that fits the table.
pub fn to_key(table: &Table, key: &Key) -> Attributes {
    to_item(&table.key_item(key))
}

pub fn from_item(attributes: Attributes) -> Result<Item, Error> {
    Ok(Item(from_attributes(attributes)?))
}

fn to_attributes(map: &Map) -> Attributes {
    map.iter().map(|(name, value)| (name.to_string(), to_value(value))).collect()
}

fn from_attributes(attributes: Attributes) -> Result<Map, Error> {
    attributes.into_iter().map(|(name, value)| Ok((Name::Owned(name), from_value(value)?))).collect()
}

fn from_value(value: AttributeValue) -> Result<Value, Error> {
    Ok(match value {
        AttributeValue::S(text) => Value::S(text),
        AttributeValue::N(text) => Value::N(from_number(&text)?),
        AttributeValue::B(blob) => Value::B(blob.into_inner()),
        AttributeValue::Bool(truth) => Value::Bool(truth),
        AttributeValue::Null(_) => Value::Null,
        AttributeValue::L(list) => Value::L(list.into_iter().map(from_value).collect::<Result<_, _>>()?),
        AttributeValue::M(map) => Value::M(from_attributes(map)?),
        AttributeValue::Ss(texts) => Value::L(texts.into_iter().map(Value::S).collect()),
        AttributeValue::Ns(texts) => {
            Value::L(texts.iter().map(|text| from_number(text).map(Value::N)).collect::<Result<_, _>>()?)
        }
        AttributeValue::Bs(blobs) => Value::L(blobs.into_iter().map(|blob| Value::B(blob.into_inner())).collect()),
        _ => return Err(Error::Corrupt("DynamoDB sent a value of a type that is not known here".to_owned())),
    })
}

fn from_number(text: &str) -> Result<Number, Error> {
    text.parse().map_err(|why| Error::Corrupt(format!("DynamoDB sent the number {text:?}, but {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back() {
        let item = Item::new()
            .with("s", "text")
            .with("n", "-1.5".parse::<Number>().unwrap())
            .with("b", vec![0, 255])
            .with("yes", true)
            .with("null", Value::Null)
            .with("list", vec![Value::from(1), Value::L(Vec::new())])
            .with("map", Item::new().with("inner", "x"));
        assert_eq!(from_item(to_item(&item)).unwrap(), item);
    }

    #[test]
    fn sets_are_read_as_lists() {
        let set = |value| from_value(value).unwrap();
        let texts = AttributeValue::Ss(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(set(texts), Value::L(vec!["a".into(), "b".into()]));
        let numbers = AttributeValue::Ns(vec!["1".to_owned(), "2.50".to_owned()]);
        assert_eq!(set(numbers), Value::L(vec![1.into(), Value::N("2.5".parse().unwrap())]));
        let bytes = AttributeValue::Bs(vec![Blob::new(vec![1])]);
        assert_eq!(set(bytes), Value::L(vec![vec![1_u8].into()]));
    }

    #[test]
    fn a_number_that_is_none_is_damage() {
        let error = from_value(AttributeValue::N("many".to_owned())).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
}
