//! The operations of clients, and the requests that implement them.

use std::ops::Bound;

use artillery_proto::{
    ClusterId, Sequence, Version,
    api::{
        Expected, HashedQuery, Query, ReadMode, Requirement, ScanQuery, ScriptGroup, ScriptStep, ScriptWrite, Snapshot,
        Step, Write, retry::Repeat,
    },
};

use super::{
    keys::{Keys, PREFIX, encode, key_bytes, place},
    timed::{TimedCall, TimedName},
};
use crate::history::{Call, SeriesCall, Value};

/// An operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartCall {
    /// An operation on a register.
    Register(Call),
    /// An operation on a list or a counter.
    Series(SeriesCall),
}

/// A write, or one of the writes of a batch or script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The number of the written key.
    pub key: u32,
    /// The operation on it.
    pub call: PartCall,
}

/// An operation of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Opens a session.
    Open,
    /// A single write or a batch.
    Write {
        /// The writes.
        parts: Vec<Part>,
        /// The number of the batch; 0 for a single write.
        batch: u64,
    },
    /// Runs a script with one group per part, which reads the key and then writes it.
    Script {
        /// The writes, each in its own group.
        parts: Vec<Part>,
        /// A put in an additional first group, which always fails after the put.
        fails: Option<Part>,
        /// The number of the script.
        batch: u64,
    },
    /// Reads one key.
    Read(u32, ReadMode),
    /// Reads several keys at one sequence.
    Keys(Vec<u32>, ReadMode),
    /// Reads a page of keys in byte order.
    Page {
        /// The key after which the page begins; `None`: at the first key.
        after: Option<u32>,
        /// Maximum number of entries.
        limit: u32,
        /// Whether to begin or use a snapshot.
        snapshot: Snapshot,
        /// The mode of the read.
        mode: ReadMode,
    },
    /// Reads a page of keys in hash order.
    Hashed {
        /// The position at which the page begins; 0: the first one.
        from: u64,
        /// Maximum number of keys.
        limit: u32,
        /// The mode of the read.
        mode: ReadMode,
    },
    /// An operation on a key with a time to live.
    Timed(TimedName, TimedCall),
}

/// A request to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A write of any kind, including the opening of a session.
    Write(Write),
    /// A query in a read mode.
    Read(Query, ReadMode),
}

/// An operation with its request and the session state that it carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The operation.
    pub ask: Ask,
    /// The index of the chain to which the request is sent.
    pub chain: usize,
    /// The request that is sent.
    pub request: Request,
    /// The request id: a session and a number in it, by which nodes recognize a retry.
    pub id: Option<(Version, u64)>,
    /// The floor of its session.
    pub floor: Option<Sequence>,
    /// Whether the request carries the floor.
    pub tells_floor: bool,
    /// The history of its session, in worlds whose history may change.
    pub history: Option<ClusterId>,
}

impl Asked {
    /// The effect of sending the request twice.
    pub fn repeat(&self) -> Repeat {
        match (&self.request, self.id) {
            (Request::Read(..) | Request::Write(Write::OpenSession), _) => Repeat::Harmless,
            (_, Some(_)) => Repeat::Recorded,
            (_, None) => Repeat::Twice,
        }
    }

    /// Whether this is a write or a script. Opening a session is neither.
    pub fn is_write(&self) -> bool {
        self.ask.is_write()
    }
}

impl Ask {
    /// Whether this is a write or a script. Opening a session is neither.
    pub fn is_write(&self) -> bool {
        match self {
            Self::Write { .. } | Self::Script { .. } => true,
            Self::Timed(_, call) => !matches!(call, TimedCall::Read(_)),
            _ => false,
        }
    }

    /// The number of the batch or script; 0 if it is neither.
    pub fn batch(&self) -> u64 {
        if let Self::Write { batch, .. } | Self::Script { batch, .. } = self { *batch } else { 0 }
    }

    /// The read mode; `None` if the operation is not a read.
    pub fn mode(&self) -> Option<ReadMode> {
        match self {
            Self::Read(_, mode) | Self::Keys(_, mode) | Self::Page { mode, .. } | Self::Hashed { mode, .. } => {
                Some(*mode)
            }
            Self::Timed(_, TimedCall::Read(mode)) => Some(*mode),
            Self::Open | Self::Write { .. } | Self::Script { .. } | Self::Timed(..) => None,
        }
    }

    /// Whether its answer must show the state of one moment between call and return.
    pub fn is_linearizable(&self) -> bool {
        matches!(self.mode(), Some(ReadMode::Strong | ReadMode::ThroughChain))
    }

    /// The keys that a page covers: those after `after` and, unless it is the last page, up to `next`.
    pub fn range(
        keys: &Keys,
        chain: usize,
        after: Option<u32>,
        next: Option<u32>,
    ) -> impl Iterator<Item = u32> + use<> {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), next.map_or(Bound::Unbounded, Bound::Included));
        keys.of_chain(chain).filter(move |key| std::ops::RangeBounds::contains(&range, key))
    }
}

impl Ask {
    /// The keys that a page in hash order covers: those from `from` on and, unless it is the last page, before `next`.
    pub fn placed(keys: &Keys, chain: usize, from: u64, next: u64) -> impl Iterator<Item = u32> + use<> {
        let is_in = move |at: u64| at >= from && (next == 0 || at < next);
        keys.of_chain(chain).filter(move |&key| is_in(place(&key_bytes(key))))
    }
}

/// The request for `ask`. The values of registers are padded by `padding` bytes.
pub fn request(ask: &Ask, padding: usize) -> Request {
    match ask {
        Ask::Open => Request::Write(Write::OpenSession),
        Ask::Write { parts, batch: 0 } => {
            Request::Write(parts.first().map_or(Write::Resolve, |part| alone(part, padding)))
        }
        Ask::Write { parts, .. } => Request::Write(Write::Batch(steps(parts, padding))),
        Ask::Script { parts, fails, .. } => Request::Write(Write::Script(script(parts, fails.as_ref(), padding))),
        Ask::Read(key, mode) => Request::Read(Query::Key(key_bytes(*key)), *mode),
        Ask::Keys(keys, mode) => Request::Read(Query::Keys(keys.iter().map(|&key| key_bytes(key)).collect()), *mode),
        Ask::Page { after, limit, snapshot, mode } => {
            let after = after.map(key_bytes);
            let scan = ScanQuery { prefix: PREFIX.into(), after, limit: *limit, snapshot: *snapshot };
            Request::Read(Query::Scan(scan), *mode)
        }
        &Ask::Timed(name, call) => call.request(name),
        &Ask::Hashed { from, limit, mode } => Request::Read(Query::Hashed(HashedQuery { from, limit }), mode),
    }
}

fn alone(part: &Part, padding: usize) -> Write {
    let key = key_bytes(part.key);
    let value = |value: Value| encode(part.key, value, padding);
    match part.call {
        PartCall::Register(Call::Put(put)) => Write::put(key, value(put)),
        PartCall::Register(Call::CompareAndSwap { expected, value: put }) => {
            Write::compare_and_swap(key, expected, Some(value(put)))
        }
        PartCall::Register(Call::GetDelete) => Write::GetDelete { key },
        PartCall::Register(Call::Delete | Call::Read | Call::Expire { .. }) | PartCall::Series(SeriesCall::Read) => {
            Write::Delete { key }
        }
        PartCall::Series(SeriesCall::Append(item)) => Write::append(key, encode(part.key, item, 0)),
        PartCall::Series(SeriesCall::Increment) => Write::increment(key, 1),
    }
}

fn script(parts: &[Part], fails: Option<&Part>, padding: usize) -> ScriptWrite {
    let require = conditions(parts).map(|(part, expected)| Requirement {
        key: key_bytes(part.key),
        expected: if expected.is_none() { Expected::Absent } else { Expected::Version(expected) },
    });
    // Always fails, since the value of a register is not a number.
    let failing = fails.map(|part| {
        let key = key_bytes(part.key);
        group(vec![script_step(part, padding), ScriptStep::increment(key, 1)])
    });
    let done = parts.iter().map(|part| {
        let key = key_bytes(part.key);
        group(vec![ScriptStep::Get { key }, script_step(part, padding)])
    });
    ScriptWrite { require: require.collect(), groups: failing.into_iter().chain(done).collect() }
}

fn group(steps: Vec<ScriptStep>) -> ScriptGroup {
    ScriptGroup { require: Vec::new(), steps }
}

fn script_step(part: &Part, padding: usize) -> ScriptStep {
    match alone(part, padding) {
        Write::Append { key, value, .. } => ScriptStep::append(key, value),
        Write::Increment { key, by, .. } => ScriptStep::increment(key, by),
        Write::Put { key, value, .. } | Write::CompareAndSwap { key, value: Some(value), .. } => {
            ScriptStep::put(key, value)
        }
        _ => ScriptStep::Delete { key: key_bytes(part.key) },
    }
}

/// The steps of a batch: the conditions of all parts, then their writes, both in the order of the parts.
fn steps(parts: &[Part], padding: usize) -> Vec<Step> {
    let required = conditions(parts).map(|(part, expected)| Step::Require {
        key: key_bytes(part.key),
        expected: if expected.is_none() { Expected::Absent } else { Expected::Version(expected) },
    });
    let done = parts.iter().map(|part| match alone(part, padding) {
        Write::Append { key, value, .. } => Step::append(key, value),
        Write::Increment { key, by, .. } => Step::increment(key, by),
        Write::Put { key, value, .. } | Write::CompareAndSwap { key, value: Some(value), .. } => Step::put(key, value),
        _ => Step::Delete { key: key_bytes(part.key) },
    });
    required.chain(done).collect()
}

/// The parts of a batch or script that expect a version, in the order of the steps or requirements for it.
pub(super) fn conditions(parts: &[Part]) -> impl Iterator<Item = (&Part, Version)> {
    parts.iter().filter_map(|part| match part.call {
        PartCall::Register(Call::CompareAndSwap { expected, .. }) => Some((part, expected)),
        _ => None,
    })
}
