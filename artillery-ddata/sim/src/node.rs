//! A node: replicas over one store, an inbox, a clock of its own, and what its driver would keep.

use std::{collections::VecDeque, sync::Arc};

use artillery_proto::{
    ChainId, Incarnation, MemberId, NodeId, Timestamp,
    replica::{Gate, Reply, Settings},
    runner::{ChainRunner, Lease, Link, Order, ReadRequest, Turn, WriteRequest},
    store::MemoryStore,
    wire::message::ChainFrame,
};

use crate::{
    client::{Asked, place},
    network::Flight,
    rng::{Concern, Rng},
    scenario::Setup,
    store::FailingStore,
};

/// Whose request a token stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Which client's.
    pub client: usize,
    /// Which operation of it.
    pub number: u64,
    /// Which attempt at it.
    pub attempt: u32,
    /// What it is.
    pub asked: Arc<Asked>,
    /// Of a late duplicate: what was answered before.
    pub expected: Option<Arc<Reply>>,
}

/// Who waits for a reply of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// A client.
    Client(Origin),
    /// A watcher, and which attempt of it.
    Watcher(usize, u64),
}

/// What comes to a chain.
#[derive(Debug)]
pub enum Input {
    /// The newest lease.
    Lease(Lease),
    /// News of the way to a peer.
    Link(Link),
    /// An order of the node.
    Order(Order),
    /// A frame of a peer.
    Frame(MemberId, ChainFrame),
    /// A read.
    Read(ReadRequest<Caller>),
    /// A write.
    Write(WriteRequest<Caller>),
    /// It is time for a turn.
    Tick,
}

impl Input {
    /// Whether it may add to a history: of these, one comes in a turn, so that all of it is seen before it is trimmed.
    pub const fn adds(&self) -> bool {
        matches!(self, Self::Frame(..) | Self::Write(_))
    }
}

/// What a chain receives for one turn.
pub type Received = Turn<ReadRequest<Caller>, WriteRequest<Caller>>;

/// A turn that was received and isn't taken in yet.
#[derive(Debug)]
pub struct Pending {
    /// By slot.
    pub turns: Vec<(usize, Received)>,
    /// What the clock showed when all of it had been received.
    pub reading: Timestamp,
    /// From whom frames came, and on which flights.
    pub flights: Vec<(usize, Flight)>,
}

/// One input that waits for its turn.
#[derive(Debug)]
pub struct Work {
    /// For which chain.
    pub slot: usize,
    /// What.
    pub input: Input,
    /// From whom and on which flight it came, if it was a frame.
    pub flight: Option<(usize, Flight)>,
}

/// One chain of a node.
#[derive(Debug)]
pub struct Slot {
    /// The replica, and what decides what it takes in.
    pub runner: ChainRunner<Caller>,
    /// Where clients read without it.
    pub gate: Arc<Gate>,
    /// When its next tick is due in virtual time.
    pub tick: Option<u64>,
    /// Names the newest of its scheduled ticks.
    pub tick_number: u64,
    /// Whether a tick waits in the inbox.
    pub tick_queued: bool,
}

/// What a node knows of its connection to a peer.
#[derive(Clone, Copy, Default, Debug)]
pub struct PeerView {
    /// The newest state of the connection that it noticed.
    pub generation: u64,
    /// Whether that was up.
    pub connected: bool,
    /// Whether the link had no room left when messages were taken last.
    pub full: bool,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Its identity.
    pub id: MemberId,
    /// Its data.
    pub store: Arc<MemoryStore>,
    /// The same, as its chains write to it.
    pub failing: Arc<FailingStore>,
    /// Its chains.
    pub slots: Vec<Slot>,
    /// What it has to take in.
    pub inbox: VecDeque<Work>,
    /// What it has received and is about to take in.
    pub pending: Option<Pending>,
    /// Whether a step of it is scheduled.
    pub scheduled: bool,
    /// Whether messages are taken from its replicas at a scheduled time.
    pub poll_scheduled: bool,
    /// Nanoseconds that it takes over an input.
    pub cost: u64,
    /// Its task has no processor until then.
    pub ready_at: u64,
    /// Whether it stopped for ever.
    pub crashed: bool,
    /// Whether it isn't there at the moment.
    pub down: bool,
    /// Whether its store fails.
    pub fails: bool,
    /// Whether it was told to stop.
    pub stops: bool,
    /// Whether it was asked to leave its chains.
    pub drained: bool,
    /// It has said that it has left.
    pub left: bool,
    /// Whether it has said that it is ready.
    pub ready: bool,
    /// Whether a leader has told it that any other one may be stopped.
    pub was_told: bool,
    /// Whether it does nothing at the moment.
    pub paused: bool,
    /// By how many millionths its clock is fast.
    pub fast: i64,
    /// What it knows of its peers, by index.
    pub peers: Vec<PeerView>,
    /// Its randomness.
    pub rng: Rng,
    offset: u64,
    wall: u64,
}

/// What an input costs a healthy node, in nanoseconds.
pub const QUICK: u64 = 2_000;

impl Node {
    /// The node with this index in the world of `setup`, in its life of this number.
    pub fn new(seed: u64, index: usize, life: u64, setup: &Setup) -> Self {
        let mut rng = Rng::new(seed, Concern::Node(index));
        let id = MemberId {
            node: NodeId::from_name(&format!("n{index}")),
            incarnation: Incarnation { store: (index as u128 + 1) << 112 | u128::from(life), starts: 1 },
        };
        let store = MemoryStore::with_seed(seed.wrapping_add(index as u64)).with_positions(place, 1);
        let store = Arc::new(store.with_guards(setup.guards));
        let failing = Arc::new(FailingStore::new(store.clone()));
        let slots = (0..setup.chains)
            .map(|chain| {
                let chain = ChainId(chain as u32);
                let gate = Arc::new(Gate::new(chain).with_guards(setup.guards));
                let runner = ChainRunner::new(id, chain, settings(setup), failing.clone(), gate.clone());
                Slot { runner, gate, tick: None, tick_number: 0, tick_queued: false }
            })
            .collect();
        Self {
            id,
            store,
            failing,
            slots,
            inbox: VecDeque::new(),
            pending: None,
            scheduled: false,
            poll_scheduled: false,
            cost: setup.cost,
            ready_at: 0,
            crashed: false,
            down: false,
            fails: false,
            stops: false,
            drained: false,
            left: false,
            ready: false,
            was_told: false,
            paused: false,
            fast: 0,
            peers: vec![PeerView::default(); setup.members],
            offset: rng.between(0, 1 << 50),
            wall: rng.between(1_700_000_000_000, 1_700_000_100_000),
            rng,
        }
    }

    /// Whether it does anything.
    pub fn is_alive(&self) -> bool {
        !self.crashed && !self.down
    }

    /// What its clock shows at virtual time `now`.
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
        // Rounded up: then the clock shows no less.
        (passed * 1_000_000 / i128::from(1_000_000 + self.fast)) as u64 + 1
    }

    /// What its wall clock shows, in milliseconds: nobody else's.
    pub fn wall_clock(&self, now: u64) -> u64 {
        self.wall + now / 1_000_000
    }
}

fn settings(setup: &Setup) -> Settings {
    Settings {
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
        snapshot_age: setup.snapshot_age,
        snapshot_bytes: setup.snapshot_bytes,
        chunk: setup.chunk,
        clear_keys: 3,
        ..Settings::default()
    }
}
