//! Values of properties, and how they compare.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// The value of a property. Times are texts in RFC 3339.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(Cow<'a, str>),
}

impl<'a> Value<'a> {
    pub fn text(text: &'a str) -> Value<'a> {
        Value::Text(Cow::Borrowed(text))
    }

    /// A JSON scalar. `None` for objects and arrays, which no property can hold.
    pub fn from_json(json: &'a serde_json::Value) -> Option<Value<'a>> {
        Some(match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::String(text) => Value::text(text),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(integer) => Value::Integer(integer),
                None => Value::Float(number.as_f64()?),
            },
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => return None,
        })
    }

    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Integer(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(text) => text.as_ref().into(),
        }
    }

    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(value),
            Value::Integer(value) => Value::Integer(value),
            Value::Float(value) => Value::Float(value),
            Value::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
        }
    }

    /// The word for this kind of value in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a string",
        }
    }

    /// Equal in kind and value; numbers by value, an integer beside a double as a double. Null equals nothing.
    pub fn equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a == b,
            _ => self.order(other).is_some_and(Ordering::is_eq),
        }
    }

    /// The order of two numbers or of two texts (by code point, case counts); none between other kinds.
    pub fn order(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(b)),
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            _ => self.as_f64()?.partial_cmp(&other.as_f64()?),
        }
    }

    pub(super) fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Integer(value) => Some(*value as f64),
            Value::Float(value) => Some(*value),
            Value::Null | Value::Bool(_) | Value::Text(_) => None,
        }
    }
}

/// As it stands when joined to a text.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => Ok(()),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}
