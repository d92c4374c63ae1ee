//! Chains in one thread, without a network.

use std::{collections::BTreeMap, sync::Arc};

use artillery_proto::{
    ChainConfig, ChainId, ChainMember, ClusterId, Epoch, Incarnation, MemberId, Mode, NodeId, Role, Timestamp,
    api::{Reply, Write},
    control::log::LogIndex,
    replica::{Gate, ReplicaSettings},
    runner::{ChainOrder, ChainRunner, Lease, LinkChange, ReadRequest, RunnerOutput, Turn, WriteRequest},
    store::MemoryStore,
};
use bytes::Bytes;

pub(crate) fn member(n: u8) -> MemberId {
    MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: 1, starts: 1 } }
}

pub(crate) fn config(epoch: u64, members: impl Iterator<Item = ChainMember>) -> Arc<ChainConfig> {
    let (chain, epoch, index, members) = (ChainId(0), Epoch(epoch), epoch, members.collect());
    Arc::new(ChainConfig { chain, epoch, index, mode: Mode::Craq, min_members: 1, members })
}

pub(crate) type Received = Turn<ReadRequest<()>, WriteRequest<()>>;

/// A chain whose members exchange their frames directly: the cost of the state machine alone.
pub struct BareChain {
    members: BTreeMap<MemberId, ChainRunner<()>>,
    turn: Received,
    /// The gate of each member, head first, for local reads.
    pub gates: Vec<Arc<Gate>>,
    /// The members' stores, head first.
    pub stores: Vec<Arc<MemoryStore>>,
    next: u64,
    /// The number of committed writes.
    pub commits: u64,
}

impl BareChain {
    /// An open chain.
    pub fn new(members: u8) -> Self {
        let config = config(1, (0..members).map(|n| ChainMember { id: member(n), role: Role::Serving }));
        let (members_of, turn) = (BTreeMap::new(), Turn::default());
        let mut chain = Self { members: members_of, turn, gates: Vec::new(), stores: Vec::new(), next: 0, commits: 0 };
        for n in 0..members {
            let (gate, store) = (Arc::new(Gate::new(ChainId(0))), Arc::new(MemoryStore::with_seed(1)));
            let runner =
                ChainRunner::new(member(n), ChainId(0), ReplicaSettings::default(), store.clone(), gate.clone());
            chain.gates.push(gate);
            chain.stores.push(store);
            chain.members.insert(member(n), runner);
            chain.turn.lease = Some(Lease { until: Timestamp::MAX, ..Lease::default() });
            chain.turn.links.extend((0..members).filter(|&m| m != n).map(|m| LinkChange::Up(member(m))));
            let (config, history, upto) = (config.clone(), ClusterId(1), LogIndex(1));
            chain.turn.orders.push(ChainOrder::Enter { config, history, upto });
            chain.take(member(n));
        }
        chain.settle();
        chain
    }

    /// Sends a write to the head.
    pub fn put(&mut self, key: Bytes, value: Bytes) {
        self.next += 1;
        let (write, deadline) = (Write::put(key, value), Timestamp::MAX);
        self.turn.writes.push(WriteRequest { request: None, history: None, write, deadline, caller: () });
        self.take(member(0));
    }

    fn take(&mut self, member: MemberId) {
        if let Some(runner) = self.members.get_mut(&member) {
            runner.take(|| Timestamp::ZERO, &mut self.turn, |_| None);
        }
    }

    /// Delivers frames until no member sends any.
    pub fn settle(&mut self) {
        loop {
            let mut frames = Vec::new();
            for (&from, runner) in &mut self.members {
                while let Some(output) = runner.poll_output() {
                    self.commits += u64::from(matches!(output, RunnerOutput::Reply(_, Reply::Committed(_))));
                }
                while runner.poll_word().is_some() {}
                for to in runner.peers().collect::<Vec<_>>() {
                    frames.extend(runner.poll_control(Timestamp::ZERO, to).map(|frame| (from, to, frame)));
                    while let Some(frame) = runner.poll_updates(Timestamp::ZERO, to, 128 << 10) {
                        frames.push((from, to, frame));
                    }
                }
                runner.settle(|| Timestamp::ZERO);
            }
            if frames.is_empty() {
                return;
            }
            for (from, to, frame) in frames {
                self.turn.frames.push((from, frame));
                self.take(to);
            }
        }
    }
}
