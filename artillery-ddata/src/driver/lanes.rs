//! Lanes: what goes to one peer, in bounded queues, over the streams of whatever connection there is.
//!
//! Each lane is a stream of its own, so that a watermark never stands behind a megabyte. All lanes of a peer live and
//! die with one connection, so what a replica queues after it saw that connection isn't lost while it lasts.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use artillery_core::{
    MemberId, NodeId,
    error::WriteError,
    transport::{CloseCode, Connection, Endpoint, FrameBatch, FrameWriter, Link, StreamKind},
};
use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};

use crate::{
    control::formation::FormationMessage,
    wire::{chain, formation, message::ChainFrame, streams},
};

/// Control frames waiting for one peer: cumulative, so there is one a chain at a time, hardly ever more.
const CONTROL_QUEUE: usize = 64;
/// Update frames waiting for one peer, each of at most [`UPDATES_ROOM`] bytes unless it is one large value.
const UPDATES_QUEUE: usize = 4;
/// How much history goes into one frame.
pub(crate) const UPDATES_ROOM: usize = 128 << 10;
const FORMATION_QUEUE: usize = 16;
/// Frames handed to a stream in one write.
const BATCH: usize = 32;

/// Streams with data: higher ones go first.
const CONTROL_PRIORITY: i32 = 10;
const UPDATES_PRIORITY: i32 = 0;

/// Whether there is a connection to the peer now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LinkState {
    /// Rises with each connection: two that differ are two connections, whatever was missed between them.
    pub(crate) generation: u64,
    /// Who is there. What is queued once this was seen arrives in order, until the state changes.
    pub(crate) up: Option<MemberId>,
}

/// The queues to one peer.
#[derive(Clone)]
pub(crate) struct Lanes {
    pub(crate) control: mpsc::Sender<ChainFrame>,
    pub(crate) updates: mpsc::Sender<ChainFrame>,
    pub(crate) formation: mpsc::Sender<FormationMessage>,
    state: watch::Receiver<LinkState>,
    wake: Arc<Wake>,
}

/// Whom to wake when a lane has room again or its link has changed.
type Wake = ArcSwap<Vec<Arc<Notify>>>;

fn wake_all(wake: &Wake) {
    wake.load().iter().for_each(|sleeper| sleeper.notify_one());
}

impl Lanes {
    /// The state of the link.
    pub(crate) fn state(&self) -> LinkState {
        *self.state.borrow()
    }

    /// Has `sleeper` notified when there is room again or the state has changed.
    pub(crate) fn wake(&self, sleeper: &Arc<Notify>) {
        self.wake.rcu(|all| {
            // Those that only this list still knows have stopped.
            let mut all: Vec<_> = all.iter().filter(|other| Arc::strong_count(other) > 1).cloned().collect();
            all.push(sleeper.clone());
            all
        });
        sleeper.notify_one();
    }
}

/// All lanes of a node, made when they are first wanted.
pub(crate) struct Hub {
    endpoint: Endpoint,
    peers: Mutex<BTreeMap<NodeId, Lanes>>,
}

impl Hub {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, peers: Mutex::default() }
    }

    /// The lanes to `peer`, which is dialled at `addrs` from now on.
    pub(crate) fn lanes(&self, peer: NodeId, addrs: &[SocketAddr]) -> Lanes {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.entry(peer).or_insert_with(|| spawn(self.endpoint.link(peer, addrs.to_vec()))).clone()
    }

    /// Gives up all lanes; what is queued may be lost.
    pub(crate) fn close(&self) {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn spawn(link: Link) -> Lanes {
    let (control, control_queue) = mpsc::channel(CONTROL_QUEUE);
    let (updates, updates_queue) = mpsc::channel(UPDATES_QUEUE);
    let (formation, formation_queue) = mpsc::channel(FORMATION_QUEUE);
    let (state, state_seen) = watch::channel(LinkState::default());
    let wake = Arc::<Wake>::default();
    let task = Task {
        link,
        control: control_queue,
        updates: updates_queue,
        formation: formation_queue,
        state,
        wake: wake.clone(),
    };
    tokio::spawn(task.run());
    Lanes { control, updates, formation, state: state_seen, wake }
}

struct Task {
    link: Link,
    control: mpsc::Receiver<ChainFrame>,
    updates: mpsc::Receiver<ChainFrame>,
    formation: mpsc::Receiver<FormationMessage>,
    state: watch::Sender<LinkState>,
    wake: Arc<Wake>,
}

impl Task {
    /// Ends when the hub and all who sent have let go of the lanes, or the endpoint has stopped.
    async fn run(mut self) {
        while let Some(connection) = self.connect().await {
            let outcome = self.serve(&connection).await;
            self.state.send_modify(|state| state.up = None);
            // Queued in the belief that what went before arrives: cursors begin anew.
            while self.updates.try_recv().is_ok() {}
            wake_all(&self.wake);
            match outcome {
                Ok(()) => return,
                // A peer that takes no more of a stream, or a frame that can't be sent: a fresh start is all there is.
                Err(error) => connection.close(CloseCode::REPLACED, &error.to_string()),
            }
        }
    }

    /// The next connection; `None` once nobody holds the lanes any more.
    async fn connect(&mut self) -> Option<Connection> {
        tokio::select! {
            biased;
            connection = self.link.connected() => connection.ok(),
            () = self.state.closed() => None,
        }
    }

    async fn serve(&mut self, connection: &Connection) -> Result<(), WriteError> {
        let open = |kind: u8, priority| connection.open_uni(StreamKind(kind), priority);
        let mut control = open(streams::CHAIN_CONTROL, CONTROL_PRIORITY).await?;
        let mut updates = open(streams::CHAIN_UPDATES, UPDATES_PRIORITY).await?;
        let mut formation = open(streams::FORMATION, CONTROL_PRIORITY).await?;
        self.state.send_modify(|state| {
            state.generation += 1;
            state.up = Some(connection.peer().id);
        });
        wake_all(&self.wake);
        let room = || wake_all(&self.wake);
        tokio::select! {
            biased;
            result = pump(&mut self.control, &mut control, encode_chain, room) => result,
            result = pump(&mut self.updates, &mut updates, encode_chain, room) => result,
            result = pump(&mut self.formation, &mut formation, encode_formation, || {}) => result,
            reason = connection.closed() => Err(WriteError::Lost(reason)),
        }
    }
}

fn encode_chain(frame: &ChainFrame) -> Option<(Bytes, Vec<Bytes>)> {
    match chain::encode(frame) {
        Ok(encoded) => Some((encoded.header, encoded.body)),
        Err(error) => {
            tracing::error!(%error, "a frame can't be encoded");
            None
        }
    }
}

fn encode_formation(message: &FormationMessage) -> Option<(Bytes, Vec<Bytes>)> {
    match formation::encode(message) {
        Ok(header) => Some((header, Vec::new())),
        Err(error) => {
            tracing::error!(%error, "a message of formation can't be encoded");
            None
        }
    }
}

/// Moves a queue into a stream, as much at once as there is.
async fn pump<T>(
    queue: &mut mpsc::Receiver<T>,
    stream: &mut FrameWriter,
    encode: impl Fn(&T) -> Option<(Bytes, Vec<Bytes>)>,
    room: impl Fn(),
) -> Result<(), WriteError> {
    let mut taken = Vec::new();
    let mut batch = FrameBatch::new();
    while queue.recv_many(&mut taken, BATCH).await > 0 {
        room();
        for (header, body) in taken.drain(..).filter_map(|frame| encode(&frame)) {
            batch.push(&header, &body);
        }
        stream.send_all(&mut batch).await?;
    }
    Ok(())
}
