//! Clients that watch changes, now here, now there, and what they are shown held against the log.

use std::fmt::Write as _;

use artillery_proto::{
    Sequence,
    api::{Changes, Query, ReadMode, Refusal, Reply, Watch},
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

/// Of a thousand questions, and answers, so many get lost while there are faults.
const LOST: u32 = 100;

/// One who watches: asks for what comes behind its position, and knows nothing but that.
#[derive(Debug)]
pub(super) struct Watcher {
    rng: Rng,
    chain: usize,
    prefix: Bytes,
    /// Up to where it has seen everything; `None`: it begins where the history is.
    position: Option<Sequence>,
    /// And so many changes of the update behind it.
    shown: u32,
    attempt: u64,
}

impl Watcher {
    pub(super) fn new(seed: u64, index: usize, chain: usize) -> Self {
        let mut rng = Rng::new(seed, Concern::Watcher(index));
        // Everything, some keys, or the keys of other chains too, of which there is nothing here.
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
    /// Asks a node for changes, unless the attempt that wasn't answered is an old one.
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
        // Some are told in time that there is nothing, others have asked somebody else by then.
        let until = self.now + watcher.rng.below(SECOND);
        let (prefix, after, shown) = (watcher.prefix.clone(), watcher.position, watcher.shown);
        let query = Query::Changes(Watch { prefix, after, shown });
        let deadline = deadline(node.clock(self.now), self.now, until);
        let (mode, caller) = (ReadMode::Eventual, Caller::Watcher(index, attempt));
        let input = Input::Read(ReadRequest { query, mode, floor: None, history: None, deadline, caller });
        let slot = watcher.chain;
        self.enqueue(node_index, Work { slot, input, flight: None });
    }

    /// A replica answers a watcher.
    pub(super) fn answer_changes(&mut self, index: usize, attempt: u64, reply: Reply) -> Result<(), Failure> {
        self.trace.line(self.now, |out| write!(out, "watcher {index} attempt {attempt} gets {reply:?}"));
        let watcher = &mut self.watchers[index];
        if let Reply::Changes(Changes { upto, .. }) = &reply {
            let committed = self.oracles[watcher.chain].committed_up_to();
            if *upto > committed {
                let what = format!("changes up to {upto} were shown, the tail has committed up to {committed}");
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

    /// An answer reaches its watcher, if that still waits for it: it must show what the log has behind its position, all
    /// of it, once and in order.
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
                    let what = format!("{:?} was called too old, {first} is still there", watcher.position);
                    self.claim(Failure::new(Oracle::Claims, what));
                }
                let watcher = &mut self.watchers[index];
                (watcher.position, watcher.shown) = (None, 0);
                self.counts.fell_behind += 1;
            }
            Reply::Refused(Refusal::NoChain | Refusal::Busy) => {
                // Somebody else, when this attempt's time is up.
                return Ok(());
            }
            other => return Err(Failure::new(Oracle::Answers, format!("a watcher was answered with {other:?}"))),
        }
        let at = self.now + self.watchers[index].rng.below(self.setup.profile.delay);
        self.queue.push(at, Event::Watch { watcher: index, attempt });
        Ok(())
    }

    /// In the end every watcher has seen all that was committed, if everybody is there.
    pub(super) fn check_watchers(&self) -> Result<(), Failure> {
        for (index, watcher) in self.watchers.iter().enumerate().filter(|_| self.crashes == 0) {
            let oracle = &self.oracles[watcher.chain];
            let position = watcher.position.unwrap_or_default();
            if oracle.has_changes(&watcher.prefix, position) {
                let committed = oracle.committed_up_to();
                let what = format!("watcher {index} has seen all up to {position}, {committed} is committed");
                return Err(Failure::new(Oracle::Progress, what));
            }
        }
        Ok(())
    }
}
