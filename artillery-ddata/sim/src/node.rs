//! A node: replicas over one store, an inbox, its own clock, and the state that a driver would hold.

use std::{collections::VecDeque, sync::Arc};

use artillery_proto::{
    ChainId, Incarnation, MemberId, NodeId, Timestamp,
    api::Reply,
    data_dir::OpenError,
    disk::simulated::SimulatedDisk,
    journal::SyncMode,
    message::{ChainFrame, ChainMessage},
    replica::{Gate, ReplicaSettings, SnapshotLimits},
    runner::{ChainOrder, ChainRunner, Lease, LinkChange, ReadRequest, Turn, WriteRequest},
    store::{MemoryStore, Store},
};

use crate::{
    client::{Asked, place},
    disk::Opened,
    network::Flight,
    rng::{Concern, Rng},
    scenario::Setup,
    store::FailingStore,
};

/// The origin of a client's request, which the replica returns with the reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The index of the client.
    pub client: usize,
    /// The number of the operation, unique within that client.
    pub number: u64,
    /// The number of the attempt.
    pub attempt: u32,
    /// The operation.
    pub asked: Arc<Asked>,
    /// For a late duplicate: the earlier reply.
    pub expected: Option<Arc<Reply>>,
}

/// The receiver of a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// A client, with the request that it made.
    Client(Origin),
    /// A watcher, and the number of its attempt.
    Watcher(usize, u64),
    /// A contender for a lock, and the number of its attempt.
    Contender(usize, u64),
    /// A follower, and the number of its attempt.
    Follower(usize, u64),
}

/// An input of a chain.
#[derive(Debug)]
pub enum Input {
    /// The newest lease.
    Lease(Lease),
    /// A change of the link to a peer.
    Link(LinkChange),
    /// An order of the control half.
    Order(ChainOrder),
    /// A frame of a peer.
    Frame(MemberId, ChainFrame),
    /// A read of a client or a watcher.
    Read(ReadRequest<Caller>),
    /// A write of a client.
    Write(WriteRequest<Caller>),
    /// A turn that the chain requested is due.
    Tick,
    /// All journal batches up to this number are durable.
    Durable(u64),
    /// The journal must become shorter.
    Checkpoint,
}

impl Input {
    /// Whether the input may add to a history. A turn gets at most one such input, so that the oracle sees its updates
    /// before they are trimmed. In some worlds several snapshot parts may share a turn.
    pub const fn adds(&self) -> bool {
        matches!(self, Self::Frame(..) | Self::Write(_))
    }

    /// Whether the input takes precedence over frames and requests that were received earlier.
    pub const fn goes_first(&self) -> bool {
        matches!(self, Self::Lease(_) | Self::Link(_) | Self::Order(_) | Self::Durable(_) | Self::Checkpoint)
    }

    /// Whether the input is a part of a snapshot.
    pub const fn is_part(&self) -> bool {
        matches!(self, Self::Frame(_, frame) if is_part(frame))
    }
}

/// Whether the frame is a part of a snapshot. Parts add nothing to a history, except for the last one.
pub const fn is_part(frame: &ChainFrame) -> bool {
    matches!(frame.message, ChainMessage::Snapshot(_))
}

/// The inputs of a chain for one turn.
pub type Received = Turn<ReadRequest<Caller>, WriteRequest<Caller>>;

/// Turns that were received but not processed.
#[derive(Debug)]
pub struct Pending {
    /// The turns, by slot.
    pub turns: Vec<(usize, Received)>,
    /// The clock reading after all of their inputs had been received.
    pub reading: Timestamp,
    /// The senders and flights of their frames.
    pub flights: Vec<(usize, Flight)>,
}

/// An input that waits for a turn.
#[derive(Debug)]
pub struct Work {
    /// The slot of the chain.
    pub slot: usize,
    /// The input for this chain.
    pub input: Input,
    /// The sender and the flight, if the input is a frame.
    pub flight: Option<(usize, Flight)>,
}

/// One chain of a node.
#[derive(Debug)]
pub struct Slot {
    /// The replica with its runner.
    pub runner: ChainRunner<Caller>,
    /// The gate, through which clients read without the replica.
    pub gate: Arc<Gate>,
    /// The virtual time at which its next tick is due.
    pub tick: Option<u64>,
    /// The number of the newest scheduled tick.
    pub tick_number: u64,
    /// Whether a tick is in the inbox.
    pub tick_queued: bool,
}

/// The state of the connection to a peer, as noticed by a node.
#[derive(Clone, Copy, Default, Debug)]
pub struct PeerView {
    /// The number of the newest state that the node has noticed.
    pub generation: u64,
    /// Whether the connection was up in that state.
    pub connected: bool,
    /// Whether the link had no capacity left at the last poll.
    pub full: bool,
}

/// A node with its chains, its clock and its inbox.
#[derive(Debug)]
pub struct Node {
    /// Its identity.
    pub id: MemberId,
    /// The data of its chains.
    pub store: Arc<MemoryStore>,
    /// The same store, as its chains write to it.
    pub failing: Arc<FailingStore>,
    /// The files open on its disk; `None` if it has no disk.
    pub opened: Option<Opened>,
    /// Its chains.
    pub slots: Vec<Slot>,
    /// Inputs that have not been received yet.
    pub inbox: VecDeque<Work>,
    /// Turns that were received but not processed.
    pub pending: Option<Pending>,
    /// The rest of turns that exceeded their time.
    pub rest: Vec<(usize, Received)>,
    /// The time at which its current turn ends. Its other tasks wait, since it has one thread.
    pub busy_until: u64,
    /// Whether a step of the node is scheduled.
    pub scheduled: bool,
    /// Whether a poll of its replicas is scheduled.
    pub poll_scheduled: bool,
    /// Time that it needs per input, in nanoseconds.
    pub cost: u64,
    /// When its task gets the processor again.
    pub ready_at: u64,
    /// Whether it has stopped permanently.
    pub crashed: bool,
    /// Whether it is currently down.
    pub down: bool,
    /// Whether its store fails.
    pub fails: bool,
    /// Whether it was asked to stop.
    pub stops: bool,
    /// Whether it was asked to stop temporarily. It then restarts by itself.
    pub returns: bool,
    /// Whether it was asked to leave its chains.
    pub drained: bool,
    /// Whether it has reported that it left them.
    pub left: bool,
    /// Whether it has reported that it is ready.
    pub ready: bool,
    /// Whether a leader has confirmed to it that any one other node may be stopped.
    pub was_told: bool,
    /// Whether it is currently paused.
    pub paused: bool,
    /// Rate error of its clock, in millionths; positive if it is fast.
    pub fast: i64,
    /// The virtual time of the clock reading of its last turn.
    pub read_at: u64,
    /// The states of its connections, by the index of the peer.
    pub peers: Vec<PeerView>,
    /// Its stream of random numbers.
    pub rng: Rng,
    offset: u64,
}

/// Time that a healthy node needs per input, in nanoseconds.
pub const QUICK: u64 = 2_000;

impl Node {
    /// The node with this index in its incarnation `life`. Loads the data on its disk, and fails if the data can't be
    /// opened.
    pub fn new(
        seed: u64,
        index: usize,
        life: u64,
        setup: &Setup,
        disk: Option<(&SimulatedDisk, SyncMode)>,
    ) -> Result<Self, OpenError> {
        let mut rng = Rng::new(seed, Concern::Node(index));
        let is_unnamed = setup.control.is_some_and(|control| index + control.unnamed >= setup.members);
        // The node's id derives from the name, so another name would change every trace.
        let suffix = if is_unnamed { format!(" of life {life}") } else { String::new() };
        let name = format!("n{index}{suffix}");
        let node = NodeId::from_name(&name);
        let new = Incarnation { store: (index as u128 + 1) << 112 | u128::from(life), starts: 1 };
        let store = MemoryStore::with_seed(seed.wrapping_add(index as u64)).with_positions(place, 1);
        let store = Arc::new(store.with_guards(setup.guards));
        let failing = Arc::new(FailingStore::new(store.clone()));
        let store_of_chains: Arc<dyn Store> = failing.clone();
        // Distinguishes copies of a directory: each start draws its own number.
        let drawn = u128::from(life) << 64 | u128::from(life);
        let open = |disk| Opened::open(disk, node, (new.store, drawn), setup, &store_of_chains);
        let (incarnation, opened, mut restored) = match disk.map(open).transpose()? {
            Some((incarnation, opened, restored)) => (incarnation, Some(opened), Some(restored)),
            None => (new, None, None),
        };
        let id = MemberId { node, incarnation };
        let slots = (0..setup.chains)
            .map(|chain| {
                let chain = ChainId(chain as u32);
                let gate = Arc::new(Gate::new(chain).with_guards(setup.guards));
                let runner = ChainRunner::new(id, chain, settings(setup), failing.clone(), gate.clone());
                let runner = match restored.as_mut().and_then(|restored| restored(chain)) {
                    Some(restored) => runner.restored(restored),
                    None => runner,
                };
                Slot { runner, gate, tick: None, tick_number: 0, tick_queued: false }
            })
            .collect();
        let offset = rng.between(0, 1 << 50);
        // A draw that is no longer used. Without it, every run of a seed would change.
        let _ = rng.between(1_700_000_000_000, 1_700_000_100_000);
        Ok(Self {
            id,
            store,
            failing,
            opened,
            slots,
            inbox: VecDeque::new(),
            pending: None,
            rest: Vec::new(),
            busy_until: 0,
            scheduled: false,
            poll_scheduled: false,
            cost: setup.cost,
            ready_at: 0,
            crashed: false,
            down: false,
            fails: false,
            stops: false,
            returns: false,
            drained: false,
            left: false,
            ready: false,
            was_told: false,
            paused: false,
            fast: 0,
            read_at: 0,
            peers: vec![PeerView::default(); setup.members],
            offset,
            rng,
        })
    }

    /// Whether the node is up, even if it is paused.
    pub fn is_alive(&self) -> bool {
        !self.crashed && !self.down
    }

    /// The reading of its clock at virtual time `now`.
    pub fn clock(&self, now: u64) -> Timestamp {
        let ahead = now as i128 * i128::from(self.fast) / 1_000_000;
        Timestamp::from_nanos((i128::from(self.offset + now) + ahead) as u64)
    }

    /// The virtual time at which its clock shows `at`.
    pub fn moment(&self, at: Timestamp) -> u64 {
        let passed = i128::from(at.as_nanos().saturating_sub(self.offset));
        if self.fast == 0 {
            return passed as u64;
        }
        // Rounded up, so that the clock shows no less than `at`.
        (passed * 1_000_000 / i128::from(1_000_000 + self.fast)) as u64 + 1
    }
}

fn settings(setup: &Setup) -> ReplicaSettings {
    ReplicaSettings {
        window: setup.window,
        backlog: setup.backlog,
        joiner_buffer: setup.joiner_buffer,
        heartbeat: setup.heartbeat,
        resend: setup.resend,
        guards: setup.guards,
        sessions: setup.session_bytes,
        answer: setup.answer,
        watch_steps: setup.watch_steps,
        join: setup.join,
        snapshots: SnapshotLimits { age: setup.snapshot_age, bytes: setup.snapshot_bytes },
        chunk: setup.chunk,
        clear_keys: 3,
        catch_up: 2,
        turn: setup.turn,
        durable: setup.durable.is_some(),
        ..ReplicaSettings::default()
    }
}
