//! From the tree to typed values, finding every fault on the way.
//!
//! serde stops at the first error. Here an error names the value that caused it; that value is noted, left out, and the
//! reading starts again, until it succeeds. All fields have defaults, so leaving a value out is always possible. Unknown
//! keys are found on the side, from the list of fields that serde hands to `deserialize_struct`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Expected, IntoDeserializer, Unexpected, Visitor};

use super::problem::{Place, Problem, quote};
use super::suggest;
use super::tree::{Entry, Node, Value};

/// Ids of values that were faulty and count as not written.
pub(super) type LeftOut = BTreeSet<usize>;

/// The typed value without what was faulty, and what was.
pub(super) fn read<T: DeserializeOwned + Default>(root: &Node, problems: &mut Vec<Problem>) -> (T, LeftOut) {
    let found = Found { left_out: RefCell::default(), problems: RefCell::default() };
    let value = loop {
        match T::deserialize(Reader { node: root, found: &found }) {
            Ok(value) => break value,
            Err(fault) => {
                let Some(at) = &fault.at else { break T::default() };
                let fresh = found.left_out.borrow_mut().insert(at.id);
                // What is wrong only because a part of it was left out would be noise.
                if fresh && !found.reaches_into(&at.path) {
                    found.problems.borrow_mut().push(fault.to_problem());
                }
                // The root itself, or a value met again, cannot be left out; reading on would never end.
                if !fresh || at.id == root.id {
                    break T::default();
                }
            }
        }
    };
    problems.extend(found.problems.into_inner());
    (value, found.left_out.into_inner())
}

struct Found {
    left_out: RefCell<LeftOut>,
    problems: RefCell<Vec<Problem>>,
}

impl Found {
    fn reaches_into(&self, path: &str) -> bool {
        let below = |problem: &Problem| problem.key.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']));
        self.problems.borrow().iter().any(below)
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    node: &'a Node,
    found: &'a Found,
}

/// Why a value could not be read, and which.
#[derive(Debug)]
struct Fault {
    /// What follows the key in the sentence: "must be …".
    predicate: String,
    suggestion: Option<String>,
    at: Option<At>,
}

#[derive(Debug)]
struct At {
    id: usize,
    path: String,
    place: Option<Place>,
}

impl Fault {
    fn new(predicate: String) -> Self {
        Self { predicate, suggestion: None, at: None }
    }

    /// The innermost value claims the fault; those around it leave it alone.
    fn or_at(mut self, node: &Node) -> Self {
        self.at.get_or_insert_with(|| At { id: node.id, path: node.path.clone(), place: node.place.clone() });
        self
    }

    fn to_problem(&self) -> Problem {
        let (place, path) = self.at.as_ref().map_or((None, ""), |at| (at.place.as_ref(), at.path.as_str()));
        let mut problem = Problem::new(place, path, format!("`{path}` {}", self.predicate));
        problem.suggestion = self.suggestion.clone();
        problem
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.predicate)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("must be {}, not {}", plain(&expected.to_string()), describe(unexpected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let suggestion = suggest::nearest(variant, expected);
        let meant = suggestion.map(|meant| format!("; did you mean \"{meant}\"?")).unwrap_or_default();
        let predicate = format!("must be {}, not {}{meant}", one_of(expected), quote(variant));
        Self { predicate, suggestion: suggestion.map(str::to_owned), at: None }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let suggestion = suggest::nearest(field, expected);
        let predicate = format!("is unknown; its table may have {}", one_of(expected));
        Self { predicate, suggestion: suggestion.map(str::to_owned), at: None }
    }
}

fn one_of(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [only] => format!("\"{only}\""),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|name| format!("\"{name}\"")).collect();
            format!("{} or \"{last}\"", first.join(", "))
        }
    }
}

/// serde's words for types, in the words of a person who writes TOML.
fn plain(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        name if name.starts_with("struct ") => "a table",
        other => other,
    }
}

fn describe(unexpected: Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => value.to_string(),
        Unexpected::Str(text) => quote(text),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

impl<'a> Reader<'a> {
    fn unexpected(&self) -> Unexpected<'a> {
        match &self.node.value {
            Value::String(text) | Value::Datetime(text) => Unexpected::Str(text),
            Value::Integer(value) => Unexpected::Signed(*value),
            Value::Huge(_) => Unexpected::Other("a number beyond 64 bits"),
            Value::Float(value) => Unexpected::Float(*value),
            Value::Boolean(value) => Unexpected::Bool(*value),
            Value::Array(_) => Unexpected::Seq,
            Value::Table(_) => Unexpected::Map,
        }
    }

    fn is_left_out(&self, node: &Node) -> bool {
        self.found.left_out.borrow().contains(&node.id)
    }

    fn note_unknown(&self, entry: &Entry, fields: &'static [&'static str]) {
        if self.found.left_out.borrow_mut().insert(entry.node.id) {
            let path = &entry.node.path;
            let suggestion = suggest::key(path, &entry.key, fields);
            let meant = suggestion.as_ref().map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            let mut problem = Problem::new(entry.place.as_ref(), path, format!("unknown key `{path}`{meant}"));
            problem.suggestion = suggestion;
            self.found.problems.borrow_mut().push(problem);
        }
    }

    fn any<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::String(text) | Value::Datetime(text) => visitor.visit_str(text),
            Value::Integer(value) => visitor.visit_i64(*value),
            Value::Huge(digits) => Err(Fault::new(format!("must fit into 64 bits, and {digits} does not"))),
            Value::Float(value) if value.is_finite() => visitor.visit_f64(*value),
            Value::Float(_) => Err(Fault::new("must be a finite number".to_owned())),
            Value::Boolean(value) => visitor.visit_bool(*value),
            Value::Array(items) => visitor.visit_seq(Items { reader: self, rest: items.iter() }),
            Value::Table(entries) => visitor.visit_map(Fields { reader: self, rest: entries.iter(), value: None }),
        }
    }
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.any(visitor).map_err(|fault| fault.or_at(self.node))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.raw {
            Some(raw) => visitor.visit_str(raw).map_err(|fault: Fault| fault.or_at(self.node)),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    /// TOML has no null: what is written is there.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self).map_err(|fault| fault.or_at(self.node))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self).map_err(|fault| fault.or_at(self.node))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Value::Table(entries) = &self.node.value else {
            // Derived structs would also take a list, field by field; nobody means that in a configuration.
            let fault: Fault = de::Error::invalid_type(self.unexpected(), &visitor);
            return Err(fault.or_at(self.node));
        };
        for entry in entries.iter().filter(|entry| !fields.contains(&entry.key.as_str())) {
            self.note_unknown(entry, fields);
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let result = match &self.node.value {
            Value::String(text) => {
                let text: StrDeserializer<'_, Fault> = text.as_str().into_deserializer();
                visitor.visit_enum(text)
            }
            _ => Err(Fault::new(format!("must be {}, not {}", one_of(variants), describe(self.unexpected())))),
        };
        result.map_err(|fault| fault.or_at(self.node))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items<'a> {
    reader: Reader<'a>,
    rest: std::slice::Iter<'a, Node>,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let reader = self.reader;
        match self.rest.find(|node| !reader.is_left_out(node)) {
            Some(node) => seed.deserialize(Reader { node, ..reader }).map(Some).map_err(|fault| fault.or_at(node)),
            None => Ok(None),
        }
    }
}

struct Fields<'a> {
    reader: Reader<'a>,
    rest: std::slice::Iter<'a, Entry>,
    value: Option<&'a Node>,
}

impl<'de> de::MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let reader = self.reader;
        let Some(entry) = self.rest.find(|entry| !reader.is_left_out(&entry.node)) else { return Ok(None) };
        self.value = Some(&entry.node);
        let key: StrDeserializer<'_, Fault> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|fault| fault.or_at(&entry.node))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let node = self.value.take().expect("serde asks for a value after its key");
        seed.deserialize(Reader { node, ..self.reader }).map_err(|fault| fault.or_at(node))
    }
}
