//! Encodes headers, and the typed values of applications. The only file that uses bincode (docs/adr/0002).

use std::io;

use serde::{Serialize, de::DeserializeOwned};

/// The largest encoded header that is decoded, in bytes. Encoding has no such limit: senders bound what they encode.
pub const MAX_HEADER: usize = 1 << 20;

/// Why bytes could not be decoded, or a value could not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes are not an encoding of the expected type.
    #[error("malformed: {0}")]
    Malformed(String),
    /// Bytes follow the encoding.
    #[error("{0} bytes left over")]
    Trailing(usize),
    /// The header has more than [`MAX_HEADER`] bytes. Not returned for values.
    #[error("a header of {0} bytes exceeds the limit of {MAX_HEADER}")]
    TooLarge(usize),
    /// The value can't be encoded.
    #[error("cannot be encoded: {0}")]
    Unencodable(String),
}

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MAX_HEADER>()
}

/// Appends the encoding of a header or value to `out`.
///
/// # Errors
/// [`CodecError::Unencodable`] if the value cannot be serialized, or `out` fails.
pub fn encode<T: Serialize + ?Sized>(header: &T, out: &mut impl io::Write) -> Result<(), CodecError> {
    bincode::serde::encode_into_std_write(header, out, config())
        .map(|_| ())
        .map_err(|error| CodecError::Unencodable(error.to_string()))
}

/// Whether `bytes` are the encoding of `header`. The decoder also accepts other bytes, such as a small number in a
/// longer encoding.
pub fn is_encoding<T: Serialize + ?Sized>(header: &T, bytes: &[u8]) -> bool {
    let mut left = ExpectedBytes(bytes);
    encode(header, &mut left).is_ok() && left.0.is_empty()
}

struct ExpectedBytes<'a>(&'a [u8]);

impl io::Write for ExpectedBytes<'_> {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        match self.0.strip_prefix(more) {
            Some(left) => self.0 = left,
            None => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decodes a header. All of `bytes` must belong to it.
///
/// # Errors
/// [`CodecError`] except [`CodecError::Unencodable`]. Decoding allocates at most a small multiple of [`MAX_HEADER`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > MAX_HEADER {
        return Err(CodecError::TooLarge(bytes.len()));
    }
    decode_all(bytes, config())
}

/// Memory that the decoder may claim per encoded byte: a small `u128` is encoded in one byte.
const MAX_CLAIM_PER_BYTE: usize = 16;

/// Decodes an application's value. All of `bytes` must belong to it.
///
/// The limits of headers do not apply. A claimed length without its bytes reserves at most 1 MiB for values of up to 64
/// KiB, and 1 GiB of untouched memory for larger ones. The time for a sequence of zero-sized elements and the depth of
/// a recursive type are unbounded.
///
/// # Errors
/// [`CodecError::Malformed`] or [`CodecError::Trailing`].
pub fn decode_value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() <= MAX_HEADER / MAX_CLAIM_PER_BYTE {
        decode_all(bytes, config())
    } else {
        decode_all(bytes, bincode::config::standard().with_limit::<{ (64 << 20) * MAX_CLAIM_PER_BYTE }>())
    }
}

fn decode_all<T: DeserializeOwned>(bytes: &[u8], config: impl bincode::config::Config) -> Result<T, CodecError> {
    let (decoded, used) =
        bincode::serde::decode_from_slice(bytes, config).map_err(|error| CodecError::Malformed(error.to_string()))?;
    match bytes.len() - used {
        0 => Ok(decoded),
        left => Err(CodecError::Trailing(left)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn trailing_bytes_are_refused() {
        let mut bytes = Vec::new();
        encode(&(1u64, "x"), &mut bytes).unwrap();
        bytes.push(0);
        assert_eq!(decode::<(u64, String)>(&bytes), Err(CodecError::Trailing(1)));
    }

    #[test]
    fn only_its_own_encoding_is_one() {
        let mut bytes = Vec::new();
        encode(&(7u64, "x"), &mut bytes).unwrap();
        assert!(is_encoding(&(7u64, "x"), &bytes));
        assert!(!is_encoding(&(8u64, "x"), &bytes) && !is_encoding(&(7u64, "xy"), &bytes));
        // The same number, encoded in three bytes.
        let longer = [&[251, 7, 0], &bytes[1..]].concat();
        assert_eq!(decode::<(u64, String)>(&longer), Ok((7, "x".to_owned())));
        assert!(!is_encoding(&(7u64, "x"), &longer));
    }

    #[test]
    fn oversized_headers_are_refused() {
        assert_eq!(decode::<Vec<u8>>(&vec![0; MAX_HEADER + 1]), Err(CodecError::TooLarge(MAX_HEADER + 1)));
    }

    #[test]
    fn a_claimed_length_is_not_believed() {
        let mut bytes = Vec::new();
        encode(&(u64::MAX >> 1), &mut bytes).unwrap();
        assert!(matches!(decode::<Vec<u64>>(&bytes), Err(CodecError::Malformed(_))));
    }

    #[test]
    fn values_may_be_larger_than_headers() {
        let value = (vec![1u128; MAX_HEADER / MAX_CLAIM_PER_BYTE + 1], "x".repeat(MAX_HEADER));
        let mut bytes = Vec::new();
        encode(&value, &mut bytes).unwrap();
        assert!(decode::<(Vec<u128>, String)>(&bytes).is_err());
        assert_eq!(decode_value(&bytes), Ok(value));
        bytes.push(0);
        assert_eq!(decode_value::<(Vec<u128>, String)>(&bytes), Err(CodecError::Trailing(1)));
    }

    #[test]
    fn every_small_value_is_within_its_limit() {
        let mut bytes = Vec::new();
        let value = vec![1u128; MAX_HEADER / MAX_CLAIM_PER_BYTE - 3];
        encode(&value, &mut bytes).unwrap();
        assert_eq!(bytes.len(), MAX_HEADER / MAX_CLAIM_PER_BYTE);
        assert_eq!(decode_value(&bytes), Ok(value));
    }

    #[test]
    fn a_claimed_length_is_refused() {
        let mut bytes = Vec::new();
        encode(&(u64::MAX / 2), &mut bytes).unwrap();
        assert!(decode_value::<String>(&bytes).is_err());
        bytes.resize(MAX_HEADER, 0);
        assert!(decode_value::<String>(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn headers_round_trip(header: (u64, Vec<u8>, Option<String>)) {
            let mut bytes = Vec::new();
            encode(&header, &mut bytes).unwrap();
            prop_assert_eq!(decode::<(u64, Vec<u8>, Option<String>)>(&bytes).unwrap(), header);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = decode::<(u64, Vec<String>, Option<u32>)>(&bytes);
        }
    }
}
