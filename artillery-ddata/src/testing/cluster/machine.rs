//! A machine of a test's cluster, and the node that runs on it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_core::{
    MemberId, NodeId, Timestamp,
    internal::{clock::NodeClock, simulated::Network, watch},
};
use artillery_proto::disk::simulated::{CutSettings, SimulatedDisk};
use tokio::task::AbortHandle;

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
    /// Held while the node starts or ends.
    turn: tokio::sync::Mutex<()>,
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
    ending: Option<Ending>,
    kills: u64,
    /// Whether a random fault has ended the last process.
    by_trouble: bool,
}

#[derive(Clone)]
struct Ending {
    task: AbortHandle,
    /// Closed once the task has ended.
    running: watch::Receiver<()>,
}

/// How a process ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    Abort,
    Stop,
    Leave,
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
            state: Mutex::new(MachineState {
                id,
                node: None,
                runs: false,
                has_left: false,
                ending: None,
                kills: 0,
                by_trouble: false,
            }),
            turn: tokio::sync::Mutex::default(),
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

    /// Records whether a random fault has ended the process. An order of the test cancels that: the fault doesn't restart
    /// the node then.
    pub(super) fn set_by_trouble(&self, is: bool) {
        self.state().by_trouble = is;
    }

    pub(super) fn is_down_by_trouble(&self) -> bool {
        self.state().by_trouble
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

    /// Starts the node, once a former process has ended. Does nothing if it runs. `existing`: whether its cluster exists.
    ///
    /// # Errors
    /// [`StartError`]: for example, the disk is damaged.
    pub(super) async fn start(&self, setup: &Setup, existing: bool, witness: &Arc<Witness>) -> Result<(), StartError> {
        let _turn = self.turn.lock().await;
        if self.node().is_some_and(|node| !node.has_ended()) {
            return Ok(());
        }
        self.begin_end(End::Abort);
        self.until_ended().await;
        let me = NodeId::from_name(&self.name);
        setup.network.revive(me);
        let kills = self.state().kills;
        let disk = self.disk.as_ref().map(SimulatedDisk::of_this_start);
        let machine = Machine { clock: self.clock.clone(), disk, ..setup.machine.clone() };
        let mut config = Config { name: Some(self.name.clone()), existing, ..setup.config.clone() };
        // A small journal and reserve, so that tests reach checkpoints.
        config.data = self.disk.as_ref().map(|_| DataConfig {
            room_bytes: 64 << 10,
            reserve_bytes: Some(RESERVE_BYTES),
            ..DataConfig::new("simulated")
        });
        let started = Node::from_config(config).secret(SECRET).machine(machine).start().await;
        let mut state = self.state();
        let was_killed = state.kills != kills;
        let node = match started {
            Ok(node) => node,
            // The disk of a killed process fails.
            Err(_) if was_killed => return Ok(()),
            Err(error) => return Err(error),
        };
        node.observe(Observer::new(witness.clone(), self.number, Some(me)));
        (state.id, state.runs, state.node) = (node.id(), true, Some(node));
        drop(state);
        if was_killed {
            self.begin_end(End::Abort);
        }
        Ok(())
    }

    /// Ends the process like `kill -9`, also while it starts or ends.
    pub(super) fn kill(&self, network: &Network) {
        network.kill(self.id().node);
        if let Some(disk) = &self.disk {
            disk.restart();
        }
        {
            let mut state = self.state();
            state.kills += 1;
            if let Some(ending) = state.ending.take() {
                ending.task.abort();
                state.runs = true;
            }
        }
        self.begin_end(End::Abort);
    }

    /// Ends the process, if it runs. It ends even if the caller is dropped.
    pub(super) async fn end(&self, how: End) {
        let _turn = self.turn.lock().await;
        self.begin_end(how);
        self.until_ended().await;
    }

    fn begin_end(&self, how: End) {
        let mut state = self.state();
        let Some(node) = state.node.clone().filter(|_| state.runs) else { return };
        state.runs = false;
        let (sender, running) = watch::channel(());
        let ended = async move {
            let _running = sender;
            match how {
                End::Abort => node.abort().await,
                End::Stop => node.shutdown().await,
                End::Leave => node.leave().await,
            }
        };
        state.ending = Some(Ending { task: tokio::spawn(ended).abort_handle(), running });
    }

    /// Waits until the last process has ended.
    async fn until_ended(&self) {
        let ending = || self.state().ending.clone().filter(|ending| !ending.task.is_finished());
        // A kill in the meantime replaces the ending.
        while let Some(mut ending) = ending() {
            while ending.running.changed().await.is_ok() {}
        }
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

    /// Ends the faults of the machine.
    pub(super) fn calm(&self) {
        self.clock.drift(0);
        if self.disk.is_some() {
            self.free_disk();
        }
    }
}
