//! The one place that knows bincode (docs/adr/0002): headers, never values.

use serde::{Serialize, de::DeserializeOwned};

/// The largest encoded header that is taken in, in bytes. Encoding isn't bounded by it: senders bound what they put in.
pub const MAX_HEADER: usize = 1 << 20;

/// Why bytes are no header, or a header no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes are not an encoding of the expected type.
    #[error("malformed header: {0}")]
    Malformed(String),
    /// The header ended before its bytes did.
    #[error("{0} bytes left over behind a header")]
    Trailing(usize),
    /// More than [`MAX_HEADER`] bytes.
    #[error("a header of {0} bytes, at most {MAX_HEADER} are allowed")]
    TooLarge(usize),
    /// The value can't be encoded.
    #[error("can't be encoded: {0}")]
    Unencodable(String),
}

fn config() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MAX_HEADER>()
}

/// Appends the encoding of `header` to `out`.
///
/// # Errors
/// [`CodecError::Unencodable`] when its serializer refuses.
pub fn encode<T: Serialize>(header: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    bincode::serde::encode_into_std_write(header, out, config())
        .map(|_| ())
        .map_err(|error| CodecError::Unencodable(error.to_string()))
}

/// Decodes a header that takes up all of `bytes`.
///
/// # Errors
/// [`CodecError`], which names what is wrong; nothing is allocated beyond a small multiple of [`MAX_HEADER`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > MAX_HEADER {
        return Err(CodecError::TooLarge(bytes.len()));
    }
    let (header, used) =
        bincode::serde::decode_from_slice(bytes, config()).map_err(|error| CodecError::Malformed(error.to_string()))?;
    match bytes.len() - used {
        0 => Ok(header),
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
    fn oversized_headers_are_refused() {
        assert_eq!(decode::<Vec<u8>>(&vec![0; MAX_HEADER + 1]), Err(CodecError::TooLarge(MAX_HEADER + 1)));
    }

    #[test]
    fn a_claimed_length_is_not_believed() {
        let mut bytes = Vec::new();
        encode(&(u64::MAX >> 1), &mut bytes).unwrap();
        assert!(matches!(decode::<Vec<u64>>(&bytes), Err(CodecError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn round_trip(header: (u64, Vec<u8>, Option<String>)) {
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
