//! Splits received bytes into commands, which are bounded while incomplete and decoded once complete.
//!
//! The codec trusts the lengths that a peer announces: unbounded lengths would exhaust memory, and deep nesting the
//! stack. So the announced lengths are checked first, each once, however the bytes are split; the codec sees only
//! complete commands that consist of strings.

use bytes::{Buf, Bytes, BytesMut};
use redis_protocol::resp2::{decode::decode_range, types::RangeFrame};
use smallvec::SmallVec;

use super::{inline, number};

/// Maximum bytes of a line: of one that announces a length, or of a whole inline command.
const MAX_LINE: usize = 64 << 10;
const MAX_WORDS: i64 = 1 << 20;
/// Limits for a client that hasn't sent the password: number of words, and bytes of each.
const MAX_STRANGE: (i64, i64) = (10, 16 << 10);

/// The name and the arguments of a command.
pub(super) type Words = SmallVec<[Bytes; 4]>;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Command(Words),
    /// The beginning of a command of at least this many bytes.
    Part(usize),
    /// Invalid bytes: the rest of the stream can't be parsed.
    Bad(String),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Maximum bytes of a word.
    pub(super) word: usize,
    /// Maximum bytes of a command.
    pub(super) command: usize,
    /// Whether the client has sent the password, or needs none.
    pub(super) trusted: bool,
}

/// The scan state of the first command in the buffer.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Position up to which the command is scanned; it may lie beyond the received bytes.
    at: usize,
    /// Number of words not scanned yet; `None` if their total is still unknown.
    left: Option<i64>,
}

enum Stop {
    Part,
    Bad(String),
}

impl Frames {
    /// Whether no part of a command has been scanned yet.
    pub(super) fn is_new(&self) -> bool {
        self.left.is_none()
    }

    pub(super) fn next(&mut self, buffer: &mut BytesMut, bounds: &Bounds) -> Next {
        loop {
            if self.left.is_none() && buffer.first().is_none_or(|first| *first != b'*') {
                match inline_command(buffer) {
                    Next::Command(words) if words.is_empty() => continue,
                    next => return next,
                }
            }
            match self.look(buffer, bounds) {
                Ok(()) => {}
                Err(Stop::Part) => return Next::Part(self.at),
                Err(Stop::Bad(text)) => return Next::Bad(text),
            }
            let frame = buffer.split_to(self.at).freeze();
            *self = Self::default();
            match decode(&frame) {
                Some(words) if words.is_empty() => {}
                Some(words) => return Next::Command(words),
                None => return Next::Bad("invalid multibulk length".to_owned()),
            }
        }
    }

    /// Continues the scan up to the end of a command in array form.
    fn look(&mut self, buffer: &[u8], bounds: &Bounds) -> Result<(), Stop> {
        if self.left.is_none() {
            let (words, behind) = announced(buffer, 0, "mbulk count", "multibulk length", MAX_WORDS)?;
            if !bounds.trusted && words > MAX_STRANGE.0 {
                return Err(bad("unauthenticated multibulk length"));
            }
            (self.at, self.left) = (behind, Some(words.max(0)));
        }
        while let Some(left) = self.left.filter(|left| *left > 0) {
            match buffer.get(self.at) {
                None => return Err(Stop::Part),
                Some(b'$') => {}
                Some(other) => return Err(Stop::Bad(format!("expected '$', got '{}'", char::from(*other)))),
            }
            let most = i64::try_from(bounds.word).unwrap_or(i64::MAX);
            let (len, behind) = announced(buffer, self.at, "bulk count", "bulk length", most)?;
            let Ok(bytes) = usize::try_from(len) else { return Err(bad("invalid bulk length")) };
            if !bounds.trusted && len > MAX_STRANGE.1 {
                return Err(bad("unauthenticated bulk length"));
            }
            (self.at, self.left) = (behind.saturating_add(bytes).saturating_add(2), Some(left - 1));
            if self.at > bounds.command {
                return Err(Stop::Bad(format!("too big command, at most {} bytes are allowed", bounds.command)));
            }
        }
        if self.at > buffer.len() { Err(Stop::Part) } else { Ok(()) }
    }
}

/// Parses the number after the type byte at `at`. Returns it with the position after its line.
fn announced(buffer: &[u8], at: usize, line: &str, what: &str, most: i64) -> Result<(i64, usize), Stop> {
    let rest = &buffer[at + 1..];
    let Some(end) = rest.windows(2).take(MAX_LINE).position(|pair| pair == b"\r\n") else {
        let too_long = rest.len() > MAX_LINE;
        return Err(if too_long { Stop::Bad(format!("too big {line} string")) } else { Stop::Part });
    };
    match number::integer(&rest[..end]) {
        Some(number) if number <= most => Ok((number, at + end + 3)),
        _ => Err(Stop::Bad(format!("invalid {what}"))),
    }
}

fn bad(text: &str) -> Stop {
    Stop::Bad(text.to_owned())
}

/// A command as a person types it: one line, with words in quotes where needed. Without words if the line is empty.
fn inline_command(buffer: &mut BytesMut) -> Next {
    let Some(end) = buffer.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
        let too_long = buffer.len() >= MAX_LINE;
        return if too_long { Next::Bad("too big inline request".to_owned()) } else { Next::Part(buffer.len()) };
    };
    let line = buffer.split_to(end);
    buffer.advance(1);
    match inline::split(line.strip_suffix(b"\r").unwrap_or(&line)) {
        Some(words) => Next::Command(words),
        None => Next::Bad("unbalanced quotes in request".to_owned()),
    }
}

/// The words of a complete command, as slices of its bytes.
fn decode(frame: &Bytes) -> Option<Words> {
    let Ok(Some((RangeFrame::Array(words), _))) = decode_range(frame) else {
        // A negative count means no words.
        return frame.starts_with(b"*-").then(Words::new);
    };
    let word = |word| if let RangeFrame::BulkString((from, to)) = word { Some(frame.slice(from..to)) } else { None };
    words.into_iter().map(word).collect()
}

/// Longer words are kept as slices of the received buffer, shorter ones are copied.
pub(super) const SHORT: usize = 16 << 10;

/// Keeps a word beyond the lifetime of its command. Short words are copied: a slice would keep the whole received
/// buffer alive.
pub(super) fn keep(word: &Bytes) -> Bytes {
    if word.len() <= SHORT { Bytes::copy_from_slice(word) } else { word.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { word: 1000, command: 3000, trusted: true };

    /// The commands in these bytes. Also parses them in about a hundred pieces, or in single bytes, with the same result.
    fn all(bytes: &[u8]) -> Vec<Next> {
        let run = |pieces: Vec<&[u8]>| {
            let (mut frames, mut buffer, mut seen) = (Frames::default(), BytesMut::new(), Vec::new());
            for piece in pieces {
                buffer.extend_from_slice(piece);
                loop {
                    match frames.next(&mut buffer, &BOUNDS) {
                        Next::Part(_) => break,
                        Next::Bad(text) => {
                            seen.push(Next::Bad(text));
                            return seen;
                        }
                        next => seen.push(next),
                    }
                }
            }
            seen
        };
        let whole = run(vec![bytes]);
        assert_eq!(
            run(bytes.chunks((bytes.len() / 100).max(1)).collect()),
            whole,
            "{}",
            String::from_utf8_lossy(bytes)
        );
        whole
    }

    fn command(words: &[&str]) -> Next {
        Next::Command(words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect())
    }

    #[test]
    fn commands_in_any_pieces_are_found() {
        let get = command(&["GET", "k"]);
        assert_eq!(all(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), [get]);
        assert_eq!(
            all(b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\0*\r\nPING\r\n"),
            [command(&["GET", "\r\n\0*"]), command(&["PING"])]
        );
        assert_eq!(all(b"*0\r\n\r\n*-1\r\n*-7\r\n  \nget 'a b'\n"), [command(&["get", "a b"])]);
        assert_eq!(all(b"*1\r\n$0\r\n\r\n"), [command(&[""])]);
    }

    #[test]
    fn announced_lengths_are_believed_within_bounds() {
        let bad = |bytes: &[u8], text: &str| {
            assert_eq!(all(bytes), [Next::Bad(text.to_owned())], "{}", String::from_utf8_lossy(bytes));
        };
        bad(b"*1048577\r\n", "invalid multibulk length");
        bad(b"*abc\r\n", "invalid multibulk length");
        bad(b"*+1\r\n", "invalid multibulk length");
        bad(b"*1\r\n$-1\r\n", "invalid bulk length");
        bad(b"*1\r\n$1001\r\n", "invalid bulk length");
        bad(b"*1\r\n*1\r\n", "expected '$', got '*'");
        bad(b"*9\r\n:1\r\n", "expected '$', got ':'");
        bad(b"set 'a\r\n", "unbalanced quotes in request");
        let words = format!("*4\r\n{}", format!("$999\r\n{}\r\n", "x".repeat(999)).repeat(2) + "$999\r\n");
        bad(words.as_bytes(), "too big command, at most 3000 bytes are allowed");
        bad(&[b'x'; MAX_LINE], "too big inline request");
        bad(&[b"*".as_slice(), &[b'1'; MAX_LINE + 1]].concat(), "too big mbulk count string");
    }

    #[test]
    fn a_part_says_how_much_is_known() {
        let (mut frames, mut buffer) = (Frames::default(), BytesMut::from(&b"*2\r\n$3\r\nSET\r\n$500\r\nab"[..]));
        assert_eq!(frames.next(&mut buffer, &BOUNDS), Next::Part(4 + 9 + 6 + 502));
    }

    #[test]
    fn strangers_get_smaller_bounds() {
        let bounds = Bounds { trusted: false, word: 1 << 20, command: 1 << 20 };
        for (bytes, text) in [
            (&b"*11\r\n"[..], "unauthenticated multibulk length"),
            (b"*1\r\n$16385\r\n", "unauthenticated bulk length"),
        ] {
            let next = Frames::default().next(&mut BytesMut::from(bytes), &bounds);
            assert_eq!(next, Next::Bad(text.to_owned()));
        }
    }
}
