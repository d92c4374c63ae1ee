//! Encodes keys.

use serde::{Serialize, Serializer, ser};

use super::{KeyError, MAX_DEPTH};

pub(super) struct KeyWriter<'a> {
    out: &'a mut Vec<u8>,
    depth: usize,
}

impl<'a> KeyWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, depth: 0 }
    }

    fn enter(&mut self) -> Result<(), KeyError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(KeyError::TooDeep) } else { Ok(()) }
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    fn inside<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), KeyError> {
        self.enter()?;
        value.serialize(&mut *self)?;
        self.leave();
        Ok(())
    }

    fn fields(&mut self, is_list: bool) -> Result<FieldsWriter<'_, 'a>, KeyError> {
        self.enter()?;
        Ok(FieldsWriter { writer: self, is_list })
    }

    fn variant(&mut self, index: u32) -> Result<(), KeyError> {
        self.out.push(u8::try_from(index).map_err(|_| KeyError::TooManyVariants(index))?);
        Ok(())
    }
}

macro_rules! integers {
    (unsigned { $($unsigned:ident $type:ident,)+ } signed { $($signed:ident $stype:ident,)+ }) => {
        $(fn $unsigned(self, value: $type) -> Result<(), KeyError> {
            self.out.extend_from_slice(&value.to_be_bytes());
            Ok(())
        })+
        $(fn $signed(self, value: $stype) -> Result<(), KeyError> {
            self.out.extend_from_slice(&(value ^ $stype::MIN).to_be_bytes());
            Ok(())
        })+
    };
}

impl<'w, 'a> Serializer for &'w mut KeyWriter<'a> {
    type Ok = ();
    type Error = KeyError;
    type SerializeSeq = FieldsWriter<'w, 'a>;
    type SerializeTuple = FieldsWriter<'w, 'a>;
    type SerializeTupleStruct = FieldsWriter<'w, 'a>;
    type SerializeTupleVariant = FieldsWriter<'w, 'a>;
    type SerializeStruct = FieldsWriter<'w, 'a>;
    type SerializeStructVariant = FieldsWriter<'w, 'a>;
    type SerializeMap = ser::Impossible<(), KeyError>;

    integers! {
        unsigned { serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64, serialize_u128 u128, }
        signed { serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64, serialize_i128 i128, }
    }

    fn serialize_bool(self, value: bool) -> Result<(), KeyError> {
        self.out.push(value.into());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), KeyError> {
        self.serialize_u32(value.into())
    }

    fn serialize_f32(self, _: f32) -> Result<(), KeyError> {
        Err(KeyError::Unsupported("a floating-point number"))
    }

    fn serialize_f64(self, _: f64) -> Result<(), KeyError> {
        Err(KeyError::Unsupported("a floating-point number"))
    }

    fn serialize_str(self, value: &str) -> Result<(), KeyError> {
        self.serialize_bytes(value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), KeyError> {
        for piece in value.split_inclusive(|&byte| byte == 0) {
            self.out.extend_from_slice(piece);
            if piece.last() == Some(&0) {
                self.out.push(1);
            }
        }
        self.out.extend_from_slice(&[0, 0]);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), KeyError> {
        self.out.push(0);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), KeyError> {
        self.out.push(1);
        self.inside(value)
    }

    fn serialize_unit(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), KeyError> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), KeyError> {
        self.variant(index)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), KeyError> {
        self.inside(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), KeyError> {
        self.variant(index)?;
        self.inside(value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<FieldsWriter<'w, 'a>, KeyError> {
        self.fields(true)
    }

    fn serialize_tuple(self, _: usize) -> Result<FieldsWriter<'w, 'a>, KeyError> {
        self.fields(false)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<FieldsWriter<'w, 'a>, KeyError> {
        self.fields(false)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<FieldsWriter<'w, 'a>, KeyError> {
        self.variant(index)?;
        self.fields(false)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, KeyError> {
        Err(KeyError::Unsupported("a map"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<FieldsWriter<'w, 'a>, KeyError> {
        self.fields(false)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<FieldsWriter<'w, 'a>, KeyError> {
        self.serialize_tuple_variant(name, index, variant, len)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Writes the fields of a struct or tuple, or the elements of a list, which ends with a marker.
pub(super) struct FieldsWriter<'w, 'a> {
    writer: &'w mut KeyWriter<'a>,
    is_list: bool,
}

impl FieldsWriter<'_, '_> {
    fn next<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), KeyError> {
        if self.is_list {
            self.writer.out.push(1);
        }
        value.serialize(&mut *self.writer)
    }

    fn finish(self) -> Result<(), KeyError> {
        if self.is_list {
            self.writer.out.push(0);
        }
        self.writer.leave();
        Ok(())
    }
}

macro_rules! compound {
    ($($trait:ident $method:ident,)+) => {
        $(impl ser::$trait for FieldsWriter<'_, '_> {
            type Ok = ();
            type Error = KeyError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), KeyError> {
                self.next(value)
            }

            fn end(self) -> Result<(), KeyError> {
                self.finish()
            }
        })+
    };
}

macro_rules! compound_with_names {
    ($($trait:ident,)+) => {
        $(impl ser::$trait for FieldsWriter<'_, '_> {
            type Ok = ();
            type Error = KeyError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), KeyError> {
                self.next(value)
            }

            /// The encoding can't represent a skipped field.
            fn skip_field(&mut self, _: &'static str) -> Result<(), KeyError> {
                Err(KeyError::Unsupported("a field that is skipped conditionally"))
            }

            fn end(self) -> Result<(), KeyError> {
                self.finish()
            }
        })+
    };
}

compound! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}
compound_with_names! { SerializeStruct, SerializeStructVariant, }
