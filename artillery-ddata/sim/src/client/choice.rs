//! How clients choose their operations.

use std::time::Duration;

use artillery_proto::api::{ReadMode, Snapshot};

use super::{
    Client, Mix, Walking,
    ask::{Ask, Part, PartCall},
    keys::{KeyKind, Keys},
};
use crate::history::{Call, SeriesCall, Value};

/// An operation with its chain and the node that gets the first attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The operation.
    pub ask: Ask,
    /// The index of the chain that holds the keys.
    pub chain: usize,
    /// The node that gets the first attempt.
    pub node: usize,
    /// Whether an unanswered attempt is retried at the same node.
    pub pinned: bool,
}

/// Marks the values written by groups that fail. No read may ever return one.
const FAILS: u64 = 1 << 62;

impl Client {
    /// Chooses the next operation. A write writes `value`.
    pub fn choose(&mut self, mix: &Mix, keys: &Keys, nodes: usize, value: Value) -> Choice {
        if let Some(scan) = &self.scan {
            let (chain, pinned) = (scan.chain, scan.snapshot.is_some());
            let node = if pinned { scan.node } else { self.rng.index(nodes) };
            let snapshot = scan.snapshot.map_or(Snapshot::No, Snapshot::Of);
            let ask = Ask::Page { after: scan.after, limit: scan.limit, snapshot, mode: scan.mode };
            return Choice { ask, chain, node, pinned };
        }
        if let Some(Walking { chain, from, limit, mode, .. }) = self.walk {
            let node = self.rng.index(nodes);
            return Choice { ask: Ask::Hashed { from, limit, mode }, chain, node, pinned: false };
        }
        let key = self.rng.index(keys.len()) as u32;
        let chain = keys.chain(key);
        let read_at = self.rng.index(nodes);
        let write = self.rng.chance(mix.writes);
        if self.writer && (write || mix.writers > 0 && !self.rng.chance(150)) {
            let ask = self.choose_write(mix, keys, key, value);
            return Choice { ask, chain, node: self.heads[chain], pinned: false };
        }
        let mode = self.choose_mode(mix);
        let ask = match self.rng.below(1000) as u32 {
            kind if kind < mix.cuts => Ask::Keys(self.choose_keys(mix, keys, key), mode),
            kind if kind < mix.cuts + mix.scans => {
                let snapshot = if self.rng.chance(500) { Snapshot::Begin } else { Snapshot::No };
                Ask::Page { after: None, limit: self.rng.between(1, 6) as u32, snapshot, mode }
            }
            kind if kind < mix.cuts + mix.scans + mix.walks => {
                Ask::Hashed { from: 0, limit: self.rng.between(1, 5) as u32, mode }
            }
            _ => Ask::Read(key, mode),
        };
        Choice { ask, chain, node: read_at, pinned: false }
    }

    fn choose_mode(&mut self, mix: &Mix) -> ReadMode {
        match self.rng.below(1000) as u32 {
            way if way < mix.eventual => ReadMode::Eventual,
            way if way < mix.eventual + mix.through_chain => ReadMode::ThroughChain,
            way if way < mix.eventual + mix.through_chain + mix.bounded => ReadMode::Bounded {
                versions: self.rng.below(4) as u32,
                age: Duration::from_millis(self.rng.pick(&[10, 200, 5000])),
            },
            _ => ReadMode::Strong,
        }
    }

    /// Random keys of the chain of `key`, including `key`. With [`Mix::whole_batches`]: all registers of that chain.
    fn choose_keys(&mut self, mix: &Mix, keys: &Keys, key: u32) -> Vec<u32> {
        let mut chosen: Vec<u32> = Vec::new();
        for other in keys.of_chain(keys.chain(key)) {
            let wanted = match mix.whole_batches {
                true => keys.kind(other) == KeyKind::Register,
                false => other == key || self.rng.chance(600),
            };
            if wanted {
                chosen.push(other);
            }
        }
        chosen
    }

    fn choose_write(&mut self, mix: &Mix, keys: &Keys, key: u32, value: Value) -> Ask {
        if mix.scripts > 0 && self.rng.chance(mix.scripts) {
            return self.choose_script(mix, keys, key, value);
        }
        let in_batch = mix.whole_batches && keys.kind(key) == KeyKind::Register || self.rng.chance(mix.batches);
        let chosen = if in_batch { self.choose_keys(mix, keys, key) } else { vec![key] };
        let is_batch = chosen.len() > 1;
        let parts = chosen.into_iter().map(|key| {
            let call = match keys.kind(key) {
                KeyKind::List => PartCall::Series(SeriesCall::Append(value)),
                KeyKind::Counter => PartCall::Series(SeriesCall::Increment),
                KeyKind::Register => PartCall::Register(self.choose_call(mix, key, value, is_batch)),
            };
            Part { key, call }
        });
        Ask::Write { parts: parts.collect(), batch: if is_batch { value.0 } else { 0 } }
    }

    fn choose_script(&mut self, mix: &Mix, keys: &Keys, key: u32, value: Value) -> Ask {
        let chosen = self.choose_keys(mix, keys, key);
        let register = chosen.iter().copied().find(|&key| keys.kind(key) == KeyKind::Register);
        let call = PartCall::Register(Call::Put(Value(value.0 | FAILS)));
        let fails = register.filter(|_| self.rng.chance(500)).map(|key| Part { key, call });
        let parts = chosen.into_iter().map(|key| {
            let call = match keys.kind(key) {
                KeyKind::List => PartCall::Series(SeriesCall::Append(value)),
                KeyKind::Counter => PartCall::Series(SeriesCall::Increment),
                KeyKind::Register => PartCall::Register(self.choose_call(mix, key, value, true)),
            };
            Part { key, call }
        });
        Ask::Script { parts: parts.collect(), fails, batch: value.0 }
    }

    fn choose_call(&mut self, mix: &Mix, key: u32, value: Value, is_part: bool) -> Call {
        let expected = self.known[key as usize];
        let kind = self.rng.below(1000) as u32;
        match kind {
            // Rarer than in single writes, because the conditions of many parts are rarely all met.
            kind if is_part && kind < mix.swaps / 4 => Call::CompareAndSwap { expected, value },
            _ if is_part => Call::Put(value),
            kind if kind < mix.deletes => Call::Delete,
            kind if kind < mix.deletes + mix.takes => Call::GetDelete,
            kind if kind < mix.deletes + mix.takes + mix.swaps => Call::CompareAndSwap { expected, value },
            _ => Call::Put(value),
        }
    }
}
