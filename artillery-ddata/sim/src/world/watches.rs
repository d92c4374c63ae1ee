//! Clients that watch changes, at a different node for each request. Each answer is checked against the log.

use std::fmt::Write as _;

use artillery_proto::{
    Sequence,
    api::{Query, ReadMode, Refusal, Reply, WatchQuery, WatchReply},
    runner::ReadRequest,
};
use bytes::Bytes;

use super::{Event, Phase, World};
use crate::{
    client::{deadline, key_bytes},
    node::{Caller, Input, Work},
    oracle::{Failure, Oracle},
    rng::{Concern, Rng},
    scenario::{HEALED, SECOND},
};

/// Requests and answers per thousand that are lost until healing.
const LOST: u32 = 100;

/// A client that requests the changes after its position.
#[derive(Debug)]
pub(super) struct Watcher {
    rng: Rng,
    chain: usize,
    prefix: Bytes,
    /// The sequence up to which it has seen every change. `None`: it starts at the current end of the history.
    position: Option<Sequence>,
    /// How many changes of the next update it has already seen.
    shown: u32,
    attempt: u64,
}

impl Watcher {
    pub(super) fn new(seed: u64, index: usize, chain: usize) -> Self {
        let mut rng = Rng::new(seed, Concern::Watcher(index));
        // All keys, some keys, or a single one. Keys of other chains must not appear in any case.
        let prefix = match rng.below(3) {
            0 => Bytes::new(),
            1 => Bytes::from_static(b"key-0"),
            _ => key_bytes(rng.below(3) as u32),
        };
        let position = rng.chance(500).then_some(Sequence::ZERO);
        Self { rng, chain, prefix, position, shown: 0, attempt: 0 }
    }
}

impl World {
    /// Sends a request to a node, unless a newer attempt was made.
    pub(super) fn watch(&mut self, index: usize, attempt: u64) {
        let (nodes, now) = (self.nodes.len(), self.now);
        let watcher = &mut self.watchers[index];
        if watcher.attempt != attempt || self.phase == Phase::End {
            return;
        }
        watcher.attempt += 1;
        let (attempt, node) = (watcher.attempt, watcher.rng.index(nodes));
        let (delay, patience) =
            (watcher.rng.below(2 * self.setup.profile.delay), watcher.rng.between(10, 800) * 1_000_000);
        if now >= HEALED || !watcher.rng.chance(LOST) {
            self.queue.push(now + delay, Event::AskForChanges { watcher: index, attempt, node });
        }
        self.queue.push(now + patience, Event::Watch { watcher: index, attempt });
    }

    pub(super) fn ask_for_changes(&mut self, index: usize, attempt: u64, node_index: usize) {
        let watcher = &mut self.watchers[index];
        let node = &self.nodes[node_index];
        if !node.is_alive() {
            return;
        }
        // Some watchers get an empty answer in time. Others have already asked another node by then.
        let until = self.now + watcher.rng.below(SECOND);
        let (prefix, after, shown) = (watcher.prefix.clone(), watcher.position, watcher.shown);
        let query = Query::Changes(WatchQuery { prefix, after, shown });
        let deadline = deadline(node.clock(self.now), self.now, until);
        let (mode, caller) = (ReadMode::Eventual, Caller::Watcher(index, attempt));
        let input = Input::Read(ReadRequest { query, mode, floor: None, history: None, deadline, caller });
        let slot = watcher.chain;
        self.enqueue(node_index, Work { slot, input, flight: None });
    }

    pub(super) fn answer_changes(&mut self, index: usize, attempt: u64, reply: Reply) -> Result<(), Failure> {
        self.trace.line(self.now, |out| write!(out, "watcher {index} attempt {attempt} gets {reply:?}"));
        let watcher = &mut self.watchers[index];
        if let Reply::Changes(WatchReply { upto, .. }) = &reply {
            let committed = self.oracles[watcher.chain].committed_up_to();
            if *upto > committed {
                let what = format!("changes up to {upto} were shown, but only {committed} is committed");
                self.claim(Failure::new(Oracle::Claims, what));
            }
        }
        let watcher = &mut self.watchers[index];
        if self.now >= HEALED || !watcher.rng.chance(LOST) {
            let at = self.now + watcher.rng.below(2 * self.setup.profile.delay);
            self.queue.push(at, Event::Changes { watcher: index, attempt, reply: Box::new(reply) });
        }
        Ok(())
    }

    /// Handles an answer, which must show every change after the watcher's position, once and in order.
    pub(super) fn changes(&mut self, index: usize, attempt: u64, reply: Reply) -> Result<(), Failure> {
        let watcher = &mut self.watchers[index];
        if watcher.attempt != attempt {
            return Ok(());
        }
        match reply {
            Reply::Changes(changes) => {
                let from = watcher.position.unwrap_or(changes.upto);
                let checked = self.oracles[watcher.chain].check_changes(&watcher.prefix, from, watcher.shown, &changes);
                watcher.position = Some(changes.upto);
                watcher.shown = changes.shown;
                self.counts.watched_parts += u64::from(changes.shown > 0);
                self.counts.watched += changes.records.len() as u64;
                if let Err(failure) = checked {
                    self.claim(failure);
                }
            }
            Reply::Refused(Refusal::Compacted { first }) => {
                if watcher.position.is_none_or(|position| position.0 + 1 >= first) {
                    let what = format!("{:?} was called too old, but {first} is still available", watcher.position);
                    self.claim(Failure::new(Oracle::Claims, what));
                }
                let watcher = &mut self.watchers[index];
                (watcher.position, watcher.shown) = (None, 0);
                self.counts.fell_behind += 1;
            }
            Reply::Refused(Refusal::NoChain | Refusal::Busy) => {
                // The watcher asks another node once this attempt times out.
                return Ok(());
            }
            other => return Err(Failure::new(Oracle::Answers, format!("a watcher received {other:?}"))),
        }
        let at = self.now + self.watchers[index].rng.below(self.setup.profile.delay);
        self.queue.push(at, Event::Watch { watcher: index, attempt });
        Ok(())
    }

    /// Checks that every watcher has seen all committed changes at the end, if no node has crashed.
    pub(super) fn check_watchers(&self) -> Result<(), Failure> {
        for (index, watcher) in self.watchers.iter().enumerate().filter(|_| self.crashes == 0) {
            let oracle = &self.oracles[watcher.chain];
            let position = watcher.position.unwrap_or_default();
            if oracle.has_changes(&watcher.prefix, position) {
                let committed = oracle.committed_up_to();
                let what = format!("watcher {index} has seen only {position}, but {committed} is committed");
                return Err(Failure::new(Oracle::Progress, what));
            }
        }
        Ok(())
    }
}
