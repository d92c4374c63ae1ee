//! Two members of a chain driven by hand. Each step is measured in processor time of this thread.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use artillery_proto::{
    ChainId, ChainMember, ClusterId, MemberId, Role, Timestamp,
    api::{Query, ReadMode, Reply, Write},
    control::log::LogIndex,
    message::{ChainFrame, MAX_CHUNK},
    replica::{Gate, ReplicaSettings},
    runner::{ChainOrder, ChainRunner, Lease, LinkChange, ReadRequest, RunnerOutput, WriteRequest},
    store::MemoryStore,
};
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};

use crate::bare::{Received, config, member};

/// The head of the first epoch.
pub const A: usize = 0;
/// The other member.
pub const B: usize = 1;

/// The byte budget for updates or a snapshot in one frame, as in a node.
const ROOM: usize = MAX_CHUNK;

/// The durations of several steps.
#[derive(Clone, Copy, Default)]
pub struct Steps {
    /// The number of steps.
    pub count: usize,
    /// The duration of the longest step.
    pub longest: Duration,
    /// The total duration.
    pub sum: Duration,
}

impl Steps {
    /// Adds the steps of `other`.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
        self.sum += other.sum;
    }

    fn measure<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let before = cpu();
        let result = step();
        let took = cpu() - before;
        self.add(&Self { count: 1, longest: took, sum: took });
        result
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn id(n: usize) -> MemberId {
    member(n as u8)
}

fn take(member: &mut ChainRunner<()>, turn: &mut Received) {
    member.take(|| Timestamp::ZERO, turn, |_| None);
}

/// Two members, and the frames between them.
pub struct Pair {
    members: [ChainRunner<()>; 2],
    /// The frames in flight to each member.
    frames: [VecDeque<ChainFrame>; 2],
    replies: Vec<Reply>,
}

impl Pair {
    /// An open chain of both, A first.
    pub fn new() -> Self {
        let settings = ReplicaSettings { backlog: 1 << 20, ..ReplicaSettings::default() };
        let member = |n: usize| {
            let (gate, store) = (Arc::new(Gate::new(ChainId(0))), Arc::new(MemoryStore::with_seed(1)));
            let mut member = ChainRunner::new(id(n), ChainId(0), settings.clone(), store, gate);
            let lease = Some(Lease { until: Timestamp::MAX, ..Lease::default() });
            take(&mut member, &mut Received { lease, links: vec![LinkChange::Up(id(1 - n))], ..Received::default() });
            member
        };
        let mut pair = Self { members: [A, B].map(member), frames: Default::default(), replies: Vec::new() };
        pair.enter(1, &[A, B], None);
        pair.run();
        pair
    }

    /// Enters another configuration, optionally with a joiner. A member that the configuration doesn't name leaves the
    /// chain.
    pub fn enter(&mut self, epoch: u64, serving: &[usize], joiner: Option<usize>) {
        let serving = serving.iter().map(|&n| ChainMember { id: id(n), role: Role::Serving });
        let joiner = joiner.map(|n| ChainMember { id: id(n), role: Role::Syncing });
        let config = config(epoch, serving.chain(joiner));
        for (n, member) in self.members.iter_mut().enumerate() {
            let (history, upto) = (ClusterId(1), LogIndex(epoch));
            let order = match config.role(id(n)) {
                Some(_) => ChainOrder::Enter { config: config.clone(), history, upto },
                None => ChainOrder::Expelled { epoch: config.epoch, history, upto },
            };
            take(member, &mut Received { orders: vec![order], ..Received::default() });
        }
    }

    /// Sends a write to the head, which must be `n`.
    pub fn put(&mut self, n: usize, key: Bytes, value: &'static str) {
        let (write, deadline) = (Write::put(key, value.into()), Timestamp::MAX);
        let write = WriteRequest { request: None, history: None, write, deadline, caller: () };
        take(&mut self.members[n], &mut Received { writes: vec![write], ..Received::default() });
    }

    /// Sends a member a query that it can answer without others.
    pub fn ask(&mut self, n: usize, query: Query) -> (Reply, Steps) {
        self.replies.clear();
        let (mode, deadline) = (ReadMode::Strong, Timestamp::MAX);
        let read = ReadRequest { query, mode, floor: None, history: None, deadline, caller: () };
        let (mut steps, mut turn) = (Steps::default(), Received { reads: vec![read], ..Received::default() });
        steps.measure(|| take(&mut self.members[n], &mut turn));
        self.take_outputs(n);
        (self.replies.pop().unwrap_or_else(|| panic!("the member asks others")), steps)
    }

    /// Lets a member do deferred work. It sends the resulting messages in the next turn.
    pub fn settle(&mut self, n: usize) -> Steps {
        let mut steps = Steps::default();
        steps.measure(|| self.members[n].settle(|| Timestamp::ZERO));
        steps
    }

    /// One round: first A and then B receives the frames in flight to it and sends its own.
    pub fn turn(&mut self) -> [Steps; 2] {
        let mut all = [Steps::default(); 2];
        for (n, steps) in all.iter_mut().enumerate() {
            for frame in std::mem::take(&mut self.frames[n]) {
                let mut turn = Received { frames: vec![(id(1 - n), frame)], ..Received::default() };
                steps.measure(|| take(&mut self.members[n], &mut turn));
            }
            self.take_outputs(n);
            self.say(n, steps);
        }
        all
    }

    /// Runs rounds until neither member has anything to send or to do.
    pub fn run(&mut self) -> [Steps; 2] {
        let mut all = self.turn();
        while self.frames.iter().any(|frames| !frames.is_empty()) || self.members.iter().any(ChainRunner::is_behind) {
            self.turn().iter().zip(&mut all).for_each(|(turn, sum)| sum.add(turn));
        }
        all
    }

    /// Drops all frames in flight, and all frames that the members would send next.
    pub fn lose(&mut self) {
        (0..2).for_each(|n| self.say(n, &mut Steps::default()));
        self.frames.iter_mut().for_each(VecDeque::clear);
    }

    /// The sequence of the last update of a member.
    pub fn last(&self, n: usize) -> u64 {
        self.members[n].replica().status().last.sequence.0
    }

    /// The number of keys in the store of a member.
    pub fn keys(&self, n: usize) -> u64 {
        self.members[n].replica().status().size.keys
    }

    /// Whether a member is receiving a snapshot.
    pub fn is_resyncing(&self, n: usize) -> bool {
        self.members[n].replica().status().resync.receiving.is_some()
    }

    fn say(&mut self, n: usize, steps: &mut Steps) {
        let (member, to) = (&mut self.members[n], id(1 - n));
        let frames = &mut self.frames[1 - n];
        frames.extend(steps.measure(|| member.poll_control(Timestamp::ZERO, to)));
        while let Some(frame) = steps.measure(|| member.poll_updates(Timestamp::ZERO, to, ROOM)) {
            frames.push_back(frame);
        }
        // At most 16 frames of the snapshot per turn. The lane of a node holds two.
        for _ in 0..16 {
            let Some(frame) = steps.measure(|| member.poll_snapshot(Timestamp::ZERO, to, ROOM)) else { break };
            frames.push_back(frame);
        }
        steps.measure(|| member.settle(|| Timestamp::ZERO));
    }

    fn take_outputs(&mut self, n: usize) {
        while let Some(output) = self.members[n].poll_output() {
            if let RunnerOutput::Reply((), reply) = output {
                self.replies.push(reply);
            }
        }
        while self.members[n].poll_word().is_some() {}
        if self.replies.len() > 1000 {
            self.replies.clear();
        }
    }
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}
