//! A node: its [`Decider`], its chain with a store, and the gate of the chain.

use std::{fmt, sync::Arc};

use artillery_proto::{
    ChainId, Incarnation, MemberId, NodeId, Sequence,
    control::{Configs, NodeInfo},
    node::{self, NodeMachine as Decider},
    replica::{Gate, Replica, ReplicaSettings},
    runner::ChainRunner,
    store::{MemoryStore, Store, StoreBatch, StoreOp},
};

use super::{
    KEY, UNIT,
    part::{Part, Piece, hash_of},
};
use crate::bounds::Bounds;

/// Whether a node works, and which connections it has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Health {
    /// The node works and reaches all others.
    Well,
    /// The node stopped permanently.
    Crashed,
    /// The node works, but reaches only its clients.
    CutOff,
    /// The node works and dials others, but none of them can dial it.
    Undialable,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: MemberId,
    pub(crate) health: Health,
    pub(crate) runner: ChainRunner<usize>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) decider: Part<Decider>,
}

pub(crate) const CHAIN: ChainId = ChainId(0);

pub(crate) fn founder(index: usize) -> NodeInfo {
    let name = format!("n{index}");
    let incarnation = Incarnation { store: index as u128 + 1, starts: 1 };
    NodeInfo { id: MemberId { node: NodeId::from_name(&name), incarnation }, name, addrs: Vec::new(), host: None }
}

impl Node {
    pub(crate) fn new(
        founder: NodeInfo,
        configs: Arc<Configs>,
        settings: node::CoordinatorSettings,
        bounds: &Bounds,
    ) -> Self {
        let id = founder.id;
        let store = Arc::new(MemoryStore::small(0));
        let gate = Arc::new(Gate::new(CHAIN).with_guards(bounds.replica));
        let replica = ReplicaSettings { heartbeat: UNIT, guards: bounds.replica, ..ReplicaSettings::default() };
        let runner = ChainRunner::new(id, CHAIN, replica, store.clone(), gate.clone());
        let decider = Part::new(Decider::new(founder, configs, settings));
        Self { id, health: Health::Well, runner, store, gate, decider }
    }

    pub(crate) fn replica(&self) -> &Replica {
        self.runner.replica()
    }

    pub(crate) fn is_well(&self) -> bool {
        self.health == Health::Well
    }

    /// Whether the node can send messages to others and receive their answers.
    pub(crate) fn dials(&self) -> bool {
        self.is_well() || self.health == Health::Undialable
    }

    pub(crate) fn works(&self) -> bool {
        self.health != Health::Crashed
    }

    fn versions(&self) -> Vec<artillery_proto::store::Held> {
        let mut versions = Vec::new();
        let mut at_most = Sequence::MAX;
        while let Ok(Some(held)) = self.store.read(CHAIN, KEY, at_most) {
            at_most = Sequence(held.version.sequence.0 - 1);
            versions.push(held);
        }
        versions
    }

    /// A copy of all versions of the key. The store has no other state: it has no pins, and each batch states the
    /// sequence below which versions are no longer needed.
    fn copy_store(&self) -> Arc<MemoryStore> {
        let store = MemoryStore::small(0);
        let key = bytes::Bytes::from_static(KEY);
        let ops = self.versions().into_iter().rev().map(|held| StoreOp::Put { key: key.clone(), held });
        let batch = StoreBatch { chain: CHAIN, keep_from: Sequence::ZERO, ops: ops.collect() };
        // A memory store accepts every batch of ascending versions.
        let _ = store.apply(&batch);
        Arc::new(store)
    }
}

impl Clone for Node {
    fn clone(&self) -> Self {
        let store = self.copy_store();
        let gate = Arc::new(self.gate.fork());
        let runner = self.runner.fork(store.clone(), gate.clone());
        Self { id: self.id, health: self.health, runner, store, gate, decider: self.decider.clone() }
    }
}

impl Piece for Node {
    /// For a crashed node, only the state that the rules check.
    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        let Self { id: _, health, runner, store: _, gate, decider } = self;
        write!(out, "{health:?}{:?}", gate.watermark())?;
        if !self.works() {
            runner.replica().history().try_for_each(|update| write!(out, "{update:?}"))?;
            return write!(out, "{:?}", runner.replica().status().halted);
        }
        write!(out, "{:?}{:?}{:?}", hash_of(runner), decider.fingerprint(), self.versions())?;
        write!(out, "{:?}", (gate.serving(), gate.lease_until()))
    }
}
