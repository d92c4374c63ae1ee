//! Decodes keys. The reader accepts only bytes that the writer produces.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, SeqAccess, VariantAccess, Visitor,
    value::U32Deserializer,
};

use super::{KeyError, MAX_DEPTH};

pub(super) struct KeyReader<'b> {
    bytes: &'b [u8],
    at: usize,
    depth: usize,
}

impl<'b> KeyReader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0, depth: 0 }
    }

    pub(super) fn finish(self) -> Result<(), KeyError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => Err(KeyError::Trailing(left)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        let Some((array, _)) = self.bytes[self.at..].split_first_chunk() else {
            return Err(KeyError::Malformed { at: self.bytes.len(), what: "an early end" });
        };
        self.at += N;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, KeyError> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a byte that must be 0 or 1.
    fn flag(&mut self, what: &'static str) -> Result<bool, KeyError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.malformed(what)),
        }
    }

    /// The error for the byte that was read last.
    fn malformed(&self, what: &'static str) -> KeyError {
        KeyError::Malformed { at: self.at.saturating_sub(1), what }
    }

    fn byte_string(&mut self) -> Result<Vec<u8>, KeyError> {
        let mut string = Vec::new();
        loop {
            let rest = &self.bytes[self.at..];
            let zero = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
            string.extend_from_slice(&rest[..zero]);
            self.at += zero;
            self.byte()?;
            if !self.flag("neither an end nor a zero in a string")? {
                return Ok(string);
            }
            string.push(0);
        }
    }

    fn string(&mut self) -> Result<String, KeyError> {
        let at = self.at;
        String::from_utf8(self.byte_string()?)
            .map_err(|_| KeyError::Malformed { at, what: "a string that isn't UTF-8" })
    }

    fn inside<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, KeyError>) -> Result<T, KeyError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(KeyError::TooDeep);
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn fields<'de, V: Visitor<'de>>(&mut self, len: usize, visitor: V) -> Result<V::Value, KeyError> {
        self.inside(|reader| {
            let mut fields = FieldsReader { reader, left: len };
            let value = visitor.visit_seq(&mut fields)?;
            match fields.left {
                0 => Ok(value),
                _ => Err(KeyError::Refused("the type reads fewer fields than it announces".to_owned())),
            }
        })
    }
}

macro_rules! integers {
    (unsigned { $($unsigned:ident $visit:ident $type:ident,)+ } signed { $($signed:ident $svisit:ident $stype:ident,)+ }) => {
        $(fn $unsigned<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
            visitor.$visit($type::from_be_bytes(self.array()?))
        })+
        $(fn $signed<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
            visitor.$svisit($stype::from_be_bytes(self.array()?) ^ $stype::MIN)
        })+
    };
}

macro_rules! unsupported {
    ($($method:ident $what:literal,)+) => {
        $(fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, KeyError> {
            Err(KeyError::Unsupported($what))
        })+
    };
}

impl<'de> Deserializer<'de> for &mut KeyReader<'_> {
    type Error = KeyError;

    integers! {
        unsigned {
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_u128 visit_u128 u128,
        }
        signed {
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_i128 visit_i128 i128,
        }
    }

    unsupported! {
        deserialize_any "a self-describing value",
        deserialize_ignored_any "a skipped value",
        deserialize_identifier "a name",
        deserialize_f32 "a floating-point number",
        deserialize_f64 "a floating-point number",
        deserialize_map "a map",
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_bool(self.flag("neither false nor true")?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        let number = u32::from_be_bytes(self.array()?);
        visitor.visit_char(char::from_u32(number).ok_or_else(|| self.malformed("no character"))?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_string(self.string()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_string(self.string()?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_byte_buf(self.byte_string()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_byte_buf(self.byte_string()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        if self.flag("neither none nor some")? {
            self.inside(|reader| visitor.visit_some(reader))
        } else {
            visitor.visit_none()
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, KeyError> {
        self.inside(|reader| visitor.visit_newtype_struct(reader))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        self.inside(|reader| {
            let mut list = List { reader, is_over: false };
            let value = visitor.visit_seq(&mut list)?;
            if list.is_over || !list.reader.flag(BETWEEN)? {
                return Ok(value);
            }
            Err(list.reader.malformed("more elements than the type accepts"))
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, KeyError> {
        self.fields(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.fields(len, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.fields(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_enum(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

const BETWEEN: &str = "neither an element nor an end";

struct List<'r, 'b> {
    reader: &'r mut KeyReader<'b>,
    is_over: bool,
}

impl<'de> SeqAccess<'de> for &mut List<'_, '_> {
    type Error = KeyError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, KeyError> {
        if self.is_over || !self.reader.flag(BETWEEN)? {
            self.is_over = true;
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

struct FieldsReader<'r, 'b> {
    reader: &'r mut KeyReader<'b>,
    left: usize,
}

impl<'de> SeqAccess<'de> for &mut FieldsReader<'_, '_> {
    type Error = KeyError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, KeyError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> EnumAccess<'de> for &mut KeyReader<'_> {
    type Error = KeyError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), KeyError> {
        let index: U32Deserializer<KeyError> = u32::from(self.byte()?).into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut KeyReader<'_> {
    type Error = KeyError;

    fn unit_variant(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, KeyError> {
        self.inside(|reader| seed.deserialize(reader))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, KeyError> {
        self.fields(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.fields(fields.len(), visitor)
    }
}
