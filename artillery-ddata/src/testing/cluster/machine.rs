//! A machine of a test's cluster, and the node that runs on it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_core::{
    MemberId, NodeId, Timestamp,
    internal::{clock::NodeClock, simulated::Network},
};
use artillery_proto::disk::simulated::{CutSettings, SimulatedDisk};
use tokio::task::JoinHandle;

use super::Witness;
use crate::{
    Node,
    config::{Config, DataConfig},
    node::{StartError, machine::Machine},
    rpc::observer::Observer,
};

/// The size of a disk in bytes.
const DISK_BYTES: u64 = 1 << 40;

/// The disk is treated as full when less is free.
const RESERVE_BYTES: u64 = 1 << 20;

/// A secret is needed, and no other process can reach a simulated network.
const SECRET: &[u8] = b"the secret of a simulated cluster";

/// How all nodes of a cluster are started.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) network: Network,
    pub(super) seed: u64,
    pub(super) config: Config,
    pub(super) machine: Machine,
    pub(super) durable: bool,
}

pub(super) struct TestMachine {
    pub(super) number: u32,
    name: String,
    pub(super) clock: NodeClock,
    disk: Option<SimulatedDisk>,
    state: Mutex<MachineState>,
}

struct MachineState {
    /// The last incarnation of the node.
    id: MemberId,
    /// The last process of the node.
    node: Option<Node>,
    runs: bool,
    /// Whether the node has left the cluster permanently.
    has_left: bool,
    /// The end of the last process.
    ending: Option<JoinHandle<()>>,
}

pub(super) fn name(number: u32) -> String {
    format!("node-{number}")
}

impl TestMachine {
    /// A machine on which no node runs yet.
    pub(super) fn new(setup: &Setup, number: u32) -> Self {
        let name = name(number);
        let disk_seed = setup.seed.wrapping_mul(251).wrapping_add(number.into());
        let cuts = CutSettings { tears_sectors: true, leaves_garbage: true };
        let id = MemberId {
            node: NodeId::from_name(&name),
            incarnation: artillery_core::Incarnation { store: 0, starts: 0 },
        };
        // The clocks show different times, so that mixing them up is noticed.
        let start = Timestamp::ZERO + Duration::from_secs(1000 * u64::from(number));
        Self {
            number,
            name,
            clock: NodeClock::starting_at(start),
            disk: setup.durable.then(|| SimulatedDisk::new(disk_seed, DISK_BYTES, cuts)),
            state: Mutex::new(MachineState { id, node: None, runs: false, has_left: false, ending: None }),
        }
    }

    fn state(&self) -> MutexGuard<'_, MachineState> {
        // No code that holds the lock can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn id(&self) -> MemberId {
        self.state().id
    }

    /// The last process of the node, which may have ended.
    pub(super) fn last(&self) -> Option<Node> {
        self.state().node.clone()
    }

    /// The node, if it runs.
    pub(super) fn node(&self) -> Option<Node> {
        let state = self.state();
        state.node.clone().filter(|_| state.runs)
    }

    pub(super) fn has_left(&self) -> bool {
        self.state().has_left
    }

    pub(super) fn set_left(&self) {
        self.state().has_left = true;
    }

    /// The disk.
    ///
    /// # Panics
    /// If it has none.
    pub(super) fn disk(&self) -> &SimulatedDisk {
        self.disk.as_ref().expect("the nodes of this cluster have no disks: see `Builder::durable`")
    }

    /// Starts the node. Does nothing if it runs. `existing`: whether its cluster exists.
    ///
    /// # Errors
    /// [`StartError`]: for example, the disk is damaged.
    pub(super) async fn start(&self, setup: &Setup, existing: bool, witness: &Arc<Witness>) -> Result<(), StartError> {
        if self.node().is_some() {
            return Ok(());
        }
        let ending = self.state().ending.take();
        if let Some(ending) = ending {
            // The former process can't panic: its end only stops tasks.
            let _ = ending.await;
        }
        let me = NodeId::from_name(&self.name);
        setup.network.revive(me);
        let machine = Machine { clock: self.clock.clone(), disk: self.disk.clone(), ..setup.machine.clone() };
        let mut config = Config { name: Some(self.name.clone()), existing, ..setup.config.clone() };
        // A small journal and reserve, so that tests reach checkpoints.
        config.data = self.disk.as_ref().map(|_| DataConfig {
            room_bytes: 64 << 10,
            reserve_bytes: Some(RESERVE_BYTES),
            ..DataConfig::new("simulated")
        });
        let node = Node::from_config(config).secret(SECRET).machine(machine).start().await?;
        node.observe(Observer::new(witness.clone(), self.number, Some(me)));
        let mut state = self.state();
        (state.id, state.runs) = (node.id(), true);
        state.node = Some(node);
        Ok(())
    }

    /// Ends the process like `kill -9`.
    pub(super) fn kill(&self, network: &Network) {
        network.kill(self.id().node);
        if let Some(disk) = &self.disk {
            disk.restart();
        }
        let mut state = self.state();
        if let Some(node) = state.node.clone().filter(|_| state.runs) {
            state.ending = Some(tokio::spawn(async move { node.abort().await }));
        }
        state.runs = false;
    }

    /// The node, which the caller ends; `None` if it doesn't run.
    pub(super) fn begin_end(&self) -> Option<Node> {
        let mut state = self.state();
        let node = state.node.clone().filter(|_| state.runs);
        state.runs = false;
        node
    }

    /// Drops the node.
    pub(super) fn drop_node(&self) {
        self.state().node = None;
    }

    /// From now on, the disk has less free space than the node's reserve.
    pub(super) fn fill_disk(&self) {
        self.disk().set_room(self.disk().used() + RESERVE_BYTES / 2);
    }

    /// Frees the space that [`fill_disk`](Self::fill_disk) has taken.
    pub(super) fn free_disk(&self) {
        self.disk().set_room(DISK_BYTES);
    }
}
