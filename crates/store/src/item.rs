//! Items: named attributes with DynamoDB's types, and the keys that find them.

use std::borrow::Cow;

use crate::attributes::Attributes;
use crate::number::Number;

/// The name of an attribute; most are constants.
pub type Name = Cow<'static, str>;

/// One value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    S(String),
    N(Number),
    B(Vec<u8>),
    Bool(bool),
    Null,
    L(Vec<Value>),
    M(Attributes),
}

/// One item: attributes by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Item(pub Attributes);

/// A value that can stand in a key: a string, number or bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyValue {
    S(String),
    N(Number),
    B(Vec<u8>),
}

/// What identifies an item in its table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub partition: KeyValue,
    pub sort: Option<KeyValue>,
}

impl Key {
    pub fn new(partition: impl Into<KeyValue>) -> Self {
        Self { partition: partition.into(), sort: None }
    }

    pub fn with_sort(partition: impl Into<KeyValue>, sort: impl Into<KeyValue>) -> Self {
        Self { partition: partition.into(), sort: Some(sort.into()) }
    }
}

impl Item {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One with room for so many attributes and no more, where their number is known.
    #[must_use]
    pub fn with_room(count: usize) -> Self {
        Self(Attributes::with_capacity(count))
    }

    /// Sets an attribute and hands the item back, to write items in one expression.
    #[must_use]
    pub fn with(mut self, name: impl Into<Name>, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Like [`Item::with`]; an absent value sets nothing.
    #[must_use]
    pub fn with_some(self, name: impl Into<Name>, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The attribute as text, if it is a string.
    #[must_use]
    pub fn str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    /// The attribute as an integer, if it is a number that is one.
    #[must_use]
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Value::N(n)) => n.to_i64(),
            _ => None,
        }
    }

    /// The size DynamoDB would charge: names and values.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.size()).sum()
    }
}

impl Value {
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::S(s) => Some(s),
            _ => None,
        }
    }

    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::S(s) => s.len(),
            Self::N(n) => n.size(),
            Self::B(b) => b.len(),
            Self::Bool(_) | Self::Null => 1,
            Self::L(list) => 3 + list.iter().map(|v| 1 + v.size()).sum::<usize>(),
            Self::M(map) => 3 + map.iter().map(|(k, v)| 1 + k.len() + v.size()).sum::<usize>(),
        }
    }

    /// Levels of lists and maps, 0 for a plain value.
    #[must_use]
    pub fn depth(&self) -> usize {
        match self {
            Self::L(list) => 1 + list.iter().map(Self::depth).max().unwrap_or(0),
            Self::M(map) => 1 + map.values().map(Self::depth).max().unwrap_or(0),
            _ => 0,
        }
    }
}

impl Value {
    /// Whether a map in it has an entry without a name.
    pub(crate) fn has_empty_name_inside(&self) -> bool {
        match self {
            Self::L(list) => list.iter().any(Self::has_empty_name_inside),
            Self::M(map) => map.iter().any(|(name, value)| name.is_empty() || value.has_empty_name_inside()),
            _ => false,
        }
    }
}

impl KeyValue {
    /// The value of a key attribute, if it may stand in a key.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::S(s) => Some(Self::S(s.clone())),
            Value::N(n) => Some(Self::N(n.clone())),
            Value::B(b) => Some(Self::B(b.clone())),
            _ => None,
        }
    }

    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::S(s) => s.len(),
            Self::N(n) => n.size(),
            Self::B(b) => b.len(),
        }
    }
}

impl From<KeyValue> for Value {
    fn from(key: KeyValue) -> Self {
        match key {
            KeyValue::S(s) => Self::S(s),
            KeyValue::N(n) => Self::N(n),
            KeyValue::B(b) => Self::B(b),
        }
    }
}

macro_rules! from {
    ($($type:ty => $target:ident :: $variant:ident ($value:ident) $make:expr;)*) => {$(
        impl From<$type> for $target {
            fn from($value: $type) -> Self { Self::$variant($make) }
        }
    )*};
}

from! {
    &str => Value::S(v) v.to_owned();
    String => Value::S(v) v;
    &String => Value::S(v) v.clone();
    bool => Value::Bool(v) v;
    i64 => Value::N(v) Number::from(v);
    i32 => Value::N(v) Number::from(i64::from(v));
    u32 => Value::N(v) Number::from(i64::from(v));
    Number => Value::N(v) v;
    Vec<u8> => Value::B(v) v;
    Vec<Value> => Value::L(v) v;
    Attributes => Value::M(v) v;
    &str => KeyValue::S(v) v.to_owned();
    String => KeyValue::S(v) v;
    &String => KeyValue::S(v) v.clone();
    i64 => KeyValue::N(v) Number::from(v);
    Number => KeyValue::N(v) v;
    Vec<u8> => KeyValue::B(v) v;
}

impl From<Item> for Value {
    fn from(item: Item) -> Self {
        Self::M(item.0)
    }
}
