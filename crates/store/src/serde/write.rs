//! The serializer: a record becomes a value.

use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::Mismatch;
use crate::attributes::Attributes;
use crate::item::Name;
use crate::{Number, Value};

pub(super) struct ToValue;

/// A list in the making; `variant` is set inside an enum.
pub(super) struct List {
    variant: Option<&'static str>,
    values: Vec<Value>,
}

/// A map in the making; `variant` is set inside an enum, `name` between a key and its value.
pub(super) struct Map {
    variant: Option<&'static str>,
    values: Vec<(Name, Value)>,
    name: Option<Name>,
}

/// `{variant: value}`, as enums are written in JSON.
fn tagged(variant: &'static str, value: Value) -> Value {
    Value::M([(Name::Borrowed(variant), value)].into())
}

fn number(text: &str) -> Result<Value, Mismatch> {
    text.parse::<Number>().map(Value::N).map_err(|error| Mismatch(format!("{text}: {error}")))
}

impl List {
    fn new(variant: Option<&'static str>, len: usize) -> Self {
        Self { variant, values: Vec::with_capacity(len) }
    }

    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Mismatch> {
        self.values.push(value.serialize(ToValue)?);
        Ok(())
    }

    fn finish(self) -> Value {
        let list = Value::L(self.values);
        match self.variant {
            Some(variant) => tagged(variant, list),
            None => list,
        }
    }
}

impl Map {
    fn new(variant: Option<&'static str>, len: usize) -> Self {
        Self { variant, values: Vec::with_capacity(len), name: None }
    }

    fn insert<T: Serialize + ?Sized>(&mut self, name: Name, value: &T) -> Result<(), Mismatch> {
        self.values.push((name, value.serialize(ToValue)?));
        Ok(())
    }

    fn finish(self) -> Value {
        let map = Value::M(Attributes::from_vec(self.values));
        match self.variant {
            Some(variant) => tagged(variant, map),
            None => map,
        }
    }
}

/// Methods that write a number through its text, which is exact.
macro_rules! numbers {
    ($($method:ident($type:ty))*) => {$(
        fn $method(self, value: $type) -> Result<Value, Mismatch> {
            number(&value.to_string())
        }
    )*};
}

impl Serializer for ToValue {
    type Ok = Value;
    type Error = Mismatch;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Map;
    type SerializeStruct = Map;
    type SerializeStructVariant = Map;

    numbers! { serialize_i128(i128) serialize_u128(u128) serialize_f32(f32) serialize_f64(f64) }

    fn serialize_bool(self, value: bool) -> Result<Value, Mismatch> {
        Ok(Value::Bool(value))
    }

    fn serialize_i8(self, value: i8) -> Result<Value, Mismatch> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<Value, Mismatch> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<Value, Mismatch> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<Value, Mismatch> {
        Ok(Value::N(value.into()))
    }

    fn serialize_u8(self, value: u8) -> Result<Value, Mismatch> {
        self.serialize_i64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<Value, Mismatch> {
        self.serialize_i64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<Value, Mismatch> {
        self.serialize_i64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<Value, Mismatch> {
        match i64::try_from(value) {
            Ok(value) => self.serialize_i64(value),
            Err(_) => self.serialize_u128(value.into()),
        }
    }

    fn serialize_char(self, value: char) -> Result<Value, Mismatch> {
        Ok(Value::S(value.to_string()))
    }

    fn serialize_str(self, value: &str) -> Result<Value, Mismatch> {
        Ok(Value::S(value.to_owned()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, Mismatch> {
        Ok(Value::B(value.to_vec()))
    }

    fn serialize_none(self) -> Result<Value, Mismatch> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Mismatch> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, Mismatch> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Mismatch> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, Mismatch> {
        Ok(Value::from(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value, Mismatch> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Mismatch> {
        Ok(tagged(variant, value.serialize(self)?))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<List, Mismatch> {
        Ok(List::new(None, len.unwrap_or(0)))
    }

    fn serialize_tuple(self, len: usize) -> Result<List, Mismatch> {
        Ok(List::new(None, len))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<List, Mismatch> {
        Ok(List::new(None, len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<List, Mismatch> {
        Ok(List::new(Some(variant), len))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Map, Mismatch> {
        Ok(Map::new(None, len.unwrap_or(0)))
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Map, Mismatch> {
        Ok(Map::new(None, len))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Map, Mismatch> {
        Ok(Map::new(Some(variant), len))
    }
}

macro_rules! lists {
    ($($trait:ident::$method:ident)*) => {$(
        impl $trait for List {
            type Ok = Value;
            type Error = Mismatch;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Mismatch> {
                self.push(value)
            }

            fn end(self) -> Result<Value, Mismatch> {
                Ok(self.finish())
            }
        }
    )*};
}

lists! {
    SerializeSeq::serialize_element
    SerializeTuple::serialize_element
    SerializeTupleStruct::serialize_field
    SerializeTupleVariant::serialize_field
}

macro_rules! structs {
    ($($trait:ident)*) => {$(
        impl $trait for Map {
            type Ok = Value;
            type Error = Mismatch;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Mismatch> {
                self.insert(Name::Borrowed(name), value)
            }

            fn end(self) -> Result<Value, Mismatch> {
                Ok(self.finish())
            }
        }
    )*};
}

structs! { SerializeStruct SerializeStructVariant }

impl SerializeMap for Map {
    type Ok = Value;
    type Error = Mismatch;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Mismatch> {
        self.name = Some(key.serialize(ToName(|name: &str| Ok(Name::Owned(name.to_owned()))))?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Mismatch> {
        let name = self.name.take().ok_or_else(|| Mismatch::custom("a map's value came without its key"))?;
        self.insert(name, value)
    }

    fn end(self) -> Result<Value, Mismatch> {
        Ok(self.finish())
    }
}

/// Keys of maps, text and what can be written as such, and what becomes of them.
pub(super) struct ToName<F>(pub F);

macro_rules! names {
    ($($method:ident($type:ty))*) => {$(
        fn $method(self, value: $type) -> Result<R, Mismatch> {
            self.0(&value.to_string())
        }
    )*};
}

/// Methods for what cannot be a name.
macro_rules! no_names {
    ($($method:ident($($type:ty),*) -> $result:ty;)*) => {$(
        fn $method(self, $(_: $type),*) -> Result<$result, Mismatch> {
            Err(Mismatch::custom("a map's key must be text, a whole number or a truth"))
        }
    )*};
}

type No<R> = Impossible<R, Mismatch>;

impl<R, F: FnOnce(&str) -> Result<R, Mismatch>> Serializer for ToName<F> {
    type Ok = R;
    type Error = Mismatch;
    type SerializeSeq = No<R>;
    type SerializeTuple = No<R>;
    type SerializeTupleStruct = No<R>;
    type SerializeTupleVariant = No<R>;
    type SerializeMap = No<R>;
    type SerializeStruct = No<R>;
    type SerializeStructVariant = No<R>;

    names! {
        serialize_char(char) serialize_bool(bool)
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64) serialize_u128(u128)
    }

    no_names! {
        serialize_f32(f32) -> R;
        serialize_f64(f64) -> R;
        serialize_bytes(&[u8]) -> R;
        serialize_none() -> R;
        serialize_unit() -> R;
        serialize_unit_struct(&'static str) -> R;
        serialize_seq(Option<usize>) -> No<R>;
        serialize_tuple(usize) -> No<R>;
        serialize_tuple_struct(&'static str, usize) -> No<R>;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> No<R>;
        serialize_map(Option<usize>) -> No<R>;
        serialize_struct(&'static str, usize) -> No<R>;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> No<R>;
    }

    fn serialize_str(self, value: &str) -> Result<R, Mismatch> {
        self.0(value)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<R, Mismatch> {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<R, Mismatch> {
        self.0(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<R, Mismatch> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<R, Mismatch> {
        Err(Mismatch::custom("a map's key must be text, a whole number or a truth"))
    }
}
