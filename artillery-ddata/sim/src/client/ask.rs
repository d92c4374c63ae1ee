//! What clients ask for, and how it is said.

use std::ops::Bound;

use artillery_proto::{
    Sequence, Version,
    api::{
        Expected, Group, Hashed, Query, ReadMode, Requirement, Scan, Script, ScriptStep, Snapshot, Step, Write,
        retry::Repeat,
    },
};

use super::keys::{Keys, PREFIX, encode, key_bytes, place};
use crate::history::{Call, SeriesCall, Value};

/// What is done to one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartCall {
    /// To a register.
    Register(Call),
    /// To a list or a counter.
    Series(SeriesCall),
}

/// A write, or one of the writes of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// To which key.
    pub key: u32,
    /// What.
    pub call: PartCall,
}

/// What an operation is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Opens a session.
    Open,
    /// Writes: one thing, or a batch of this number.
    Write {
        /// What.
        parts: Vec<Part>,
        /// The batch; 0: none.
        batch: u64,
    },
    /// Runs a script of this number, each of whose groups reads a key and writes it.
    Script {
        /// What, in groups of their own.
        parts: Vec<Part>,
        /// A put in a group before them which fails behind it, always.
        fails: Option<Part>,
        /// Its number.
        batch: u64,
    },
    /// Reads one key.
    Read(u32, ReadMode),
    /// Reads these keys together.
    Keys(Vec<u32>, ReadMode),
    /// Reads a page of the keys behind this one.
    Page {
        /// Behind which; `None`: from the first.
        after: Option<u32>,
        /// Entries at most.
        limit: u32,
        /// As part of a snapshot or not.
        snapshot: Snapshot,
        /// How.
        mode: ReadMode,
    },
    /// Reads a page of keys in hash order.
    Hashed {
        /// From which position on; 0: from the first.
        from: u64,
        /// Keys at most.
        limit: u32,
        /// How.
        mode: ReadMode,
    },
}

/// What a node is asked to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A write.
    Write(Write),
    /// A read.
    Read(Query, ReadMode),
}

/// An operation with all that goes with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// What.
    pub ask: Ask,
    /// Of which chain.
    pub chain: usize,
    /// What is sent.
    pub request: Request,
    /// The session and the number in it by which it is known again.
    pub id: Option<(Version, u64)>,
    /// The floor of the session that it is in.
    pub floor: Option<Sequence>,
    /// Whether nodes are told that.
    pub tells_floor: bool,
}

impl Asked {
    /// What it does to ask twice.
    pub fn repeat(&self) -> Repeat {
        match (&self.request, self.id) {
            (Request::Read(..) | Request::Write(Write::OpenSession), _) => Repeat::Harmless,
            (_, Some(_)) => Repeat::Recorded,
            (_, None) => Repeat::Twice,
        }
    }

    /// Whether it writes.
    pub fn is_write(&self) -> bool {
        self.ask.is_write()
    }
}

impl Ask {
    /// Whether it writes.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Script { .. })
    }

    /// The batch or script that its parts belong to; 0: none.
    pub fn batch(&self) -> u64 {
        if let Self::Write { batch, .. } | Self::Script { batch, .. } = self { *batch } else { 0 }
    }

    /// The mode of a read.
    pub fn mode(&self) -> Option<ReadMode> {
        match self {
            Self::Read(_, mode) | Self::Keys(_, mode) | Self::Page { mode, .. } | Self::Hashed { mode, .. } => {
                Some(*mode)
            }
            Self::Open | Self::Write { .. } | Self::Script { .. } => None,
        }
    }

    /// Whether its answer must be that of a moment while it was under way.
    pub fn is_linearizable(&self) -> bool {
        matches!(self.mode(), Some(ReadMode::Strong | ReadMode::ThroughChain))
    }

    /// The keys behind `after` and, if there are more, up to `next`: what a page speaks of.
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
    /// The keys at `from` or behind it and, if there are more, before `next`: what a page in hash order speaks of.
    pub fn placed(keys: &Keys, chain: usize, from: u64, next: u64) -> impl Iterator<Item = u32> + use<> {
        let is_in = move |at: u64| at >= from && (next == 0 || at < next);
        keys.of_chain(chain).filter(move |&key| is_in(place(&key_bytes(key))))
    }
}

/// The request that asks for `ask`; a value gets `padding` bytes more than it needs.
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
            let scan = Scan { prefix: PREFIX.into(), after, limit: *limit, snapshot: *snapshot };
            Request::Read(Query::Scan(scan), *mode)
        }
        &Ask::Hashed { from, limit, mode } => Request::Read(Query::Hashed(Hashed { from, limit }), mode),
    }
}

fn alone(part: &Part, padding: usize) -> Write {
    let key = key_bytes(part.key);
    let value = |value: Value| encode(part.key, value, padding);
    match part.call {
        PartCall::Register(Call::Put(put)) => Write::Put { key, value: value(put) },
        PartCall::Register(Call::CompareAndSwap { expected, value: put }) => {
            Write::CompareAndSwap { key, expected, value: Some(value(put)) }
        }
        PartCall::Register(Call::GetDelete) => Write::GetDelete { key },
        PartCall::Register(Call::Delete | Call::Read) | PartCall::Series(SeriesCall::Read) => Write::Delete { key },
        PartCall::Series(SeriesCall::Append(item)) => Write::Append { key, value: encode(part.key, item, 0) },
        PartCall::Series(SeriesCall::Increment) => Write::Increment { key, by: 1 },
    }
}

fn script(parts: &[Part], fails: Option<&Part>, padding: usize) -> Script {
    let require = conditions(parts).map(|(part, expected)| Requirement {
        key: key_bytes(part.key),
        expected: if expected.is_none() { Expected::Absent } else { Expected::Version(expected) },
    });
    // What a register holds is no number.
    let failing = fails.map(|part| {
        let key = key_bytes(part.key);
        group(vec![script_step(part, padding), ScriptStep::Increment { key, by: 1 }])
    });
    let done = parts.iter().map(|part| {
        let key = key_bytes(part.key);
        group(vec![ScriptStep::Get { key }, script_step(part, padding)])
    });
    Script { require: require.collect(), groups: failing.into_iter().chain(done).collect() }
}

fn group(steps: Vec<ScriptStep>) -> Group {
    Group { require: Vec::new(), steps }
}

fn script_step(part: &Part, padding: usize) -> ScriptStep {
    match alone(part, padding) {
        Write::Append { key, value } => ScriptStep::Append { key, value },
        Write::Increment { key, by } => ScriptStep::Increment { key, by },
        Write::Put { key, value } | Write::CompareAndSwap { key, value: Some(value), .. } => {
            ScriptStep::Put { key, value }
        }
        _ => ScriptStep::Delete { key: key_bytes(part.key) },
    }
}

/// Conditions first, each of a part of its own, in the order of the parts.
fn steps(parts: &[Part], padding: usize) -> Vec<Step> {
    let required = conditions(parts).map(|(part, expected)| Step::Require {
        key: key_bytes(part.key),
        expected: if expected.is_none() { Expected::Absent } else { Expected::Version(expected) },
    });
    let done = parts.iter().map(|part| match alone(part, padding) {
        Write::Append { key, value } => Step::Append { key, value },
        Write::Increment { key, by } => Step::Increment { key, by },
        Write::Put { key, value } | Write::CompareAndSwap { key, value: Some(value), .. } => Step::Put { key, value },
        _ => Step::Delete { key: key_bytes(part.key) },
    });
    required.chain(done).collect()
}

/// The parts of a batch that expect something, by the steps that say so.
pub(super) fn conditions(parts: &[Part]) -> impl Iterator<Item = (&Part, Version)> {
    parts.iter().filter_map(|part| match part.call {
        PartCall::Register(Call::CompareAndSwap { expected, .. }) => Some((part, expected)),
        _ => None,
    })
}
