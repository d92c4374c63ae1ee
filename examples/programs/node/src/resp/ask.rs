//! The operations that parsed commands request.

use artillery_ddata::Version;
use bytes::Bytes;

use super::{
    Limits, about,
    expiry::{self, Expires},
    failure::{NOT_AN_INTEGER, SYNTAX},
    frame::{Words, keep},
    keys,
    number::integer,
    read::{Read, What},
    reply::Reply,
    scan::Scan,
    table::{self, Kind, Spec},
    write::{SetAnswer, When, Write},
};

#[derive(Debug, Clone)]
pub(super) enum Ask {
    /// The answer is already known.
    Say(Reply),
    Read(Read),
    Write(Write),
    Own(Own),
    Node(AboutNode),
}

/// Changes or shows the state of a connection.
#[derive(Debug, Clone)]
pub(super) enum Own {
    Auth(Words),
    Hello(Words),
    Client(Words),
    Quit,
    Reset,
    Multi,
    Exec,
    Discard,
    Watch(Vec<Bytes>),
    Unwatch,
}

/// Queries about this node.
#[derive(Debug, Clone)]
pub(super) enum AboutNode {
    Info(Vec<String>),
    DbSize,
    Role,
    Scan(Scan),
    /// The names of all keys that match the pattern.
    Keys(Bytes),
    /// Delete all keys.
    Flush,
    /// Wait until this many other members hold all writes, for up to `ms` milliseconds, or without limit if `ms` is 0.
    Wait {
        copies: i64,
        ms: u64,
    },
}

/// Parses the words of a command. The error is the answer for the client.
pub(super) fn understand(spec: &Spec, words: &Words, limits: &Limits) -> Result<Ask, Reply> {
    Ok(match spec.kind {
        Kind::Get => read(What::Value, words),
        Kind::GetRange => read(What::Range(number(&words[2])?, number(&words[3])?), &words[..2]),
        Kind::StrLen => read(What::Length, words),
        Kind::Exists => read(What::Count, words),
        Kind::Type => read(What::Type, words),
        Kind::MGet => read(What::Values, words),
        Kind::VGet => read(What::Version, words),
        Kind::Set => Ask::Write(expiry::set(spec.name, words)?),
        Kind::SetEx(unit) => Ask::Write(expiry::set_ex(spec.name, words, unit)?),
        Kind::GetEx => expiry::get_ex(words)?,
        Kind::Expire(unit) => Ask::Write(expiry::expire(spec.name, words, unit)?),
        Kind::Persist => Ask::Write(Write::Expire { key: words[1].clone(), ms: None, when: None }),
        Kind::Left(unit) => read(What::Left(unit), words),
        Kind::SetNx => Ask::Write(put(words, When::Absent, SetAnswer::Flag)),
        Kind::GetSet => Ask::Write(put(words, When::Always, SetAnswer::Old)),
        Kind::GetDel => Ask::Write(Write::Take(words[1].clone())),
        Kind::Del => Ask::Write(Write::Delete(words[1..].to_vec())),
        Kind::DelEx => Ask::Write(expiry::delete_if(words)?),
        Kind::DelIfEq => {
            Ask::Write(Write::DeleteIf { key: words[1].clone(), when: When::Is(Box::new(keep(&words[2]))) })
        }
        Kind::Rename { absent } => Ask::Write(Write::Rename { from: words[1].clone(), to: words[2].clone(), absent }),
        Kind::Copy => copy(words)?,
        Kind::SetRange => set_range(words)?,
        Kind::Append => Ask::Write(Write::Append { key: words[1].clone(), value: keep(&words[2]) }),
        Kind::Incr => add(words, 1),
        Kind::Decr => add(words, -1),
        Kind::IncrBy => add(words, number(&words[2])?),
        Kind::DecrBy => {
            add(words, number(&words[2])?.checked_neg().ok_or_else(|| Reply::error("decrement would overflow"))?)
        }
        Kind::IncrByFloat => Ask::Write(Write::AddFloat { key: words[1].clone(), by: keep(&words[2]) }),
        Kind::MSet => Ask::Write(pairs(spec.name, words, false)?),
        Kind::MSetNx => Ask::Write(pairs(spec.name, words, true)?),
        Kind::VSet => Ask::Write(swap(words)?),
        Kind::Ping => ping(words)?,
        Kind::Echo => Ask::Say(Reply::Value(words[1].clone())),
        Kind::Select => Ask::Say(match number(&words[1])? {
            0 => Reply::OK,
            _ => Reply::error("DB index is out of range"),
        }),
        Kind::Flush => {
            keys::check_flush(spec.name, words, limits)?;
            Ask::Node(AboutNode::Flush)
        }
        Kind::Keys => {
            super::glob::check(&words[1])?;
            Ask::Node(AboutNode::Keys(keep(&words[1])))
        }
        Kind::Time => Ask::Say(expiry::time()),
        Kind::Command => Ask::Say(about::command(words)),
        Kind::Config => Ask::Say(about::config(words, limits)),
        Kind::Info => Ask::Node(AboutNode::Info(words[1..].iter().map(lower).collect())),
        Kind::DbSize => Ask::Node(AboutNode::DbSize),
        Kind::Role => Ask::Node(AboutNode::Role),
        Kind::Scan => Ask::Node(AboutNode::Scan(Scan::of(words)?)),
        Kind::Wait => Ask::Node(wait(words)?),
        Kind::Auth => Ask::Own(Own::Auth(words.clone())),
        Kind::Hello => Ask::Own(Own::Hello(words.clone())),
        Kind::Client => Ask::Own(Own::Client(words.clone())),
        Kind::Quit => Ask::Own(Own::Quit),
        Kind::Reset => Ask::Own(Own::Reset),
        Kind::Multi => Ask::Own(Own::Multi),
        Kind::Exec => Ask::Own(Own::Exec),
        Kind::Discard => Ask::Own(Own::Discard),
        Kind::Watch => Ask::Own(Own::Watch(words[1..].iter().map(keep).collect())),
        Kind::Unwatch => Ask::Own(Own::Unwatch),
    })
}

pub(super) fn lower(word: &Bytes) -> String {
    String::from_utf8_lossy(word).to_ascii_lowercase()
}

pub(super) fn number(word: &[u8]) -> Result<i64, Reply> {
    integer(word).ok_or_else(|| Reply::error(NOT_AN_INTEGER))
}

fn read(what: What, words: &[Bytes]) -> Ask {
    Ask::Read(Read::new(what, words[1..].iter().cloned().collect()))
}

fn put(words: &Words, when: When, answer: SetAnswer) -> Write {
    Write::Set { key: words[1].clone(), value: keep(&words[2]), when, answer, expires: Expires::Never }
}

fn set_range(words: &Words) -> Result<Ask, Reply> {
    let offset = u64::try_from(number(&words[2])?).map_err(|_| Reply::error("offset is out of range"))?;
    Ok(match keep(&words[3]) {
        // Nothing is set, not even a new key.
        value if value.is_empty() => read(What::Length, &words[..2]),
        value => Ask::Write(Write::SetRange { key: words[1].clone(), offset, value }),
    })
}

/// `COPY source destination [DB 0] [REPLACE]`
fn copy(words: &Words) -> Result<Ask, Reply> {
    let (from, to) = (words[1].clone(), words[2].clone());
    let (mut replace, mut rest) = (false, &words[3..]);
    while let [option, more @ ..] = rest {
        rest = match (lower(option).as_str(), more) {
            ("replace", _) => {
                replace = true;
                more
            }
            ("db", [database, more @ ..]) => match number(database)? {
                0 => more,
                _ => return Err(Reply::error("DB index is out of range")),
            },
            _ => return Err(Reply::error(SYNTAX)),
        };
    }
    if from == to {
        return Err(Reply::error("source and destination objects are the same"));
    }
    Ok(Ask::Write(Write::Copy { from, to, replace }))
}

fn pairs(name: &str, words: &Words, absent: bool) -> Result<Write, Reply> {
    if words.len().is_multiple_of(2) {
        return Err(table::wrong_number(name));
    }
    let pairs = words[1..].chunks_exact(2).map(|pair| (pair[0].clone(), keep(&pair[1]))).collect();
    Ok(Write::SetMany { pairs, absent })
}

fn add(words: &Words, by: i64) -> Ask {
    Ask::Write(Write::Add { key: words[1].clone(), by })
}

fn swap(words: &Words) -> Result<Write, Reply> {
    let expected: Option<Version> = std::str::from_utf8(&words[2]).ok().and_then(|text| text.parse().ok());
    let expected = expected.ok_or_else(|| Reply::error("version is not EPOCH.SEQUENCE"))?;
    Ok(Write::Swap { key: words[1].clone(), expected, value: keep(&words[3]) })
}

fn ping(words: &Words) -> Result<Ask, Reply> {
    match words.as_slice() {
        [_] => Ok(Ask::Say(Reply::Word("PONG"))),
        [_, text] => Ok(Ask::Say(Reply::Value(text.clone()))),
        _ => Err(table::wrong_number("ping")),
    }
}

fn wait(words: &Words) -> Result<AboutNode, Reply> {
    let copies = number(&words[1])?;
    let ms = integer(&words[2]).ok_or_else(|| Reply::error("timeout is not an integer or out of range"))?;
    let ms = u64::try_from(ms).map_err(|_| Reply::error("timeout is negative"))?;
    Ok(AboutNode::Wait { copies, ms })
}
