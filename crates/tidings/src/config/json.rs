//! JSON inside TOML: patterns, schemas and payloads, written as a table or as a string of JSON.

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// A JSON object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsonObject(Map<String, Value>);

impl JsonObject {
    #[must_use]
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The object that a value is; anything else is none, and empty.
    #[must_use]
    pub fn from_value(value: Value) -> Self {
        match value {
            Value::Object(map) => Self(map),
            _ => Self::default(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = match Value::deserialize(deserializer)? {
            Value::String(text) => {
                serde_json::from_str(&text).map_err(|error| D::Error::custom(format!("is not valid JSON: {error}")))?
            }
            value => value,
        };
        match value {
            Value::Object(map) => Ok(Self(map)),
            _ => Err(D::Error::custom("must be a table, or a string that holds a JSON object")),
        }
    }
}
