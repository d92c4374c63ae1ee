//! Glob patterns with Redis's rules.

use super::reply::Reply;

/// The longest pattern, in bytes: matching takes the product of the lengths in steps, for each key.
const MAX_PATTERN: usize = 1024;

/// Checks the length of a pattern.
pub(super) fn check(pattern: &[u8]) -> Result<(), Reply> {
    if pattern.len() <= MAX_PATTERN {
        return Ok(());
    }
    Err(Reply::error(format_args!("a pattern of {} bytes, at most {MAX_PATTERN} are allowed", pattern.len())))
}

/// Whether `text` matches: `*` any bytes, `?` one byte, `[a-z]` a byte of the class, `[^a]` any other byte, `\` escapes
/// the next.
///
/// Backtracks only to the last `*`, so that the running time is at most the product of the lengths.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // The backtracking point: the pattern after the last `*`, and the text after the bytes that this `*` matches.
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            again = Some((rest, text));
            pattern = rest;
            continue;
        }
        match (one(pattern, text.first().copied()), text) {
            (_, []) if pattern.is_empty() => return true,
            (Some(rest), [_, behind @ ..]) => (pattern, text) = (rest, behind),
            _ => match again {
                Some((rest, [_, behind @ ..])) => {
                    again = Some((rest, behind));
                    (pattern, text) = (rest, behind);
                }
                _ => return false,
            },
        }
    }
}

/// The rest of the pattern, if its first element matches this byte.
fn one(pattern: &[u8], byte: Option<u8>) -> Option<&[u8]> {
    let byte = byte?;
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', escaped, rest @ ..] => (*escaped == byte).then_some(rest),
        [same, rest @ ..] => (*same == byte).then_some(rest),
        [] => None,
    }
}

/// Matches a class, after its `[`. Returns the rest of the pattern. An unclosed class extends to the end of the
/// pattern.
fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (not, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut within = false;
    loop {
        rest = match rest {
            [b']', behind @ ..] => return (within != not).then_some(behind),
            [] => return (within != not).then_some(rest),
            [b'\\', escaped, behind @ ..] => {
                within |= *escaped == byte;
                behind
            }
            [from, b'-', to, behind @ ..] => {
                within |= (*from.min(to)..=*from.max(to)).contains(&byte);
                behind
            }
            [same, behind @ ..] => {
                within |= *same == byte;
                behind
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let yes = [
            ("*", ""),
            ("*", "abc"),
            ("a*c", "abbbc"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[^a]x", "bx"),
            ("\\*", "*"),
            ("*a*b*", "xxaxxbxx"),
            ("", ""),
            ("[\\]]", "]"),
            ("a**b", "ab"),
            ("key:*", "key:000"),
            ("[c-a]", "b"),
        ];
        let no = [
            ("", "a"),
            ("a", ""),
            ("?", ""),
            ("a*c", "abb"),
            ("[a-c]x", "dx"),
            ("[^a]x", "ax"),
            ("\\*", "x"),
            ("a", "ab"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        // An algorithm that backtracks to every `*` would take exponential time here.
        assert!(!matches("*a".repeat(30).as_bytes(), ("a".repeat(3000) + "b").as_bytes()));
    }
}
