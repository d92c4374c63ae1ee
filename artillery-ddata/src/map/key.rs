//! Encodes keys as bytes that sort like the keys. No existing codec has all of the properties below (docs/adr/0010).
//!
//! | type | bytes |
//! |---|---|
//! | `bool` | 0 or 1 |
//! | unsigned integers | big endian, all bytes |
//! | signed integers | the same, with the sign bit flipped |
//! | `char` | as a `u32` |
//! | strings, byte strings | each 00 as 00 01, and 00 00 at the end |
//! | `Option` | 00 for `None`; 01 and the content for `Some` |
//! | sequences | 01 before each element, 00 at the end |
//! | tuples, arrays, structs | field after field, with nothing between |
//! | enums | the index of the variant in one byte, then its fields |
//! | unit | nothing |
//!
//! Not supported: floating-point numbers, which have no total order; maps, since a `HashMap` has no order at all;
//! fields that serde skips conditionally; types that need a self-describing format; variants of an enum after its first
//! 256; and keys nested deeper than [`MAX_DEPTH`].
//!
//! All keys of one type have three properties:
//!
//! - **Order**: keys compare as their bytes do, provided that `Ord` and serde process fields and variants in the order
//!   of their declaration, as a derived `Ord` does.
//! - **One encoding**: a key has one encoding. Decoding rejects all other bytes.
//! - **Prefix-free**: no encoding is a prefix of another. So the encoded first fields of a tuple are a prefix of
//!   exactly the keys with these fields: `"a"` is not a prefix of `"ab"`.
//!
//! The bytes belong to *one type*: a key written as a `u32` isn't found as a `u64`. [`AsKey`] and [`Leading`] let the
//! compiler check that.

use std::{fmt, marker::PhantomData};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::types::update::MAX_KEY;

mod de;
mod like;
mod ser;
#[cfg(test)]
mod tests;

pub use like::{AsKey, Leading};

/// The maximum nesting of options, sequences, tuples, structs and enums in a key.
pub const MAX_DEPTH: usize = 64;

/// A key that can't be encoded, or bytes that can't be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The type contains a part that keys don't support; its description.
    #[error("{0} can't be part of a key")]
    Unsupported(&'static str),
    /// The variant isn't one of the first 256 of its enum; its index, from 0.
    #[error("enum variant {0} in a key; at most 256 variants are allowed")]
    TooManyVariants(u32),
    /// The key is nested deeper than [`MAX_DEPTH`].
    #[error("a key nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// With the prefix of its map, the key is longer than [`MAX_KEY`].
    #[error("a key of {len} bytes including the name of its map; at most {limit} are allowed")]
    TooLong {
        /// The key's length in bytes, including the name of the map and the zero byte that ends it.
        len: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The bytes aren't a key of this type.
    #[error("not a key of this type: {what} at byte {at}")]
    Malformed {
        /// The offset in bytes, without the map's prefix, of the wrong byte. If bytes are missing, the end; if a string
        /// isn't UTF-8, its start.
        at: usize,
        /// A description of the invalid bytes, for example `a string that isn't UTF-8`.
        what: &'static str,
    },
    /// Bytes follow the end of a key of this type; their number.
    #[error("{0} bytes after the end of a key")]
    Trailing(usize),
    /// The bytes don't begin with the prefix of this map; the name of this map.
    #[error("not a key of map {0:?}")]
    OtherMap(String),
    /// The type's own serialization or deserialization failed, for instance since the bytes name a variant that the
    /// enum doesn't have.
    #[error("{0}")]
    Refused(String),
}

impl serde::ser::Error for KeyError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Refused(message.to_string())
    }
}

impl serde::de::Error for KeyError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Refused(message.to_string())
    }
}

/// Appends the bytes of `key` to `out`.
///
/// # Errors
/// [`KeyError`] when the key can't be encoded; `out` may then contain a part of its bytes.
pub fn encode_to<Q: Serialize + ?Sized>(key: &Q, out: &mut Vec<u8>) -> Result<(), KeyError> {
    key.serialize(&mut ser::KeyWriter::new(out))
}

/// The bytes of `key`, without the name of a map.
///
/// # Errors
/// [`KeyError`] when the key can't be encoded.
pub fn encode<Q: Serialize + ?Sized>(key: &Q) -> Result<Bytes, KeyError> {
    let mut out = Vec::with_capacity(32);
    encode_to(key, &mut out)?;
    Ok(out.into())
}

/// Decodes all of `bytes` as one key, without the name of a map.
///
/// # Errors
/// [`KeyError`]: the bytes don't encode a key of this type.
pub fn decode<K: DeserializeOwned>(bytes: &[u8]) -> Result<K, KeyError> {
    let mut reader = de::KeyReader::new(bytes);
    let key = K::deserialize(&mut reader)?;
    reader.finish()?;
    Ok(key)
}

/// Why a map's name isn't allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("the name of a map is empty: it has 1 to {MAX_NAME} bytes, none of them zero")]
    Empty,
    /// The name contains a zero byte, which would end it.
    #[error("the name of a map contains a zero byte: it has 1 to {MAX_NAME} bytes, none of them zero")]
    Zero,
    /// The name is longer than 255 bytes.
    #[error("the name of a map has {len} bytes: it has 1 to {limit}, none of them zero")]
    TooLong {
        /// The name's length in bytes.
        len: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
}

/// The maximum length of a map's name in bytes.
pub const MAX_NAME: usize = 255;

/// The key space of one map: all keys that begin with its name and a zero byte.
pub struct KeySpace<K> {
    prefix: Bytes,
    keys: PhantomData<fn() -> K>,
}

impl<K> KeySpace<K> {
    /// The key space of the map with this name.
    ///
    /// # Errors
    /// [`NameError`] when the name is empty, too long or contains a zero byte.
    pub fn new(name: &str) -> Result<Self, NameError> {
        match name.len() {
            0 => return Err(NameError::Empty),
            len if len > MAX_NAME => return Err(NameError::TooLong { len, limit: MAX_NAME }),
            _ if name.as_bytes().contains(&0) => return Err(NameError::Zero),
            _ => {}
        }
        Ok(Self { prefix: format!("{name}\0").into(), keys: PhantomData })
    }

    /// The name of the map.
    pub fn name(&self) -> &str {
        // The prefix was made from a string, so this never fails.
        std::str::from_utf8(&self.prefix[..self.prefix.len() - 1]).unwrap_or_default()
    }

    /// The prefix of all keys of this map, and of no other map.
    pub fn prefix(&self) -> &Bytes {
        &self.prefix
    }

    /// The raw key of an entry, with the map's prefix.
    ///
    /// # Errors
    /// [`KeyError`] when the key can't be encoded, or is too long.
    pub fn key<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Result<Bytes, KeyError> {
        self.with_prefix(key)
    }

    /// The prefix that the raw keys of the entries with these leading fields share, and no other raw key has.
    ///
    /// ```
    /// # use artillery_ddata::map::KeySpace;
    /// let orders = KeySpace::<(u32, u64)>::new("orders")?;
    /// let of_customer_7 = orders.leading(&7u32)?;
    /// assert!(orders.key(&(7, 1))?.starts_with(&of_customer_7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fields of another type don't compile: an `i32` is encoded differently from the key's `u32`.
    ///
    /// ```compile_fail
    /// # use artillery_ddata::map::KeySpace;
    /// # let orders = KeySpace::<(u32, u64)>::new("orders").unwrap();
    /// let of_customer_7 = orders.leading(&7i32);
    /// ```
    ///
    /// # Errors
    /// Those of [`key`](Self::key).
    pub fn leading<const FIELDS: usize, Q>(&self, fields: &Q) -> Result<Bytes, KeyError>
    where
        Q: Leading<K, FIELDS> + ?Sized,
    {
        self.with_prefix(fields)
    }

    fn with_prefix<Q: Serialize + ?Sized>(&self, key: &Q) -> Result<Bytes, KeyError> {
        let mut out = Vec::with_capacity(self.prefix.len() + 32);
        out.extend_from_slice(&self.prefix);
        encode_to(key, &mut out)?;
        if out.len() > MAX_KEY {
            return Err(KeyError::TooLong { len: out.len(), limit: MAX_KEY });
        }
        Ok(out.into())
    }

    /// Decodes the entry's key from a raw key.
    ///
    /// # Errors
    /// [`KeyError`]: the bytes are a key of another map, or not a key of this type.
    pub fn decode(&self, whole: &[u8]) -> Result<K, KeyError>
    where
        K: DeserializeOwned,
    {
        let rest = whole.strip_prefix(&self.prefix[..]).ok_or_else(|| KeyError::OtherMap(self.name().to_owned()))?;
        decode(rest)
    }
}

impl<K> Clone for KeySpace<K> {
    fn clone(&self) -> Self {
        Self { prefix: self.prefix.clone(), keys: PhantomData }
    }
}

impl<K> fmt::Debug for KeySpace<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeySpace").field(&self.name()).finish()
    }
}
