//! Clients that keep a copy of the keys below a prefix, at a different node for each request. Some rest until
//! their changes are no longer kept.

use std::fmt::Write as _;

use artillery_proto::{
    Sequence,
    api::{Refusal, Reply},
    follower::{Copy, CopyEdit, CopyFeed, Follower, FollowerQuery},
    guards::Guards,
    runner::ReadRequest,
};
use bytes::Bytes;

use super::{Event as WorldEvent, Phase, World};
use crate::{
    client::{deadline, key_bytes},
    node::{Caller, Input, Work},
    oracle::{ChainOracle, CopyOracle, Failure, Oracle},
    rng::{Concern, Rng},
    scenario::{HEALED, SECOND},
};

/// Requests and answers per thousand that are lost until healing.
const LOST: u32 = 100;
/// Answers per thousand after which a follower rests until healing.
const RESTS: u32 = 4;

#[derive(Debug)]
pub(crate) enum Event {
    // A follower sends its next request.
    Next { follower: usize, attempt: u64 },
    // The request reaches a node.
    Request { follower: usize, attempt: u64, node: usize },
    Answer { follower: usize, attempt: u64, reply: Box<Reply> },
}

impl Event {
    pub(super) const fn waits_for(&self) -> Option<usize> {
        if let Self::Request { node, .. } = self { Some(*node) } else { None }
    }
}

/// A client with a copy.
#[derive(Debug)]
pub(super) struct CopyKeeper {
    rng: Rng,
    chain: usize,
    prefix: Bytes,
    follower: Follower,
    feed: CopyFeed,
    copy: Copy,
    oracle: CopyOracle,
    attempt: u64,
}

impl CopyKeeper {
    pub(super) fn new(seed: u64, index: usize, chain: usize, guards: Guards) -> Self {
        let mut rng = Rng::new(seed, Concern::Follower(index));
        let prefix = match rng.below(4) {
            0 | 1 => Bytes::new(),
            2 => Bytes::from_static(b"key-0"),
            _ => key_bytes(rng.below(3) as u32),
        };
        Self {
            rng,
            chain,
            follower: Follower::new(prefix.clone(), guards),
            feed: CopyFeed::default(),
            copy: Copy::new(guards),
            oracle: CopyOracle::new(prefix.clone()),
            prefix,
            attempt: 0,
        }
    }

    fn accept(&mut self, chain: &ChainOracle, reply: Reply) -> Result<(u64, u64), Failure> {
        let (mut changed, mut is_replaced, mut followed) = (0, false, Vec::new());
        self.follower.answer(reply, &mut followed);
        for followed in followed {
            let mut edits = Vec::new();
            self.feed.edits(followed, |edit| edits.push(edit));
            for edit in edits {
                let replaces = matches!(edit, CopyEdit::Replace(_));
                is_replaced |= replaces;
                let changes = self.copy.edit(edit);
                changed += changes.len() as u64;
                self.oracle.report(changes, replaces)?;
            }
        }
        if let Some(at) = self.follower.level() {
            self.oracle.check(chain, &self.copy, at, is_replaced)?;
        }
        Ok((changed, u64::from(is_replaced)))
    }
}

impl World {
    pub(super) fn begin_followers(&mut self) {
        for follower in 0..self.followers.len() {
            self.follow_at(self.now + 1, Event::Next { follower, attempt: 0 });
        }
    }

    fn follow_at(&mut self, at: u64, event: Event) {
        self.queue.push(at, WorldEvent::Follow(event));
    }

    pub(super) fn follow(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Next { follower, attempt } => self.follow_next(follower, attempt),
            Event::Request { follower, attempt, node } => self.request_of_follower(follower, attempt, node),
            Event::Answer { follower, attempt, reply } => return self.followed(follower, attempt, *reply),
        }
        Ok(())
    }

    /// Sends a request to a node, unless a newer attempt was made.
    fn follow_next(&mut self, index: usize, attempt: u64) {
        let (nodes, now) = (self.nodes.len(), self.now);
        let keeper = &mut self.followers[index];
        if keeper.attempt != attempt || self.phase == Phase::End {
            return;
        }
        keeper.attempt += 1;
        let (attempt, node) = (keeper.attempt, keeper.rng.index(nodes));
        let (delay, patience) =
            (keeper.rng.below(2 * self.setup.profile.delay), keeper.rng.between(10, 800) * 1_000_000);
        if now >= HEALED || !keeper.rng.chance(LOST) {
            self.follow_at(now + delay, Event::Request { follower: index, attempt, node });
        }
        self.follow_at(now + patience, Event::Next { follower: index, attempt });
    }

    fn request_of_follower(&mut self, index: usize, attempt: u64, node_index: usize) {
        let keeper = &mut self.followers[index];
        let node = &self.nodes[node_index];
        if !node.is_alive() || keeper.attempt != attempt {
            return;
        }
        let until = self.now + keeper.rng.below(SECOND);
        let asked = keeper.follower.next();
        let mode = asked.mode();
        let FollowerQuery { query, floor } = asked;
        let deadline = deadline(node.clock(self.now), self.now, until);
        let caller = Caller::Follower(index, attempt);
        let input = Input::Read(ReadRequest { query, mode, floor, history: None, deadline, caller });
        let slot = keeper.chain;
        self.enqueue(node_index, Work { slot, input, flight: None });
    }

    pub(super) fn answer_follower(&mut self, index: usize, attempt: u64, reply: Reply) {
        self.trace.line(self.now, |out| write!(out, "follower {index} attempt {attempt} gets {reply:?}"));
        let keeper = &mut self.followers[index];
        if self.now >= HEALED || !keeper.rng.chance(LOST) {
            let at = self.now + keeper.rng.below(2 * self.setup.profile.delay);
            self.follow_at(at, Event::Answer { follower: index, attempt, reply: Box::new(reply) });
        }
    }

    fn followed(&mut self, index: usize, attempt: u64, reply: Reply) -> Result<(), Failure> {
        let keeper = &mut self.followers[index];
        if keeper.attempt != attempt {
            return Ok(());
        }
        match reply {
            Reply::Page(_) | Reply::Changes(_) => {
                let (changed, replaced) = keeper.accept(&self.oracles[keeper.chain], reply)?;
                self.counts.locks.copied += changed;
                self.counts.locks.copies += replaced;
            }
            Reply::Refused(Refusal::Compacted { .. }) => {
                keeper.follower.fell_behind();
                self.counts.locks.restarts += 1;
            }
            Reply::Refused(Refusal::NoChain | Refusal::Busy) => {
                let pause = keeper.rng.between(1, 40) * SECOND / 1000;
                self.follow_at(self.now + pause, Event::Next { follower: index, attempt });
                return Ok(());
            }
            Reply::Expired => {}
            other => return Err(Failure::new(Oracle::Answers, format!("a follower received {other:?}"))),
        }
        let keeper = &mut self.followers[index];
        let rests = keeper.rng.chance(RESTS) && self.now < HEALED;
        let after = if rests { keeper.rng.between(SECOND, 6 * SECOND) } else { self.setup.profile.delay };
        keeper.attempt += u64::from(rests);
        let (at, attempt) = (self.now + keeper.rng.below(after), keeper.attempt);
        self.follow_at(at, Event::Next { follower: index, attempt });
        Ok(())
    }

    /// Checks that every copy shows the end of the history.
    pub(super) fn check_followers(&self) -> Result<(), Failure> {
        for (index, keeper) in self.followers.iter().enumerate().filter(|_| self.crashes == 0) {
            let chain = &self.oracles[keeper.chain];
            let at = keeper.follower.level().unwrap_or(Sequence::ZERO);
            if keeper.follower.level().is_none() || chain.has_changes(&keeper.prefix, at) {
                let committed = chain.committed_up_to();
                let what = format!("follower {index} has reached only {at}, but {committed} is committed");
                return Err(Failure::new(Oracle::Progress, what));
            }
            keeper.oracle.check_whole(&keeper.copy)?;
        }
        Ok(())
    }
}
