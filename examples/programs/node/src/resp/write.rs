//! Executes single writes. The answer that a command needs determines the request that executes it. Where there is a
//! choice, it is a request whose recorded outcome suffices for the answer, so that a retry after a failover still gets
//! it.

use std::time::Duration;

use artillery_ddata::{
    Batch, Error, Kv, Version,
    kv::{Committed, Expected, ExpireIf, Taken, WriteError},
};
use bytes::Bytes;

use super::{expiry::Expires, failure::told, reply::Reply, script};

/// Maximum bytes of keys and values in an update that combines pending writes: larger updates would use streams of
/// their own. A larger write is executed alone.
pub(super) const MOST_BYTES: usize = 48 << 10;
/// Maximum number of steps, and of commands, in an update that combines pending writes.
pub(super) const MOST_STEPS: usize = 512;

#[derive(Debug, Clone)]
pub(super) enum Write {
    Set {
        key: Bytes,
        value: Bytes,
        when: When,
        answer: SetAnswer,
        expires: Expires,
    },
    /// Puts all pairs; with `absent` only if all keys are absent.
    SetMany {
        pairs: Vec<(Bytes, Bytes)>,
        absent: bool,
    },
    Delete(Vec<Bytes>),
    /// Deletes, and returns the old value.
    Take(Bytes),
    Append {
        key: Bytes,
        value: Bytes,
    },
    Add {
        key: Bytes,
        by: i64,
    },
    /// Puts, if the key has this version.
    Swap {
        key: Bytes,
        expected: Version,
        value: Bytes,
    },
    /// Lets the key expire after these milliseconds; 0: at once, `None`: never.
    Expire {
        key: Bytes,
        ms: Option<u64>,
        when: Option<ExpireIf>,
    },
    /// Expires a key as [`Expire`](Self::Expire), and returns its value.
    GetExpire {
        key: Bytes,
        ms: Option<u64>,
    },
    /// Deletes, if the value is the expected one.
    DeleteIf {
        key: Bytes,
        when: When,
    },
    /// Adds a decimal number, which may have a fraction.
    AddFloat {
        key: Bytes,
        by: Bytes,
    },
    SetRange {
        key: Bytes,
        offset: u64,
        value: Bytes,
    },
    /// With `absent`, only to a new key.
    Rename {
        from: Bytes,
        to: Bytes,
        absent: bool,
    },
    Copy {
        from: Bytes,
        to: Bytes,
        replace: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum When {
    Always,
    Absent,
    Present,
    /// The key has this value. It is boxed, so that other writes stay small.
    Is(Box<Bytes>),
    /// The key has another value, or none.
    IsNot(Box<Bytes>),
}

impl When {
    pub(super) fn expected(&self) -> Option<Expected> {
        match self {
            Self::Always => None,
            Self::Absent => Some(Expected::Absent),
            Self::Present => Some(Expected::Present),
            Self::Is(value) => Some(Expected::Value(Bytes::clone(value))),
            Self::IsNot(value) => Some(Expected::NotValue(Bytes::clone(value))),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Is(value) | Self::IsNot(value) => value.len(),
            Self::Always | Self::Absent | Self::Present => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetAnswer {
    /// `OK`, or nil if the condition didn't hold.
    Word,
    /// 1 or 0, for whether the value was set.
    Flag,
    Old,
}

impl SetAnswer {
    /// The answer to a set that doesn't return the old value. `done`: the value was set.
    pub(super) fn of(self, done: bool) -> Reply {
        match self {
            Self::Flag => Reply::flag(done),
            _ if done => Reply::OK,
            _ => Reply::Absent,
        }
    }
}

impl Write {
    /// Whether the write is unconditional and its answer is always `OK`.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Self::Set { when, answer, expires, .. } => {
                *when == When::Always && *answer == SetAnswer::Word && !expires.is_over()
            }
            Self::SetMany { absent, .. } => !absent,
            _ => false,
        }
    }

    /// The bytes of its keys and values, and its maximum number of steps.
    pub(super) fn size(&self) -> (usize, usize) {
        match self {
            Self::Set { key, value, when, .. } => (key.len() + value.len() + when.bytes(), 2),
            Self::Append { key, value } | Self::Swap { key, value, .. } => (key.len() + value.len(), 2),
            Self::SetMany { pairs, .. } => {
                (pairs.iter().map(|(key, value)| key.len() + value.len()).sum(), pairs.len() * 2)
            }
            Self::Delete(keys) => (keys.iter().map(Bytes::len).sum(), keys.len()),
            Self::Take(key) | Self::Add { key, .. } | Self::Expire { key, .. } => (key.len(), 1),
            Self::GetExpire { key, .. } => (key.len(), 2),
            Self::DeleteIf { key, when } => (key.len() + when.bytes(), 2),
            Self::AddFloat { key, by: value } | Self::SetRange { key, value, .. } => (key.len() + value.len(), 1),
            Self::Rename { from, to, .. } | Self::Copy { from, to, .. } => (from.len() + to.len(), 4),
        }
    }

    /// The lengths of its longest key and of its largest value.
    pub(super) fn longest(&self) -> (usize, usize) {
        match self {
            Self::Set { key, value, when, .. } => (key.len(), value.len().max(when.bytes())),
            Self::Append { key, value }
            | Self::Swap { key, value, .. }
            | Self::AddFloat { key, by: value }
            | Self::SetRange { key, value, .. } => (key.len(), value.len()),
            Self::SetMany { pairs, .. } => {
                let longest = |of: fn(&(Bytes, Bytes)) -> usize| pairs.iter().map(of).max().unwrap_or(0);
                (longest(|pair| pair.0.len()), longest(|pair| pair.1.len()))
            }
            Self::Delete(keys) => (keys.iter().map(Bytes::len).max().unwrap_or(0), 0),
            Self::Take(key) | Self::Add { key, .. } | Self::Expire { key, .. } | Self::GetExpire { key, .. } => {
                (key.len(), 0)
            }
            Self::DeleteIf { key, when } => (key.len(), when.bytes()),
            Self::Rename { from, to, .. } | Self::Copy { from, to, .. } => (from.len().max(to.len()), 0),
        }
    }

    pub(super) async fn make(self, kv: &Kv) -> Reply {
        self.made(kv).await.unwrap_or_else(|error| told(&error))
    }

    async fn made(self, kv: &Kv) -> Result<Reply, Error> {
        Ok(match self {
            plain if plain.is_plain() => script::make_plain(kv, [&plain]).await?,
            Self::Set { key, value, when, answer: answer @ (SetAnswer::Word | SetAnswer::Flag), expires }
                if !expires.is_over() =>
            {
                answer.of(is_set(kv, key, value, &when, expires).await?)
            }
            Self::SetMany { pairs, .. } => set_absent(kv, &pairs).await?,
            Self::Delete(keys) if keys.len() == 1 => delete_if(kv, &keys[0], &When::Present).await?,
            Self::Expire { key, ms: Some(0), when: None } => delete_if(kv, &key, &When::Present).await?,
            Self::DeleteIf { key, when } => delete_if(kv, &key, &when).await?,
            Self::Expire { key, ms: None, .. } => Reply::flag(kv.persist(key).await?.result),
            Self::Expire { key, ms: Some(ms @ 1..), when } => {
                let call = kv.expire(key, Duration::from_millis(ms));
                let call = if let Some(when) = when { call.when(when) } else { call };
                Reply::flag(call.await?.result)
            }
            Self::Take(key) => match kv.get_delete(key).await?.result {
                Taken::Nothing => Reply::Absent,
                Taken::Value(taken) => Reply::Value(taken.value),
                _ => Reply::Error("UNKNOWN the key was deleted, but its value is lost".into()),
            },
            Self::Append { key, value } => count(kv.append(key, value).await?.result),
            Self::Add { key, by } => Reply::Number(kv.increment(key, by).await?.result),
            Self::Swap { key, expected, value } => match kv.compare_and_swap(key, expected, value).await {
                Ok(done) => Reply::text(done.version.to_string()),
                Err(error) => conflict_with(error.into_conflict()?.version()),
            },
            write => script::make(kv, &[write]).await.pop().unwrap_or(Reply::Absent),
        })
    }
}

pub(super) fn sizes(writes: &[Write]) -> (usize, usize) {
    let sizes = writes.iter().map(Write::size);
    sizes.fold((0, 0), |(bytes, steps), (more, others)| (bytes + more, steps + others))
}

/// Puts one key. Returns whether the condition held.
async fn is_set(kv: &Kv, key: Bytes, value: Bytes, when: &When, expires: Expires) -> Result<bool, Error> {
    if *when == When::Absent {
        return is_applied(expires.of_call(kv.compare_and_swap(key, Version::NONE, value)).await);
    }
    let batch = Batch::new();
    let batch = if let Some(expected) = when.expected() { batch.require(&key, expected) } else { batch };
    is_applied(kv.write(expires.of_batch(batch.put(&key, value))).await)
}

/// Deletes a key that is present, if the condition holds.
async fn delete_if(kv: &Kv, key: &Bytes, when: &When) -> Result<Reply, Error> {
    let batch = Batch::new().require(key, Expected::Present);
    let batch = if let Some(expected) = when.expected() { batch.require(key, expected) } else { batch };
    Ok(Reply::flag(is_applied(kv.write(batch.delete(key)).await)?))
}

async fn set_absent(kv: &Kv, pairs: &[(Bytes, Bytes)]) -> Result<Reply, Error> {
    let batch = pairs.iter().fold(Batch::new(), |batch, (key, _)| batch.require(key, Expected::Absent));
    let batch = pairs.iter().fold(batch, |batch, (key, value)| batch.put(key, value.clone()));
    Ok(Reply::flag(is_applied(kv.write(batch).await)?))
}

/// Whether a write was applied; otherwise its condition didn't hold.
pub(super) fn is_applied(outcome: Result<Committed, WriteError>) -> Result<bool, Error> {
    outcome.map_or_else(|error| error.into_conflict().map(|_| false), |_| Ok(true))
}

/// The answer if the key has this version instead of the expected one.
pub(super) fn conflict_with(version: Version) -> Reply {
    Reply::Error(format!("CONFLICT {version}").into())
}

pub(super) fn count(count: u64) -> Reply {
    Reply::Number(i64::try_from(count).unwrap_or(i64::MAX))
}
