//! The deserializer: a value becomes a record, without copying the value first.

use std::slice;

use serde::de::value::MapDeserializer;
use serde::de::value::SeqDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::Mismatch;
use crate::attributes::{self, Attributes};
use crate::item::Name;
use crate::{Number, Value};

/// Reads a value.
#[derive(Clone, Copy)]
pub(super) struct FromValue<'v>(pub &'v Value);

/// Reads a map, or the attributes of an item.
#[derive(Clone, Copy)]
pub(super) struct FromMap<'v>(pub &'v Attributes);

/// Reads a map's key.
struct FromName<'v>(&'v str);

/// Reads an enum: its variant's name, and what the variant holds.
struct Variant<'v>(&'v str, Option<&'v Value>);

type Entries<'v> = std::iter::Map<attributes::Iter<'v>, fn((&'v Name, &'v Value)) -> Entry<'v>>;
type Entry<'v> = (FromName<'v>, FromValue<'v>);
type Elements<'v> = std::iter::Map<slice::Iter<'v, Value>, fn(&'v Value) -> FromValue<'v>>;

fn entries(map: &Attributes) -> MapDeserializer<'_, Entries<'_>, Mismatch> {
    MapDeserializer::new(map.iter().map(|(name, value)| (FromName(name), FromValue(value))))
}

fn elements(list: &[Value]) -> SeqDeserializer<Elements<'_>, Mismatch> {
    SeqDeserializer::new(list.iter().map(FromValue))
}

/// The narrowest of the forms a visitor knows that holds the number: whole ones exactly, others as floats.
fn visit_number<'de, V: Visitor<'de>>(number: &Number, visitor: V) -> Result<V::Value, Mismatch> {
    if let Some(whole) = number.to_i64() {
        return match u64::try_from(whole) {
            Ok(whole) => visitor.visit_u64(whole),
            Err(_) => visitor.visit_i64(whole),
        };
    }
    match number.to_string().parse::<u64>() {
        Ok(whole) => visitor.visit_u64(whole),
        Err(_) => visitor.visit_f64(number.to_f64()),
    }
}

/// Methods for wide integers, which `visit_number` would give as floats.
macro_rules! wide {
    ($($method:ident => $visit:ident($type:ty))*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
            match self.0 {
                Value::N(number) => match number.to_string().parse::<$type>() {
                    Ok(whole) => visitor.$visit(whole),
                    Err(_) => visit_number(number, visitor),
                },
                _ => self.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for FromValue<'de> {
    type Error = Mismatch;

    wide! { deserialize_i128 => visit_i128(i128) deserialize_u128 => visit_u128(u128) }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::S(text) => visitor.visit_borrowed_str(text),
            Value::N(number) => visit_number(number, visitor),
            Value::B(bytes) => visitor.visit_borrowed_bytes(bytes),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Null => visitor.visit_unit(),
            Value::L(list) => {
                let mut elements = elements(list);
                let value = visitor.visit_seq(&mut elements)?;
                // More elements than the record has room for are an error, not lost.
                elements.end()?;
                Ok(value)
            }
            Value::M(map) => FromMap(map).deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::S(variant) => visitor.visit_enum(Variant(variant, None)),
            Value::M(map) => FromMap(map).deserialize_enum(name, variants, visitor),
            _ => Err(Mismatch::custom("a variant must be text, or a map with one entry")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

impl<'de> Deserializer<'de> for FromMap<'de> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        let mut entries = entries(self.0);
        let value = visitor.visit_map(&mut entries)?;
        entries.end()?;
        Ok(value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let mut entries = self.0.iter();
        match (entries.next(), entries.next()) {
            (Some((variant, value)), None) => visitor.visit_enum(Variant(variant, Some(value))),
            _ => Err(Mismatch::custom("a variant must be text, or a map with one entry")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// Methods for keys that stand for a number or a truth.
macro_rules! parsed {
    ($($method:ident => $visit:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
            match self.0.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(Mismatch::invalid_type(Unexpected::Str(self.0), &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for FromName<'de> {
    type Error = Mismatch;

    parsed! {
        deserialize_bool => visit_bool
        deserialize_i8 => visit_i8 deserialize_i16 => visit_i16 deserialize_i32 => visit_i32
        deserialize_i64 => visit_i64 deserialize_i128 => visit_i128
        deserialize_u8 => visit_u8 deserialize_u16 => visit_u16 deserialize_u32 => visit_u32
        deserialize_u64 => visit_u64 deserialize_u128 => visit_u128
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_enum(Variant(self.0, None))
    }

    forward_to_deserialize_any! {
        f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Mismatch;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Mismatch> {
        let variant = seed.deserialize(FromName(self.0))?;
        Ok((variant, self))
    }
}

impl<'de> Variant<'de> {
    fn value(self) -> Result<FromValue<'de>, Mismatch> {
        let missing = || Mismatch::custom(format!("variant {} must hold something", self.0));
        self.1.map(FromValue).ok_or_else(missing)
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Mismatch;

    fn unit_variant(self) -> Result<(), Mismatch> {
        match self.1 {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(Mismatch::custom(format!("variant {} must hold nothing", self.0))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Mismatch> {
        seed.deserialize(self.value()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Mismatch> {
        self.value()?.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Mismatch> {
        self.value()?.deserialize_map(visitor)
    }
}

impl<'de> IntoDeserializer<'de, Mismatch> for FromValue<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> IntoDeserializer<'de, Mismatch> for FromName<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
