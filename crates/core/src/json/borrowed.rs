//! JSON as a tree that copies no text: what a request says is read, held against what may be said, and thrown away.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::BorrowedName;

/// A value whose texts borrow from what it was read from, unless they have escapes.
#[derive(Debug, Clone, PartialEq)]
pub enum Borrowed<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Borrowed<'a>>),
    Object(Object<'a>),
}

/// The fields of an object in their order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object<'a>(Vec<(Cow<'a, str>, Borrowed<'a>)>);

impl<'a> Object<'a> {
    /// The value of that name, of several the last; null counts as absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Borrowed<'a>> {
        let found = self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value);
        found.filter(|value| **value != Borrowed::Null)
    }

    /// The same as a tree of its own.
    #[must_use]
    pub fn to_map(&self) -> Map<String, Value> {
        self.0.iter().map(|(name, value)| (name.clone().into_owned(), value.to_value())).collect()
    }
}

impl Borrowed<'_> {
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        if let Self::Number(number) = self { number.as_u64() } else { None }
    }

    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        if let Self::Number(number) = self { number.as_f64() } else { None }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(bool) => Value::Bool(*bool),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.clone().into_owned()),
            Self::List(list) => list.iter().map(Self::to_value).collect(),
            Self::Object(object) => Value::Object(object.to_map()),
        }
    }
}

impl<'de> Deserialize<'de> for Borrowed<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Read)
    }
}

struct Read;

impl<'de> Visitor<'de> for Read {
    type Value = Borrowed<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Borrowed<'de>, E> {
        Ok(Borrowed::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Borrowed<'de>, E> {
        Ok(Borrowed::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Borrowed<'de>, E> {
        Ok(Borrowed::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Borrowed<'de>, E> {
        Ok(Borrowed::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Borrowed<'de>, E> {
        Number::from_f64(value).map(Borrowed::Number).ok_or_else(|| E::custom("the number is too large"))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Borrowed<'de>, E> {
        Ok(Borrowed::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Borrowed<'de>, E> {
        Ok(Borrowed::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Borrowed<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element()? {
            list.push(value);
        }
        Ok(Borrowed::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Borrowed<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(BorrowedName(name)) = map.next_key()? {
            fields.push((name, map.next_value()?));
        }
        Ok(Borrowed::Object(Object(fields)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    #[test]
    fn it_says_what_a_tree_of_its_own_says() {
        for text in [
            r#"{"a":"x","b":[1,-2,1.5,true,false,null,"\u00e9\n"],"c":{"d":{}},"a\"b":[]}"#,
            r#"{"twice":1,"twice":"the last"}"#,
            "[]",
            " 7 ",
            "\"text\"",
            "18446744073709551615",
            "1e5",
        ] {
            let (borrowed, whole): (Borrowed<'_>, Value) = (parse(text).unwrap(), parse(text).unwrap());
            assert_eq!(borrowed.to_value(), whole, "{text}");
        }
        for text in ["", "{", r#"{"a"}"#, "[1,]", "nul", "1e400", "{} x", r#"{"a":"\ud800"}"#] {
            let (borrowed, whole) = (parse::<Borrowed<'_>>(text).unwrap_err(), parse::<Value>(text).unwrap_err());
            assert_eq!(borrowed, whole, "{text}");
        }
    }

    #[test]
    fn of_two_fields_with_one_name_the_last_counts() {
        let Borrowed::Object(object) = parse(r#"{"a":1,"b":2,"a":null,"b":"x"}"#).unwrap() else { panic!() };
        assert_eq!(object.get("a"), None);
        assert_eq!(object.get("b").and_then(Borrowed::as_str), Some("x"));
        assert_eq!(object.get("c"), None);
    }
}
