//! Numbers as words.

/// Parses a number in its canonical decimal form: no sign but `-`, no blanks, no leading zeros.
pub(super) fn integer(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let plain = match digits {
        [b'0'] => digits.len() == word.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if plain { std::str::from_utf8(word).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_form() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }
        for bad in ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "a"] {
            assert_eq!(integer(bad.as_bytes()), None, "{bad}");
        }
    }
}
