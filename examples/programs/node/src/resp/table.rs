//! The table of commands, with the number of words of each.

use super::{expiry::Unit, frame::Words, reply::Reply};

/// The flags of a command, by Redis's names.
type Flags = &'static [&'static str];

/// The positions of the keys of a command: the first, the last (negative: from the end), and the step between two keys;
/// all 0 if there are none.
type Keys = (i64, i64, i64);

#[derive(Debug)]
pub(super) struct Spec {
    /// In lower case.
    pub(super) name: &'static str,
    /// Number of words including the name; negative: a minimum.
    pub(super) arity: i64,
    pub(super) flags: Flags,
    pub(super) keys: Keys,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Append,
    Auth,
    Client,
    Command,
    Config,
    Copy,
    DbSize,
    Decr,
    DecrBy,
    Del,
    DelEx,
    DelIfEq,
    Discard,
    Echo,
    Exec,
    Exists,
    Expire(Unit),
    Get,
    GetDel,
    GetEx,
    GetRange,
    GetSet,
    Hello,
    Incr,
    IncrBy,
    IncrByFloat,
    Info,
    Keys,
    /// When a key expires.
    Left(Unit),
    MGet,
    MSet,
    MSetNx,
    Multi,
    Flush,
    Persist,
    Ping,
    Quit,
    /// With `absent`, only to a new key.
    Rename {
        absent: bool,
    },
    Reset,
    Role,
    Scan,
    Select,
    Set,
    SetEx(Unit),
    SetNx,
    SetRange,
    StrLen,
    Time,
    Type,
    Unwatch,
    VGet,
    VSet,
    Wait,
    Watch,
}

const READ: Flags = &["readonly", "fast"];
const WRITE: Flags = &["write", "denyoom"];
const OTHER: Flags = &["loading", "stale"];
const ONE: Keys = (1, 1, 1);
const ALL: Keys = (1, -1, 1);
const TWO: Keys = (1, 2, 1);
const PAIRS: Keys = (1, -1, 2);
const NONE: Keys = (0, 0, 0);

const fn spec(name: &'static str, arity: i64, flags: Flags, keys: Keys, kind: Kind) -> Spec {
    Spec { name, arity, flags, keys, kind }
}

/// Sorted by name.
pub(super) const COMMANDS: &[Spec] = &[
    spec("append", 3, WRITE, ONE, Kind::Append),
    spec("auth", -2, OTHER, NONE, Kind::Auth),
    spec("client", -2, OTHER, NONE, Kind::Client),
    spec("command", -1, OTHER, NONE, Kind::Command),
    spec("config", -2, OTHER, NONE, Kind::Config),
    spec("copy", -3, WRITE, TWO, Kind::Copy),
    spec("dbsize", 1, READ, NONE, Kind::DbSize),
    spec("decr", 2, WRITE, ONE, Kind::Decr),
    spec("decrby", 3, WRITE, ONE, Kind::DecrBy),
    spec("del", -2, WRITE, ALL, Kind::Del),
    spec("delex", -2, WRITE, ONE, Kind::DelEx),
    spec("delifeq", 3, WRITE, ONE, Kind::DelIfEq),
    spec("discard", 1, OTHER, NONE, Kind::Discard),
    spec("echo", 2, OTHER, NONE, Kind::Echo),
    spec("exec", 1, OTHER, NONE, Kind::Exec),
    spec("exists", -2, READ, ALL, Kind::Exists),
    spec("expire", -3, WRITE, ONE, Kind::Expire(Unit::SECONDS)),
    spec("expireat", -3, WRITE, ONE, Kind::Expire(Unit::SECONDS_AT)),
    spec("expiretime", 2, READ, ONE, Kind::Left(Unit::SECONDS_AT)),
    spec("flushall", -1, WRITE, NONE, Kind::Flush),
    spec("flushdb", -1, WRITE, NONE, Kind::Flush),
    spec("get", 2, READ, ONE, Kind::Get),
    spec("getdel", 2, WRITE, ONE, Kind::GetDel),
    spec("getex", -2, WRITE, ONE, Kind::GetEx),
    spec("getrange", 4, READ, ONE, Kind::GetRange),
    spec("getset", 3, WRITE, ONE, Kind::GetSet),
    spec("hello", -1, OTHER, NONE, Kind::Hello),
    spec("incr", 2, WRITE, ONE, Kind::Incr),
    spec("incrby", 3, WRITE, ONE, Kind::IncrBy),
    spec("incrbyfloat", 3, WRITE, ONE, Kind::IncrByFloat),
    spec("info", -1, OTHER, NONE, Kind::Info),
    spec("keys", 2, READ, NONE, Kind::Keys),
    spec("mget", -2, READ, ALL, Kind::MGet),
    spec("mset", -3, WRITE, PAIRS, Kind::MSet),
    spec("msetnx", -3, WRITE, PAIRS, Kind::MSetNx),
    spec("multi", 1, OTHER, NONE, Kind::Multi),
    spec("persist", 2, WRITE, ONE, Kind::Persist),
    spec("pexpire", -3, WRITE, ONE, Kind::Expire(Unit::MILLIS)),
    spec("pexpireat", -3, WRITE, ONE, Kind::Expire(Unit::MILLIS_AT)),
    spec("pexpiretime", 2, READ, ONE, Kind::Left(Unit::MILLIS_AT)),
    spec("ping", -1, OTHER, NONE, Kind::Ping),
    spec("psetex", 4, WRITE, ONE, Kind::SetEx(Unit::MILLIS)),
    spec("pttl", 2, READ, ONE, Kind::Left(Unit::MILLIS)),
    spec("quit", -1, OTHER, NONE, Kind::Quit),
    spec("rename", 3, WRITE, TWO, Kind::Rename { absent: false }),
    spec("renamenx", 3, WRITE, TWO, Kind::Rename { absent: true }),
    spec("reset", 1, OTHER, NONE, Kind::Reset),
    spec("role", 1, OTHER, NONE, Kind::Role),
    spec("scan", -2, READ, NONE, Kind::Scan),
    spec("select", 2, OTHER, NONE, Kind::Select),
    spec("set", -3, WRITE, ONE, Kind::Set),
    spec("setex", 4, WRITE, ONE, Kind::SetEx(Unit::SECONDS)),
    spec("setnx", 3, WRITE, ONE, Kind::SetNx),
    spec("setrange", 4, WRITE, ONE, Kind::SetRange),
    spec("strlen", 2, READ, ONE, Kind::StrLen),
    spec("time", 1, OTHER, NONE, Kind::Time),
    spec("touch", -2, READ, ALL, Kind::Exists),
    spec("ttl", 2, READ, ONE, Kind::Left(Unit::SECONDS)),
    spec("type", 2, READ, ONE, Kind::Type),
    spec("unlink", -2, WRITE, ALL, Kind::Del),
    spec("unwatch", 1, OTHER, NONE, Kind::Unwatch),
    spec("vget", 2, READ, ONE, Kind::VGet),
    spec("vset", 4, WRITE, ONE, Kind::VSet),
    spec("wait", 3, OTHER, NONE, Kind::Wait),
    spec("watch", -2, OTHER, ALL, Kind::Watch),
];

impl Spec {
    /// Whether the command may be queued in a transaction. The others concern this node or the connection, or iterate
    /// over keys.
    pub(super) fn fits_transactions(&self) -> bool {
        !matches!(
            self.kind,
            Kind::Auth
                | Kind::Hello
                | Kind::Scan
                | Kind::Keys
                | Kind::Flush
                | Kind::DbSize
                | Kind::Info
                | Kind::Role
                | Kind::Client
        )
    }

    /// Whether a connection that hasn't sent the password may use the command.
    pub(super) fn is_for_strangers(&self) -> bool {
        matches!(self.kind, Kind::Auth | Kind::Hello | Kind::Quit | Kind::Reset)
    }
}

pub(super) fn named(name: &[u8]) -> Option<&'static Spec> {
    let small = |byte: &u8| byte.to_ascii_lowercase();
    let found = COMMANDS.binary_search_by(|spec| spec.name.bytes().cmp(name.iter().map(small)));
    found.ok().map(|at| &COMMANDS[at])
}

pub(super) fn find(words: &Words) -> Result<&'static Spec, Reply> {
    let Some(spec) = words.first().and_then(|name| named(name)) else { return Err(unknown(words)) };
    if fits(spec.arity, words.len()) { Ok(spec) } else { Err(wrong_number(spec.name)) }
}

pub(super) fn fits(arity: i64, words: usize) -> bool {
    let words = i64::try_from(words).unwrap_or(i64::MAX);
    if arity < 0 { words >= -arity } else { words == arity }
}

pub(super) fn wrong_number(name: &str) -> Reply {
    Reply::error(format_args!("wrong number of arguments for '{name}' command"))
}

/// The answer to an unknown command; it repeats the words up to a maximum length.
fn unknown(words: &Words) -> Reply {
    const SHOWN: usize = 128;
    let shown = |word: &[u8], most: usize| String::from_utf8_lossy(&word[..word.len().min(most)]).into_owned();
    let name = words.first().map_or(String::new(), |name| shown(name, SHOWN));
    let mut all = String::new();
    for word in words.iter().skip(1) {
        if all.len() >= SHOWN {
            break;
        }
        all += &format!("'{}' ", shown(word, SHOWN - all.len()));
    }
    Reply::error(format_args!("unknown command '{name}', with args beginning with: {all}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_commands_ignore_case() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for spec in COMMANDS {
            assert_eq!(named(spec.name.to_ascii_uppercase().as_bytes()).unwrap().name, spec.name);
        }
        assert!(named(b"gett").is_none() && named(b"").is_none() && named(b"ge").is_none());
    }

    #[test]
    fn arity_counts_the_name() {
        assert!(fits(2, 2) && !fits(2, 3) && !fits(2, 1));
        assert!(fits(-2, 2) && fits(-2, 9) && !fits(-2, 1));
    }
}
