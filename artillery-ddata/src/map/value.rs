//! Values as bytes, by a codec of the map's choice.

use artillery_core::internal::codec::{self, CodecError};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

#[cfg(test)]
mod tests;

/// A value that has no bytes, or bytes that are no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The value can't be encoded.
    #[error("the value can't be encoded: {0}")]
    Encode(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The bytes are no value of this type, by this codec.
    #[error("no value of this type: {0}")]
    Decode(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ValueError {
    /// A value that can't be encoded, and why.
    pub fn encode(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Encode(why.into())
    }

    /// Bytes that are no value, and why.
    pub fn decode(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Decode(why.into())
    }
}

/// How the values of a map become bytes. It is named as a type, and there are no values of it.
///
/// Any serde format takes a few lines:
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
/// Bytes come from the network: `decode` must refuse what isn't a value, whatever it is, and never panic.
pub trait ValueCodec<V> {
    /// The bytes of `value`.
    ///
    /// # Errors
    /// [`ValueError::Encode`].
    fn encode(value: &V) -> Result<Bytes, ValueError>;

    /// The value that all of `bytes` are.
    ///
    /// # Errors
    /// [`ValueError::Decode`].
    fn decode(bytes: &Bytes) -> Result<V, ValueError>;
}

/// bincode's standard configuration; bytes behind a value are refused. The default.
///
/// Compact and fast, and a field more or less makes another type of it: take a format that names its fields for values
/// that are to outlive their type.
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

/// A number of 64 bits as decimal text, in its one form: what `increment` reads and writes.
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
            .ok_or_else(|| ValueError::decode("no decimal number of 64 bits"))
    }
}
