//! Expiry: the words that state it, and the answers about it. An instant becomes a length once, by this node's wall
//! clock, when the command is received; the head counts the length in chain time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use artillery_ddata::{
    Batch,
    kv::{ExpireIf, Group, SetsValue, WriteCall},
};
use bytes::Bytes;

use super::{
    ask::{Ask, lower, number},
    failure::{NOT_AN_INTEGER, SYNTAX},
    frame::{Words, keep},
    number::integer,
    read::{Read, What},
    reply::Reply,
    write::{SetAnswer, When, Write},
};

/// How a command states a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    ms: i64,
    /// Since 1970, instead of from now.
    is_instant: bool,
}

impl Unit {
    pub(super) const SECONDS: Self = Self { ms: 1000, is_instant: false };
    pub(super) const MILLIS: Self = Self { ms: 1, is_instant: false };
    pub(super) const SECONDS_AT: Self = Self { ms: 1000, is_instant: true };
    pub(super) const MILLIS_AT: Self = Self { ms: 1, is_instant: true };

    fn named(option: &str) -> Option<Self> {
        Some(match option {
            "ex" => Self::SECONDS,
            "px" => Self::MILLIS,
            "exat" => Self::SECONDS_AT,
            "pxat" => Self::MILLIS_AT,
            _ => return None,
        })
    }

    /// The milliseconds from now on, perhaps negative. `None`: the number is too large, as in Redis.
    fn left(self, time: i64) -> Option<i64> {
        let (ms, now) = (time.checked_mul(self.ms)?, now());
        if self.is_instant { Some(ms.saturating_sub(now)) } else { ms.checked_add(now).map(|_| ms) }
    }

    /// The answer about a key that expires after this time. The outer `None`: the key is absent; the inner: it doesn't
    /// expire.
    pub(super) fn answer(self, left: Option<Option<Duration>>) -> Reply {
        let left = match left {
            None => return Reply::Number(-2),
            Some(None) => return Reply::Number(-1),
            // A key is due one millisecond after its length (`Expiry::after`).
            Some(Some(left)) => left.as_millis().saturating_sub(1),
        };
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        let ms = if self.is_instant { left.saturating_add(now()) } else { left };
        Reply::Number(if self.ms == 1 { ms } else { ms.saturating_add(self.ms / 2) / self.ms })
    }
}

/// What a set does to the key's expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expires {
    Never,
    Keep,
    /// After these milliseconds; 0: at once.
    In(u64),
}

impl Expires {
    /// Whether the key must not be seen after the set.
    pub(super) fn is_over(self) -> bool {
        self == Self::In(0)
    }

    pub(super) fn of_call<T, E>(self, put: WriteCall<T, E, SetsValue>) -> WriteCall<T, E, SetsValue> {
        match self {
            Self::Never => put,
            Self::Keep => put.keep_ttl(),
            Self::In(ms) => put.ttl(Duration::from_millis(ms)),
        }
    }

    /// Applies to the last step, which sets a value.
    pub(super) fn of_batch(self, batch: Batch) -> Batch {
        match self {
            Self::Never => batch,
            Self::Keep => batch.keep_ttl(),
            Self::In(ms) => batch.ttl(Duration::from_millis(ms)),
        }
    }

    /// Applies to the last step, which sets a value.
    pub(super) fn of_group(self, group: Group) -> Group {
        match self {
            Self::Never => group,
            Self::Keep => group.keep_ttl(),
            Self::In(ms) => group.ttl(Duration::from_millis(ms)),
        }
    }
}

/// The time since 1970.
#[allow(clippy::disallowed_methods, reason = "clients state and ask for the time of the wall clock")]
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The wall clock, in milliseconds since 1970.
fn now() -> i64 {
    i64::try_from(wall_clock().as_millis()).unwrap_or(i64::MAX)
}

/// `TIME`: seconds since 1970, and microseconds.
pub(super) fn time() -> Reply {
    let now = wall_clock();
    Reply::List(vec![Reply::text(now.as_secs().to_string()), Reply::text(now.subsec_micros().to_string())])
}

/// Why a word is no time of a set.
#[derive(Debug, Clone, Copy)]
enum BadTime {
    NotAnInteger,
    Invalid,
}

impl BadTime {
    fn of(self, name: &str) -> Reply {
        match self {
            Self::NotAnInteger => Reply::error(NOT_AN_INTEGER),
            Self::Invalid => invalid(name),
        }
    }
}

fn invalid(name: &str) -> Reply {
    Reply::error(format_args!("invalid expire time in '{name}' command"))
}

/// The milliseconds until a time, which must be positive; 0 for an instant in the past.
fn positive(unit: Unit, word: &Bytes) -> Result<u64, BadTime> {
    let time = integer(word).ok_or(BadTime::NotAnInteger)?;
    let left = unit.left(time).filter(|_| time > 0).ok_or(BadTime::Invalid)?;
    Ok(u64::try_from(left).unwrap_or(0))
}

/// The options of SET and GETEX.
#[derive(Debug)]
struct Options<'a> {
    when: When,
    answer: SetAnswer,
    keeps: bool,
    persists: bool,
    time: Option<(Unit, &'a Bytes)>,
}

impl<'a> Options<'a> {
    fn of(words: &'a [Bytes], is_set: bool) -> Result<Self, Reply> {
        let mut all = Self { when: When::Always, answer: SetAnswer::Word, keeps: false, persists: false, time: None };
        let mut rest = words;
        while let [option, more @ ..] = rest {
            rest = all.add(&lower(option), more, is_set).ok_or_else(|| Reply::error(SYNTAX))?;
        }
        Ok(all)
    }

    /// Adds an option. Returns the words after it and its value; `None`: it doesn't fit the others.
    fn add(&mut self, option: &str, more: &'a [Bytes], is_set: bool) -> Option<&'a [Bytes]> {
        if let (Some(unit), [time, more @ ..]) = (Unit::named(option), more) {
            let fits = self.time.is_none_or(|(other, _)| other == unit) && !self.keeps && !self.persists;
            self.time = Some((unit, time));
            return fits.then_some(more);
        }
        match (option, &self.when, more) {
            ("nx", When::Always | When::Absent, _) if is_set => self.when = When::Absent,
            ("xx", When::Always | When::Present, _) if is_set => self.when = When::Present,
            ("ifeq" | "ifne", When::Always, [value, more @ ..]) if is_set => {
                self.when = compared(option, value)?;
                return Some(more);
            }
            ("get", ..) if is_set => self.answer = SetAnswer::Old,
            ("keepttl", ..) if is_set && self.time.is_none() => self.keeps = true,
            ("persist", ..) if !is_set && self.time.is_none() => self.persists = true,
            _ => return None,
        }
        Some(more)
    }
}

fn compared(option: &str, value: &Bytes) -> Option<When> {
    match option {
        "ifeq" => Some(When::Is(Box::new(keep(value)))),
        "ifne" => Some(When::IsNot(Box::new(keep(value)))),
        _ => None,
    }
}

/// `SET key value [options]`
pub(super) fn set(name: &str, words: &Words) -> Result<Write, Reply> {
    let Options { when, answer, keeps, time, .. } = Options::of(&words[3..], true)?;
    let expires = match time {
        Some((unit, time)) => Expires::In(positive(unit, time).map_err(|bad| bad.of(name))?),
        None if keeps => Expires::Keep,
        None => Expires::Never,
    };
    Ok(Write::Set { key: words[1].clone(), value: keep(&words[2]), when, answer, expires })
}

/// `SETEX key time value`
pub(super) fn set_ex(name: &str, words: &Words, unit: Unit) -> Result<Write, Reply> {
    let expires = Expires::In(positive(unit, &words[2]).map_err(|bad| bad.of(name))?);
    let (key, value) = (words[1].clone(), keep(&words[3]));
    Ok(Write::Set { key, value, when: When::Always, answer: SetAnswer::Word, expires })
}

/// `GETEX key [options]`
pub(super) fn get_ex(words: &Words) -> Result<Ask, Reply> {
    let Options { persists, time, .. } = Options::of(&words[2..], false)?;
    let key = words[1].clone();
    let read = |what| Ask::Read(Read::new(what, [words[1].clone()].into_iter().collect()));
    Ok(match time.map(|(unit, time)| positive(unit, time)) {
        Some(Ok(ms)) => Ask::Write(Write::GetExpire { key, ms: Some(ms) }),
        // As in Redis, an absent key is answered before the time is checked.
        Some(Err(BadTime::NotAnInteger)) => read(What::Refused(NOT_AN_INTEGER)),
        Some(Err(BadTime::Invalid)) => read(What::Refused("invalid expire time in 'getex' command")),
        None if persists => Ask::Write(Write::GetExpire { key, ms: None }),
        None => read(What::Value),
    })
}

/// `EXPIRE key time [NX | XX | GT | LT]`
pub(super) fn expire(name: &str, words: &Words, unit: Unit) -> Result<Write, Reply> {
    let when = condition(&words[3..])?;
    let left = unit.left(number(&words[2])?).ok_or_else(|| invalid(name))?;
    Ok(Write::Expire { key: words[1].clone(), ms: Some(u64::try_from(left).unwrap_or(0)), when })
}

fn condition(options: &[Bytes]) -> Result<Option<ExpireIf>, Reply> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in options {
        match lower(option).as_str() {
            "nx" => nx = true,
            "xx" => xx = true,
            "gt" => gt = true,
            "lt" => lt = true,
            _ => {
                let shown = String::from_utf8_lossy(&option[..option.len().min(128)]).into_owned();
                return Err(Reply::error(format_args!("Unsupported option {shown}")));
            }
        }
    }
    match (nx, xx, gt, lt) {
        (true, true, ..) | (true, _, true, _) | (true, _, _, true) => {
            Err(Reply::error("NX and XX, GT or LT options at the same time are not compatible"))
        }
        (_, _, true, true) => Err(Reply::error("GT and LT options at the same time are not compatible")),
        (true, ..) => Ok(Some(ExpireIf::Unset)),
        // A key without expiry never expires later.
        (_, _, true, _) => Ok(Some(ExpireIf::Later)),
        (_, true, _, true) => Ok(Some(ExpireIf::SetAndSooner)),
        (_, _, _, true) => Ok(Some(ExpireIf::Sooner)),
        (_, true, ..) => Ok(Some(ExpireIf::Set)),
        _ => Ok(None),
    }
}

/// `DELEX key [IFEQ value | IFNE value]`
pub(super) fn delete_if(words: &Words) -> Result<Write, Reply> {
    match &words[1..] {
        [key] => Ok(Write::Delete(vec![key.clone()])),
        [key, option, value] => {
            let when = compared(&lower(option), value).ok_or_else(|| Reply::error(SYNTAX))?;
            Ok(Write::DeleteIf { key: key.clone(), when })
        }
        _ => Err(super::table::wrong_number("delex")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_lengths_from_now() {
        let at = now() + 5000;
        assert!((4000..=5000).contains(&Unit::MILLIS_AT.left(at).unwrap()));
        assert!((3000..=5000).contains(&Unit::SECONDS_AT.left(at / 1000).unwrap()));
        assert!(Unit::SECONDS_AT.left(1).unwrap() < 0);
        assert_eq!(Unit::SECONDS.left(7), Some(7000));
        assert_eq!((Unit::SECONDS.left(i64::MAX / 1000 + 1), Unit::MILLIS.left(i64::MAX)), (None, None));
        assert_eq!(Unit::SECONDS_AT.left(i64::MIN / 1000 - 1), None);
        assert_eq!(Unit::MILLIS_AT.left(i64::MIN), Some(i64::MIN));
    }

    #[test]
    fn times_are_told_in_their_unit() {
        let left = |ms| Some(Some(Duration::from_millis(ms)));
        assert_eq!(
            (Unit::SECONDS.answer(None), Unit::MILLIS_AT.answer(Some(None))),
            (Reply::Number(-2), Reply::Number(-1))
        );
        assert_eq!(
            (Unit::SECONDS.answer(left(10_001)), Unit::MILLIS.answer(left(10_001))),
            (Reply::Number(10), Reply::Number(10_000))
        );
        assert_eq!(
            (Unit::SECONDS.answer(left(499)), Unit::MILLIS.answer(left(0))),
            (Reply::Number(0), Reply::Number(0))
        );
        let Reply::Number(at) = Unit::MILLIS_AT.answer(left(5001)) else { panic!("a number") };
        assert!((now() + 4000..=now() + 5000).contains(&at));
    }
}
