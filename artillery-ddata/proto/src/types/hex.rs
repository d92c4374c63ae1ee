//! Ids as text.

/// A cluster id as it is written: 32 lower-case digits.
pub(crate) fn parse_hex(text: &str) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == 32 && text.bytes().all(is_digit)).then(|| u128::from_str_radix(text, 16).ok())?
}
