//! Ids as text.

/// The text isn't an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{text:?} is not a valid {expected}")]
pub struct ParseIdError {
    text: String,
    /// The kind of id and its form.
    expected: &'static str,
}

/// Parses `text` by `parse`; `expected` names the kind of id and its form.
pub fn parsed<T>(text: &str, expected: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, ParseIdError> {
    parse(text).ok_or_else(|| ParseIdError { text: text.to_owned(), expected })
}

/// Parses a 128-bit id: 32 lower-case hexadecimal digits.
pub fn parse_hex(text: &str) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == 32 && text.bytes().all(is_digit)).then(|| u128::from_str_radix(text, 16).ok())?
}
