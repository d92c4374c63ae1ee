//! Keys with a time to live. Each is written by one client only, so every reply can be checked against what that client
//! knows: a key is never removed before its time, and never
//! returns.

use artillery_proto::{
    Version,
    api::{Computed, ExpireIf, Query, ReadMode, ReadReply, Reply, Ttl, Write},
};
use bytes::Bytes;

use super::{Choice, Client, Request, ask::Ask};

/// A key with a time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedName {
    /// The client that writes it.
    pub client: u32,
    /// Its number among the keys of that client.
    pub generation: u32,
}

/// An operation on a key with a time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimedCall {
    /// Sets a number.
    Put {
        /// The number.
        number: i64,
        /// The time to live, in milliseconds; `None`: the key doesn't expire.
        ttl: Option<u64>,
    },
    /// Sets a number if the key is absent.
    Create {
        /// The number.
        number: i64,
        /// The time to live, in milliseconds.
        ttl: u64,
    },
    /// Adds 1.
    Increment {
        /// The time to live of a new key, in milliseconds.
        ttl: u64,
    },
    /// Sets the time to live.
    Expire {
        /// The time to live, in milliseconds.
        ttl: u64,
        /// The condition on the present expiry.
        when: Option<ExpireIf>,
    },
    /// Removes the time to live.
    Persist,
    /// Deletes the key.
    Delete,
    /// Reads the key.
    Read(ReadMode),
}

/// A client's knowledge of its present key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TimedKey {
    generation: u32,
    /// The number that it holds; `None`: it is absent.
    held: Option<TimedValue>,
    /// Increases with each new number, so that no two are neighbours.
    last: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TimedValue {
    number: i64,
    /// The virtual time before which the key can't be gone, and its time to live; `None`: it doesn't expire.
    until: Option<(u64, u64)>,
}

impl TimedName {
    /// The bytes of the key.
    pub fn bytes(self) -> Bytes {
        format!("ttl-{:02}-{}", self.client, self.generation).into()
    }
}

impl TimedCall {
    pub(super) fn request(self, name: TimedName) -> Request {
        let key = name.bytes();
        let value = |number: i64| Bytes::from(number.to_string());
        Request::Write(match self {
            Self::Put { number, ttl } => {
                Write::Put { key, value: value(number), ttl: ttl.map_or(Ttl::Usual, Ttl::Set) }
            }
            Self::Create { number, ttl } => {
                Write::CompareAndSwap { key, expected: Version::NONE, value: Some(value(number)), ttl: Ttl::Set(ttl) }
            }
            Self::Increment { ttl } => Write::Increment { key, by: 1, ttl: Ttl::IfNew(ttl) },
            Self::Expire { ttl, when } => Write::Expire { key, ttl: Some(ttl), when },
            Self::Persist => Write::Expire { key, ttl: None, when: None },
            Self::Delete => Write::Delete { key },
            Self::Read(mode) => return Request::Read(Query::Key(key), mode),
        })
    }
}

impl Client {
    /// Chooses an operation on this client's own key.
    pub fn choose_timed(&mut self, client: usize, chains: usize, nodes: usize, longest: u64) -> Choice {
        let chain = client % chains;
        let ttl = if self.rng.chance(700) { self.rng.between(20, 400) } else { self.rng.between(20, longest) };
        self.timed.last += 10;
        let number = self.timed.last;
        let call = match self.rng.below(100) {
            0..20 => TimedCall::Put { number, ttl: Some(ttl) },
            20..25 => TimedCall::Put { number, ttl: None },
            25..32 => TimedCall::Create { number, ttl },
            32..47 => TimedCall::Increment { ttl },
            47..57 => {
                let when = self.rng.pick(&[None, None, Some(ExpireIf::Unset), Some(ExpireIf::Set)]);
                TimedCall::Expire { ttl, when }
            }
            57..60 => TimedCall::Persist,
            60..63 => TimedCall::Delete,
            _ => TimedCall::Read(self.rng.pick(&[ReadMode::Strong, ReadMode::Strong, ReadMode::ThroughChain])),
        };
        let node = if matches!(call, TimedCall::Read(_)) { self.rng.index(nodes) } else { self.head(chain) };
        let name = self.timed.name(client);
        Choice { ask: Ask::Timed(name, call), chain, node, pinned: false }
    }
}

impl TimedKey {
    /// The present key of this client.
    pub fn name(&self, client: usize) -> TimedName {
        TimedName { client: client as u32, generation: self.generation }
    }

    /// The outcome of a write is unknown, and a late attempt may still be applied: the client uses another key.
    pub fn lost(&mut self) {
        *self = Self { generation: self.generation + 1, held: None, last: self.last };
    }

    /// Checks a reply at virtual time `now` to an operation that was called at `since`. The clocks of the members differ
    /// by at most `drift` millionths.
    ///
    /// # Errors
    /// The contradiction.
    pub fn told(&mut self, call: TimedCall, reply: &Reply, since: u64, now: u64, drift: u32) -> Result<(), String> {
        let before = *self;
        let may_be_gone = before.held.is_none_or(|held| held.until.is_some_and(|(until, _)| now >= until));
        let expiring = |ttl: u64| Some((since + ttl * u64::from(1_000_000 - drift), ttl));
        let set = |number: i64, until| Some(TimedValue { number, until });
        let had_expiry = before.held.is_some_and(|held| held.until.is_some());
        let (after, is_right) = match (call, reply) {
            (TimedCall::Put { number, ttl }, Reply::Committed(_)) => (set(number, ttl.and_then(expiring)), true),
            (TimedCall::Create { number, ttl }, Reply::Committed(_)) => (set(number, expiring(ttl)), may_be_gone),
            (TimedCall::Create { .. }, Reply::Conflict { .. }) => (before.held, before.held.is_some()),
            (TimedCall::Increment { ttl }, Reply::Committed(done)) => match (&done.result, before.held) {
                (Computed::Number(number), Some(held)) if *number == held.number + 1 => {
                    (set(*number, held.until), true)
                }
                (Computed::Number(1), _) => (set(1, expiring(ttl)), may_be_gone),
                _ => (None, false),
            },
            (TimedCall::Expire { ttl, when }, Reply::Committed(done)) => {
                let fits = match when {
                    Some(ExpireIf::Unset) => !had_expiry,
                    Some(ExpireIf::Set) => had_expiry,
                    _ => true,
                };
                match (&done.result, before.held) {
                    (Computed::Changed(true), Some(held)) => (set(held.number, expiring(ttl)), fits),
                    (Computed::Changed(false), held) => (held.filter(|_| !fits), !fits || may_be_gone),
                    _ => (None, false),
                }
            }
            (TimedCall::Persist, Reply::Committed(done)) => match (&done.result, before.held) {
                (Computed::Changed(true), Some(held)) => (set(held.number, None), had_expiry),
                (Computed::Changed(false), held) => (held.filter(|_| !had_expiry), !had_expiry || may_be_gone),
                _ => (None, false),
            },
            (TimedCall::Delete, Reply::Committed(_)) => (None, true),
            (TimedCall::Read(_), Reply::Read(ReadReply { held: None, .. })) => (None, may_be_gone),
            (TimedCall::Read(_), Reply::Read(read)) => (before.held, before.shows(read)),
            _ => (None, false),
        };
        self.held = after;
        // Numbers are far apart, also after an increment.
        self.last = self.last.max(after.map_or(0, |held| held.number));
        if is_right {
            return Ok(());
        }
        Err(format!("{call:?} called at {since} got {reply:?} at {now}, but the key was {before:?}"))
    }

    /// Whether a strong read that found a value may show it.
    fn shows(&self, read: &ReadReply) -> bool {
        let (Some(held), Some(known)) = (&read.held, self.held) else { return false };
        let left = held.expires.map(|expires| expires.left(read.chain_time).as_millis() as u64);
        let fits = match (left, known.until) {
            (None, None) => true,
            (Some(left), Some((_, ttl))) => left <= ttl + 1,
            _ => false,
        };
        fits && held.value.as_deref() == Some(known.number.to_string().as_bytes())
    }
}
