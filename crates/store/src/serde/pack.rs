//! The serializer that makes bytes at once: texts, numbers, lists and maps whose names come in their order. All else it does
//! by way of a value, or not at all.

use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
    SerializeTupleStruct, Serializer,
};

use super::Mismatch;
use super::write::{self, ToName, ToValue};
use crate::codec::{self, TAG_LIST, TAG_MAP, TAG_STRING};
use crate::packed::Packing;
use crate::{Value, limits};

/// A value on its way to the end of what is there.
pub(super) struct ToBytes<'a> {
    pub out: &'a mut Packing,
    /// Lists and maps that it is in.
    pub level: usize,
}

/// A list or a map in the making.
pub(super) struct Inside<'a> {
    out: &'a mut Packing,
    level: usize,
    /// Of a map: where its last name is.
    last: std::ops::Range<usize>,
    /// How many are still to come.
    left: usize,
}

/// What is a value first.
pub(super) struct ByWay<'a, T> {
    to: ToBytes<'a>,
    made: T,
}

fn unusual() -> Mismatch {
    Mismatch::custom("this is put together as an item")
}

impl<'a> ToBytes<'a> {
    fn value(self, value: &Value) -> Result<(), Mismatch> {
        if self.level + value.depth() >= limits::NESTING || value.has_empty_name_inside() {
            return Err(unusual());
        }
        codec::put_value(&mut self.out.bytes, value);
        self.out.size += value.size();
        Ok(())
    }

    fn inside(self, tag: u8, len: Option<usize>) -> Result<Inside<'a>, Mismatch> {
        let (level, len) = (self.level + 1, len.ok_or_else(unusual)?);
        if level >= limits::NESTING {
            return Err(unusual());
        }
        self.out.bytes.push(tag);
        codec::put_len(&mut self.out.bytes, len);
        // What a list or a map is charged, and each that is in it.
        self.out.size += 3 + len;
        Ok(Inside { out: self.out, level, last: 0..0, left: len })
    }
}

impl Inside<'_> {
    fn name(&mut self, name: &str) -> Result<(), Mismatch> {
        // The first one is behind the start, where nothing is; an empty one is not to be.
        if self.out.bytes.get(self.last.clone()).is_none_or(|last| last >= name.as_bytes()) {
            return Err(unusual());
        }
        codec::put_bytes(&mut self.out.bytes, name.as_bytes());
        self.last = self.out.bytes.len() - name.len()..self.out.bytes.len();
        self.out.size += name.len();
        Ok(())
    }

    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Mismatch> {
        self.left = self.left.checked_sub(1).ok_or_else(unusual)?;
        value.serialize(ToBytes { out: self.out, level: self.level })
    }

    fn finish(self) -> Result<(), Mismatch> {
        if self.left == 0 { Ok(()) } else { Err(unusual()) }
    }
}

/// Methods that go by way of a value.
macro_rules! by_way {
    ($($method:ident($type:ty))*) => {$(
        fn $method(self, value: $type) -> Result<(), Mismatch> {
            let value = ToValue.$method(value)?;
            self.value(&value)
        }
    )*};
}

impl<'a> Serializer for ToBytes<'a> {
    type Ok = ();
    type Error = Mismatch;
    type SerializeSeq = Inside<'a>;
    type SerializeTuple = Inside<'a>;
    type SerializeTupleStruct = Inside<'a>;
    type SerializeTupleVariant = Impossible<(), Mismatch>;
    type SerializeMap = Inside<'a>;
    type SerializeStruct = ByWay<'a, write::Map>;
    type SerializeStructVariant = Impossible<(), Mismatch>;

    by_way! {
        serialize_bool(bool) serialize_char(char) serialize_bytes(&[u8]) serialize_f32(f32) serialize_f64(f64)
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64) serialize_u128(u128)
    }

    fn serialize_str(self, value: &str) -> Result<(), Mismatch> {
        self.out.bytes.push(TAG_STRING);
        codec::put_bytes(&mut self.out.bytes, value.as_bytes());
        self.out.size += value.len();
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Mismatch> {
        self.value(&Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Mismatch> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Mismatch> {
        self.value(&Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Mismatch> {
        self.value(&Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Mismatch> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Mismatch> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        number: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Mismatch> {
        let value = ToValue.serialize_newtype_variant(name, number, variant, value)?;
        self.value(&value)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Inside<'a>, Mismatch> {
        self.inside(TAG_LIST, len)
    }

    fn serialize_tuple(self, len: usize) -> Result<Inside<'a>, Mismatch> {
        self.inside(TAG_LIST, Some(len))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Inside<'a>, Mismatch> {
        self.inside(TAG_LIST, Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Mismatch> {
        Err(unusual())
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Inside<'a>, Mismatch> {
        self.inside(TAG_MAP, len)
    }

    /// Its fields come in any order.
    fn serialize_struct(self, name: &'static str, len: usize) -> Result<ByWay<'a, write::Map>, Mismatch> {
        Ok(ByWay { made: ToValue.serialize_struct(name, len)?, to: self })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Mismatch> {
        Err(unusual())
    }
}

macro_rules! lists {
    ($($trait:ident::$method:ident)*) => {$(
        impl $trait for Inside<'_> {
            type Ok = ();
            type Error = Mismatch;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Mismatch> {
                self.push(value)
            }

            fn end(self) -> Result<(), Mismatch> {
                self.finish()
            }
        }
    )*};
}

lists! { SerializeSeq::serialize_element SerializeTuple::serialize_element SerializeTupleStruct::serialize_field }

impl SerializeMap for Inside<'_> {
    type Ok = ();
    type Error = Mismatch;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Mismatch> {
        key.serialize(ToName(|name: &str| self.name(name)))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Mismatch> {
        self.push(value)
    }

    fn end(self) -> Result<(), Mismatch> {
        self.finish()
    }
}

impl SerializeStruct for ByWay<'_, write::Map> {
    type Ok = ();
    type Error = Mismatch;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Mismatch> {
        SerializeStruct::serialize_field(&mut self.made, name, value)
    }

    fn end(self) -> Result<(), Mismatch> {
        let value = SerializeStruct::end(self.made)?;
        self.to.value(&value)
    }
}
