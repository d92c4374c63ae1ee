//! Answers, and their encoding in both versions of the protocol.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use redis_protocol::{
    error::RedisProtocolError,
    resp2::{self, types::BorrowedFrame},
    resp3::{
        self,
        types::{BorrowedFrame as Frame3, VerbatimStringFormat},
    },
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// A word that is part of the protocol, such as `OK`.
    Word(&'static str),
    /// An error text, whose first word is its kind.
    Error(Cow<'static, str>),
    Number(i64),
    Value(Bytes),
    Absent,
    /// No list, for example for a transaction that was not executed.
    NoList,
    List(Vec<Reply>),
    /// Names and values: a flat list in version 2.
    Map(Vec<(Reply, Reply)>),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Two,
    Three,
}

impl Reply {
    pub(super) const OK: Self = Self::Word("OK");

    /// An error of the generic kind `ERR`.
    pub(super) fn error(text: impl std::fmt::Display) -> Self {
        Self::Error(format!("ERR {text}").into())
    }

    pub(super) fn text(text: impl AsRef<str>) -> Self {
        Self::Value(Bytes::copy_from_slice(text.as_ref().as_bytes()))
    }

    pub(super) fn found(value: Option<Bytes>) -> Self {
        value.map_or(Self::Absent, Self::Value)
    }

    pub(super) fn count(count: usize) -> Self {
        Self::Number(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// 1 or 0.
    pub(super) fn flag(flag: bool) -> Self {
        Self::Number(flag.into())
    }

    /// The total bytes of its values.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => value.len(),
            Self::Text(text) => text.len(),
            Self::List(all) => all.iter().map(Self::bytes).sum(),
            Self::Map(all) => all.iter().map(|(name, value)| name.bytes() + value.bytes()).sum(),
            Self::Word(_) | Self::Error(_) | Self::Number(_) | Self::Absent | Self::NoList => 0,
        }
    }

    /// Replaces this answer with an error if it holds values, because there are no permits for them. `applied`: its
    /// command has taken effect.
    pub(super) fn lost(self, applied: bool) -> Self {
        match self.bytes() {
            0 => self,
            _ if applied => Self::Error("UNKNOWN the command was applied, but its result was dropped: too many bytes of large answers are in flight".into()),
            _ => Self::no_room(),
        }
    }

    /// The error in place of a large answer that gets no permits.
    pub(super) fn no_room() -> Self {
        Self::Error("BUSY too many bytes of large answers are in flight".into())
    }

    pub(super) fn encode(&self, out: &mut BytesMut, protocol: Protocol) {
        let new = protocol == Protocol::Three;
        match self {
            Self::Word(word) => {
                out.put_u8(b'+');
                out.put_slice(word.as_bytes());
                out.put_slice(b"\r\n");
            }
            Self::Error(text) => leaf(out, &BorrowedFrame::Error(&one_line(text))),
            Self::Number(number) => leaf(out, &BorrowedFrame::Integer(*number)),
            Self::Value(value) => bulk(out, value),
            Self::Absent | Self::NoList if new => out.put_slice(b"_\r\n"),
            Self::Absent => out.put_slice(b"$-1\r\n"),
            Self::NoList => out.put_slice(b"*-1\r\n"),
            Self::List(all) => {
                begin(out, b'*', all.len());
                all.iter().for_each(|one| one.encode(out, protocol));
            }
            Self::Map(all) => {
                if new {
                    begin(out, b'%', all.len());
                } else {
                    begin(out, b'*', all.len() * 2);
                }
                for (name, value) in all {
                    name.encode(out, protocol);
                    value.encode(out, protocol);
                }
            }
            Self::Text(text) if new => {
                let format = VerbatimStringFormat::Text;
                leaf3(out, &Frame3::VerbatimString { data: text.as_bytes(), format, attributes: None });
            }
            Self::Text(text) => bulk(out, text.as_bytes()),
        }
    }
}

/// Writes the first line of a list or a bulk string: the type byte `mark` and the length.
fn begin(out: &mut BytesMut, mark: u8, len: usize) {
    let mut line = [b'0'; 23];
    let (mut at, mut rest) = (line.len() - 2, len);
    line[at..].copy_from_slice(b"\r\n");
    loop {
        at -= 1;
        line[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at -= 1;
    line[at] = mark;
    out.put_slice(&line[at..]);
}

fn bulk(out: &mut BytesMut, bytes: &[u8]) {
    begin(out, b'$', bytes.len());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

fn leaf(out: &mut BytesMut, frame: &BorrowedFrame<'_>) {
    encoded(resp2::encode::extend_encode_borrowed(out, frame, false));
}

fn leaf3(out: &mut BytesMut, frame: &Frame3<'_>) {
    encoded(resp3::encode::complete::extend_encode_borrowed(out, frame, false));
}

fn encoded(result: Result<usize, RedisProtocolError>) {
    debug_assert!(result.is_ok(), "the buffer grows, so it can't be too short: {result:?}");
}

/// An error must be a single line.
fn one_line(text: &str) -> Cow<'_, str> {
    if text.contains(['\r', '\n']) { text.replace(['\r', '\n'], " ").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(reply: &Reply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        reply.encode(&mut out, protocol);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn lengths_of_all_sizes_are_encoded() {
        for len in [0, 9, 10, 1000, 65_536, usize::MAX] {
            let mut out = BytesMut::new();
            begin(&mut out, b'$', len);
            assert_eq!(out, format!("${len}\r\n"));
        }
    }

    #[test]
    fn replies_are_encoded_in_both_versions() {
        let pair = (Reply::text("n"), Reply::Number(-3));
        let cases = [
            (Reply::OK, "+OK\r\n", "+OK\r\n"),
            (Reply::error("a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (Reply::Number(-7), ":-7\r\n", ":-7\r\n"),
            (Reply::text("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (Reply::text(""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Reply::Absent, "$-1\r\n", "_\r\n"),
            (Reply::NoList, "*-1\r\n", "_\r\n"),
            (Reply::List(vec![Reply::Absent, Reply::Number(1)]), "*2\r\n$-1\r\n:1\r\n", "*2\r\n_\r\n:1\r\n"),
            (Reply::List(vec![]), "*0\r\n", "*0\r\n"),
            (Reply::Map(vec![pair]), "*2\r\n$1\r\nn\r\n:-3\r\n", "%1\r\n$1\r\nn\r\n:-3\r\n"),
            (Reply::Text("x".to_owned()), "$1\r\nx\r\n", "=5\r\ntxt:x\r\n"),
        ];
        for (reply, two, three) in cases {
            assert_eq!(bytes(&reply, Protocol::Two), two);
            assert_eq!(bytes(&reply, Protocol::Three), three);
        }
    }
}
