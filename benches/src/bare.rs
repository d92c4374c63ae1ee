//! Chains of replicas in one thread, without a network.

use std::{collections::BTreeMap, sync::Arc};

use artillery_proto::{
    ChainConfig, ChainId, ChainMember, Epoch, Incarnation, MemberId, Mode, NodeId, Role, Timestamp,
    replica::{Gate, Input, Output, Replica, Reply, Settings, Token, Write},
    store::MemoryStore,
};
use bytes::Bytes;

fn member(n: u8) -> MemberId {
    MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: 1, starts: 1 } }
}

/// A chain whose members hand each other their frames directly: what the state machine itself costs.
pub struct BareChain {
    replicas: BTreeMap<MemberId, Replica>,
    /// For local reads at each member, head first.
    pub gates: Vec<Arc<Gate>>,
    /// The members' stores, head first.
    pub stores: Vec<Arc<MemoryStore>>,
    next: u64,
    /// Writes committed so far.
    pub commits: u64,
}

impl BareChain {
    /// An open chain of so many members.
    pub fn new(members: u8) -> Self {
        let config = Arc::new(ChainConfig {
            chain: ChainId(0),
            epoch: Epoch(1),
            index: 1,
            mode: Mode::Craq,
            min_members: 1,
            members: (0..members).map(|n| ChainMember { id: member(n), role: Role::Serving }).collect(),
        });
        let mut chain = Self { replicas: BTreeMap::new(), gates: Vec::new(), stores: Vec::new(), next: 0, commits: 0 };
        for n in 0..members {
            let (gate, store) = (Arc::new(Gate::new(ChainId(0))), Arc::new(MemoryStore::with_seed(1)));
            let mut replica = Replica::new(member(n), ChainId(0), Settings::default(), store.clone(), gate.clone());
            replica.handle(Timestamp::ZERO, Input::Lease(Timestamp::MAX));
            (0..members).filter(|&m| m != n).for_each(|m| replica.handle(Timestamp::ZERO, Input::Connected(member(m))));
            replica.handle(Timestamp::ZERO, Input::Enter(config.clone()));
            chain.gates.push(gate);
            chain.stores.push(store);
            chain.replicas.insert(member(n), replica);
        }
        chain.settle();
        chain
    }

    /// Hands a write to the head.
    pub fn put(&mut self, key: Bytes, value: Bytes) {
        self.next += 1;
        let write = Input::Write {
            token: Token(self.next),
            request: None,
            write: Write::Put { key, value },
            deadline: Timestamp::MAX,
            wall_clock: self.next,
        };
        if let Some(head) = self.replicas.get_mut(&member(0)) {
            head.handle(Timestamp::ZERO, write);
        }
    }

    /// Moves frames until there are none.
    pub fn settle(&mut self) {
        loop {
            let mut frames = Vec::new();
            for (&from, replica) in &mut self.replicas {
                while let Some(output) = replica.poll_output() {
                    self.commits += u64::from(matches!(output, Output::Reply(_, Reply::Committed(_))));
                }
                for to in replica.peers().collect::<Vec<_>>() {
                    frames.extend(replica.poll_control(Timestamp::ZERO, to).map(|frame| (from, to, frame)));
                    while let Some(frame) = replica.poll_updates(Timestamp::ZERO, to, 128 << 10) {
                        frames.push((from, to, frame));
                    }
                }
                replica.settle();
            }
            if frames.is_empty() {
                return;
            }
            for (from, to, frame) in frames {
                if let Some(replica) = self.replicas.get_mut(&to) {
                    replica.handle(Timestamp::ZERO, Input::Receive { from, frame });
                }
            }
        }
    }
}
