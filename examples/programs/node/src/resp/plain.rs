//! Plain commands, `GET key` and `SET key value`, parsed in place in the receive buffer.
//!
//! Only complete, well-formed commands within limits are parsed here. All others, valid or not, are left to
//! [`Frames`](super::frame::Frames).

use super::frame::Bounds;

/// Maximum digits of a length: longer words gain nothing here.
const MAX_DIGITS: usize = 8;

/// A plain command, with its words as slices of the received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plain<'a> {
    Get { key: &'a [u8] },
    Set { key: &'a [u8], value: &'a [u8] },
}

/// The plain command at the beginning of `bytes`, and its length.
pub(super) fn first<'a>(bytes: &'a [u8], bounds: &Bounds) -> Option<(Plain<'a>, usize)> {
    if !bounds.trusted {
        return None;
    }
    let (words, rest) = match bytes {
        [b'*', words @ (b'2' | b'3'), b'\r', b'\n', b'$', b'3', b'\r', b'\n', rest @ ..] => (*words, rest),
        _ => return None,
    };
    let (name, rest) = rest.split_first_chunk::<5>()?;
    if !name.ends_with(b"\r\n") {
        return None;
    }
    let (key, rest) = word(rest, bounds)?;
    let (plain, rest) = match words {
        b'2' if name[..3].eq_ignore_ascii_case(b"get") => (Plain::Get { key }, rest),
        b'3' if name[..3].eq_ignore_ascii_case(b"set") => {
            let (value, rest) = word(rest, bounds)?;
            (Plain::Set { key, value }, rest)
        }
        _ => return None,
    };
    let len = bytes.len() - rest.len();
    (len <= bounds.command).then_some((plain, len))
}

/// A complete word, and the bytes after it.
fn word<'a>(bytes: &'a [u8], bounds: &Bounds) -> Option<(&'a [u8], &'a [u8])> {
    let digits = bytes.strip_prefix(b"$")?;
    let (mut len, mut at) = (0, 0);
    while let Some(digit @ b'0'..=b'9') = digits.get(at).filter(|_| at < MAX_DIGITS) {
        // Leading zeros are invalid, as everywhere.
        if at == 1 && len == 0 {
            return None;
        }
        (len, at) = (len * 10 + usize::from(digit - b'0'), at + 1);
    }
    let rest = digits.get(at..).filter(|_| at > 0)?.strip_prefix(b"\r\n")?;
    let (word, rest) = rest.split_at_checked(len)?;
    Some((word, rest.strip_prefix(b"\r\n")?)).filter(|_| len <= bounds.word)
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, Bytes, BytesMut};
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;
    use crate::resp::frame::{Frames, Next};

    const BOUNDS: Bounds = Bounds { word: 1000, command: 1500, trusted: true };

    fn get(key: &[u8]) -> Plain<'_> {
        Plain::Get { key }
    }

    #[test]
    fn plain_commands_are_read_where_they_lie() {
        let bytes = b"*2\r\n$3\r\ngEt\r\n$4\r\n\r\n\0*\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\nPING";
        let (plain, len) = first(bytes, &BOUNDS).unwrap();
        assert_eq!((plain, len), (get(b"\r\n\0*"), 23));
        let (plain, more) = first(&bytes[len..], &BOUNDS).unwrap();
        assert_eq!((plain, more), (Plain::Set { key: b"k", value: b"" }, 26));
        assert_eq!(first(&bytes[len + more..], &BOUNDS), None);
        for end in 0..len {
            assert_eq!(first(&bytes[..end], &BOUNDS), None, "the first {end} bytes");
        }
    }

    #[test]
    fn other_commands_are_left_alone() {
        for other in [
            &b"GET k\r\n"[..],
            b"*2\r\n$3\r\nSET\r\n$1\r\nk\r\n",
            b"*3\r\n$3\r\nGET\r\n$1\r\nk\r\n$1\r\nk\r\n",
            b"*2\r\n$4\r\nVGET\r\n$1\r\nk\r\n",
            b"*2\r\n$3\r\nGETx\n$1\r\nk\r\n",
            b"*2\r\n$3\r\nGET\r\n$01\r\nk\r\n",
            b"*2\r\n$3\r\nGET\r\n$-1\r\nk\r\n",
            b"*2\r\n$3\r\nGET\r\n$\r\nk\r\n",
            b"*2\r\n$3\r\nGET\r\n:1\r\nk\r\n",
            b"*2\r\n$3\r\nGET\r\n$1\r\nkk\r\n",
            b"*2\r\n$3\r\nGET\r\n$18446744073709551617\r\nk\r\n",
        ] {
            assert_eq!(first(other, &BOUNDS), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn commands_beyond_the_bounds_are_left_alone() {
        let set = |key: usize, value: usize| {
            format!("*3\r\n$3\r\nSET\r\n${key}\r\n{}\r\n${value}\r\n{}\r\n", "k".repeat(key), "v".repeat(value))
        };
        let taken = |bytes: String, bounds: Bounds| first(bytes.as_bytes(), &bounds).is_some();
        let long = 1500 - set(600, 600).len() + 600;
        assert!(taken(set(1000, 1), BOUNDS) && taken(set(1, 1000), BOUNDS) && taken(set(600, long), BOUNDS));
        assert!(!taken(set(1001, 1), BOUNDS) && !taken(set(1, 1001), BOUNDS) && !taken(set(600, long + 1), BOUNDS));
        assert!(!taken(set(1, 1), Bounds { trusted: false, ..BOUNDS }));
    }

    /// Parses the bytes, split at `cuts`, with or without the fast path.
    fn commands(bytes: &[u8], cuts: &[usize], bounds: &Bounds, short: bool) -> Vec<Next> {
        let (mut frames, mut buffer, mut rest, mut seen) = (Frames::default(), BytesMut::new(), bytes, Vec::new());
        for cut in cuts.iter().copied().chain([bytes.len()]) {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            buffer.extend_from_slice(piece);
            rest = behind;
            loop {
                if short
                    && frames.is_new()
                    && let Some((plain, len)) = first(&buffer, bounds)
                {
                    let (name, words) = match plain {
                        Plain::Get { key } => ("get", vec![key]),
                        Plain::Set { key, value } => ("set", vec![key, value]),
                    };
                    let words = [name.as_bytes()].into_iter().chain(words).map(Bytes::copy_from_slice);
                    seen.push(Next::Command(words.collect()));
                    buffer.advance(len);
                    continue;
                }
                let next = match frames.next(&mut buffer, bounds) {
                    Next::Command(mut words) => {
                        words[0] = words[0].to_ascii_lowercase().into();
                        Next::Command(words)
                    }
                    next => next,
                };
                let goes_on = matches!(next, Next::Command(_));
                let is_bad = matches!(next, Next::Bad(_));
                seen.push(next);
                if is_bad {
                    return seen;
                }
                if !goes_on {
                    break;
                }
            }
        }
        seen
    }

    /// A number as text, in which `?` stands for the right number.
    fn number() -> impl Strategy<Value = String> {
        let others = vec!["0?", "-?", "+?", " ?", "? ", "", "-0", "-1", "a", "100000000", "18446744073709551617"];
        prop_oneof![
            9 => Just("?".to_owned()),
            2 => select(others).prop_map(str::to_owned),
            1 => (-3_i64..1100).prop_map(|number| number.to_string()),
        ]
    }

    /// A word after its length, or after another number.
    fn word_with(word: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
        let end = prop_oneof![12 => Just("\r\n"), 1 => select(vec!["\n", "\r", "xx", ""])];
        let mark = prop_oneof![20 => Just('$'), 1 => select(vec![':', '*', '+'])];
        (word, number(), mark, end).prop_map(|(word, number, mark, end)| {
            let number = number.replace('?', &word.len().to_string());
            [format!("{mark}{number}\r\n").as_bytes(), &word, end.as_bytes()].concat()
        })
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let name =
            select(vec!["GET", "get", "gEt", "SET", "set", "Set", "VGET", "PING", "INCR", "MULTI", "GEX", "SETNX"]);
        let text = prop_oneof![
            vec(any::<u8>(), 0..20),
            vec(select(b"\r\n$*0123abc".to_vec()), 0..8),
            vec(Just(b'x'), 0..1100)
        ];
        let name = name.prop_map(|name| name.as_bytes().to_vec());
        let command = (word_with(name), vec(word_with(text), 0..4), number());
        let command = command.prop_map(|(name, words, number)| {
            let number = number.replace('?', &(words.len() + 1).to_string());
            [format!("*{number}\r\n").into_bytes(), name, words.concat()].concat()
        });
        prop_oneof![
            10 => command,
            1 => select(vec![&b"GET k\r\n"[..], b"\r\n", b"*0\r\n", b"*-1\r\n", b"$-1\r\n", b"SET k 'a b'\n"]).prop_map(<[u8]>::to_vec),
            1 => vec(any::<u8>(), 0..30),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn both_ways_read_the_same(
            pieces in vec(piece(), 1..12),
            cuts in vec(0_usize..80, 0..30),
            trusted in prop::bool::weighted(0.9),
        ) {
            let (bytes, bounds) = (pieces.concat(), Bounds { trusted, ..BOUNDS });
            let short = commands(&bytes, &cuts, &bounds, true);
            prop_assert_eq!(short, commands(&bytes, &cuts, &bounds, false));
        }
    }
}
