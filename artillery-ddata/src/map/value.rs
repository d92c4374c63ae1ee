//! Encodes values as bytes, by a codec that is a type parameter of the map.

use artillery_core::internal::codec::{self, CodecError};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

#[cfg(test)]
mod tests;

/// A value that can't be encoded, or bytes that can't be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The value can't be encoded.
    #[error("the value can't be encoded: {0}")]
    Encode(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The bytes aren't a value of this type in this codec.
    #[error("not a value of this type: {0}")]
    Decode(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ValueError {
    /// Reports that the value can't be encoded.
    pub fn encode(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Encode(why.into())
    }

    /// Reports that the bytes can't be decoded.
    pub fn decode(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Decode(why.into())
    }
}

/// Encodes the values of a map as bytes. A codec is used as a type only; no value of it is ever created.
///
/// A codec for any serde format takes a few lines:
///
/// ```
/// use artillery_ddata::map::{ValueCodec, ValueError};
/// use bytes::Bytes;
/// use serde::{Serialize, de::DeserializeOwned};
///
/// enum Json {}
///
/// impl<V: Serialize + DeserializeOwned> ValueCodec<V> for Json {
///     fn encode(value: &V) -> Result<Bytes, ValueError> {
///         serde_json::to_vec(value).map(Bytes::from).map_err(ValueError::encode)
///     }
///
///     fn decode(bytes: &Bytes) -> Result<V, ValueError> {
///         serde_json::from_slice(bytes).map_err(ValueError::decode)
///     }
/// }
///
/// assert_eq!(Json::encode(&("ann".to_owned(), 1))?, r#"["ann",1]"#);
/// # Ok::<(), ValueError>(())
/// ```
///
/// The bytes are received from the network: for invalid bytes `decode` must return an error, and never panic.
pub trait ValueCodec<V> {
    /// The bytes of `value`.
    fn encode(value: &V) -> Result<Bytes, ValueError>;

    /// Decodes all of `bytes` as one value.
    fn decode(bytes: &Bytes) -> Result<V, ValueError>;
}

/// The default codec: bincode's standard configuration. Bytes after the value are rejected.
///
/// It is compact and fast, but after a field is added or removed the type can't decode old bytes. If values will
/// outlive their type, use a format that names its fields.
#[derive(Debug)]
pub enum Bincode {}

impl<V: Serialize + DeserializeOwned> ValueCodec<V> for Bincode {
    fn encode(value: &V) -> Result<Bytes, ValueError> {
        let mut out = Vec::new();
        match codec::encode(value, &mut out) {
            Ok(()) => Ok(out.into()),
            Err(CodecError::Unencodable(why)) => Err(ValueError::encode(why)),
            Err(other) => Err(ValueError::encode(other)),
        }
    }

    fn decode(bytes: &Bytes) -> Result<V, ValueError> {
        codec::decode_value(bytes).map_err(ValueError::decode)
    }
}

/// A 64-bit integer as decimal text, in the only form that `increment` reads and writes.
#[derive(Debug)]
pub enum Decimal {}

impl ValueCodec<i64> for Decimal {
    fn encode(value: &i64) -> Result<Bytes, ValueError> {
        Ok(value.to_string().into())
    }

    fn decode(bytes: &Bytes) -> Result<i64, ValueError> {
        std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse().ok().filter(|number: &i64| number.to_string() == text))
            .ok_or_else(|| ValueError::decode("not a decimal 64-bit integer"))
    }
}
