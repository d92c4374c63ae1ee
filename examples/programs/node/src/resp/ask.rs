//! The operations that parsed commands request.

use artillery_ddata::Version;
use bytes::Bytes;

use super::{
    about,
    failure::{NOT_AN_INTEGER, SYNTAX},
    frame::{Words, keep},
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
    /// Wait until this many other members hold all writes, for up to `ms` milliseconds, or without limit if `ms` is 0.
    Wait {
        copies: i64,
        ms: u64,
    },
}

/// Parses the words of a command. The error is the answer for the client.
pub(super) fn understand(spec: &Spec, words: &Words) -> Result<Ask, Reply> {
    Ok(match spec.kind {
        Kind::Get => read(What::Value, words),
        Kind::GetRange => read(What::Range(number(&words[2])?, number(&words[3])?), &words[..2]),
        Kind::StrLen => read(What::Length, words),
        Kind::Exists => read(What::Count, words),
        Kind::Type => read(What::Type, words),
        Kind::MGet => read(What::Values, words),
        Kind::VGet => read(What::Version, words),
        Kind::Set => Ask::Write(set(words)?),
        Kind::SetNx => Ask::Write(put(words, When::Absent, SetAnswer::Flag)),
        Kind::GetSet => Ask::Write(put(words, When::Always, SetAnswer::Old)),
        Kind::GetDel => Ask::Write(Write::Take(words[1].clone())),
        Kind::Del => Ask::Write(Write::Delete(words[1..].to_vec())),
        Kind::Append => Ask::Write(Write::Append { key: words[1].clone(), value: keep(&words[2]) }),
        Kind::Incr => add(words, 1),
        Kind::Decr => add(words, -1),
        Kind::IncrBy => add(words, number(&words[2])?),
        Kind::DecrBy => {
            add(words, number(&words[2])?.checked_neg().ok_or_else(|| Reply::error("decrement would overflow"))?)
        }
        Kind::MSet => Ask::Write(pairs(spec.name, words, false)?),
        Kind::MSetNx => Ask::Write(pairs(spec.name, words, true)?),
        Kind::VSet => Ask::Write(swap(words)?),
        Kind::Ping => ping(words)?,
        Kind::Echo => Ask::Say(Reply::Value(words[1].clone())),
        Kind::Select => Ask::Say(match number(&words[1])? {
            0 => Reply::OK,
            _ => Reply::error("DB index is out of range"),
        }),
        Kind::Expiry => Ask::Say(no_expiry()),
        Kind::Flush => {
            Ask::Say(Reply::error(format_args!("{} is refused: delete keys by name", spec.name.to_uppercase())))
        }
        Kind::Command => Ask::Say(about::command(words)),
        Kind::Config => Ask::Say(about::config(words)),
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

pub(super) fn no_expiry() -> Reply {
    Reply::error("key expiry is not yet supported")
}

fn read(what: What, words: &[Bytes]) -> Ask {
    Ask::Read(Read::new(what, words[1..].iter().cloned().collect()))
}

fn put(words: &Words, when: When, answer: SetAnswer) -> Write {
    Write::Set { key: words[1].clone(), value: keep(&words[2]), when, answer }
}

fn set(words: &Words) -> Result<Write, Reply> {
    let (mut when, mut answer, mut expires) = (When::Always, SetAnswer::Word, false);
    let mut options = words[3..].iter();
    while let Some(option) = options.next() {
        match (lower(option).as_str(), when) {
            ("nx", When::Always | When::Absent) => when = When::Absent,
            ("xx", When::Always | When::Present) => when = When::Present,
            ("get", _) => answer = SetAnswer::Old,
            ("keepttl", _) if !expires => expires = true,
            ("ex" | "px" | "exat" | "pxat", _) if !expires && options.next().is_some() => expires = true,
            _ => return Err(Reply::error(SYNTAX)),
        }
    }
    if expires {
        return Err(no_expiry());
    }
    Ok(put(words, when, answer))
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
