//! The words of an inline command.

use super::frame::Words;

/// Splits a line into words at whitespace. A word in double quotes may hold escapes (`\n`, `\xff`), one in single quotes
/// only `\'`. `None` if a quote isn't closed, or if other text follows the closing quote.
pub(super) fn split(line: &[u8]) -> Option<Words> {
    let mut words = Words::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let (word, behind) = word(rest)?;
        words.push(word.into());
        rest = behind;
    }
}

fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [b'"', more @ ..] => return closed(double_quoted(more, &mut word)?).map(|rest| (word, rest)),
            [b'\'', more @ ..] => return closed(single_quoted(more, &mut word)?).map(|rest| (word, rest)),
            [] => return Some((word, rest)),
            [byte, ..] if byte.is_ascii_whitespace() || *byte == 0 => return Some((word, &rest[1..])),
            [byte, more @ ..] => {
                word.push(*byte);
                rest = more;
            }
        }
    }
}

/// The rest after a closing quote, if it is empty or begins with whitespace.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(u8::is_ascii_whitespace).then_some(rest)
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, more) = match rest {
            [] => return None,
            [b'"', more @ ..] => return Some(more),
            [b'\\', b'x', high, low, more @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (digit(*high) << 4 | digit(*low), more)
            }
            [b'\\', escaped, more @ ..] => (escape(*escaped), more),
            [byte, more @ ..] => (*byte, more),
        };
        word.push(byte);
        rest = more;
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, more) = match rest {
            [] => return None,
            [b'\'', more @ ..] => return Some(more),
            [b'\\', b'\'', more @ ..] => (b'\'', more),
            [byte, more @ ..] => (*byte, more),
        };
        word.push(byte);
        rest = more;
    }
}

fn digit(byte: u8) -> u8 {
    char::from(byte).to_digit(16).unwrap_or(0) as u8
}

fn escape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<Vec<u8>>> {
        Some(split(line.as_bytes())?.iter().map(|word| word.to_vec()).collect())
    }

    #[test]
    fn quotes_and_escapes_are_parsed() {
        let some = |words: &[&[u8]]| Some(words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
        assert_eq!(words("set  k\tv "), some(&[b"set", b"k", b"v"]));
        assert_eq!(words(r#"set "a b\n\xff\x4" 'c\'d\n'"#), some(&[b"set", b"a b\n\xffx4", b"c'd\\n"]));
        assert_eq!(words(r#"set "" ''"#), some(&[b"set", b"", b""]));
        assert_eq!(words(""), some(&[]));
        for bad in ["set \"a", "set 'a", "set \"a\"b", "set 'a'b", "set \"a\\"] {
            assert_eq!(words(bad), None, "{bad}");
        }
    }
}
