//! Lanes: bounded queues of frames to one peer, sent over the streams of the present connection.
//!
//! Each lane is a stream of its own, so that watermarks don't wait behind large values. The history of each chain has
//! lanes too, so that chains don't wait for each other's values; with very many chains, several share a lane. All lanes
//! of a peer use the same connection. So a frame that a replica queues after it saw the connection isn't lost while the
//! connection lasts.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use artillery_core::internal::watch;
use artillery_core::{
    MemberId, NodeId,
    error::WriteError,
    transport::{CloseCode, Connection, Endpoint, FrameBatch, FrameWriter, Link, StreamKind},
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};

use crate::{
    control::formation::FormationMessage,
    message::{ChainFrame, MAX_CHUNK},
    wire::{
        chain::{self, EncodeError, Encoded, EncodedBody},
        formation, streams,
    },
};

/// The most control frames that wait for one peer. They are cumulative, so a chain seldom has more than one.
const CONTROL_QUEUE: usize = 64;
/// The most update frames of one lane that wait for one peer, each of about [`UPDATES_ROOM`] bytes at most.
const UPDATES_QUEUE: usize = 4;
/// The most parts of snapshots of one lane that wait for one peer.
const SNAPSHOTS_QUEUE: usize = 2;
/// The approximate maximum of history in one frame, in bytes.
pub(crate) const UPDATES_ROOM: usize = MAX_CHUNK;
/// The number of lanes of one kind is the limit on open streams (`max_streams_per_connection`) divided by this. Beyond
/// that limit a new stream would wait as long as the others last, so further chains share lanes.
const LANES_SHARE_DIVISOR: usize = 4;
const FORMATION_QUEUE: usize = 16;
/// The most frames handed to a stream in one write.
const BATCH: usize = 32;

/// Priorities of data streams; frames of a higher priority are sent first.
const CONTROL_PRIORITY: i32 = 10;
const UPDATES_PRIORITY: i32 = 0;
/// Below all streams for which a caller waits.
const SNAPSHOTS_PRIORITY: i32 = -2;

/// Whether the peer is connected now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LaneState {
    /// Incremented with each connection. Two different values mean two connections, even if the states in between were
    /// missed.
    pub(crate) generation: u64,
    /// The connected member. Frames queued after this value was read arrive in order, until the state changes.
    pub(crate) up: Option<MemberId>,
}

/// The queues to one peer.
#[derive(Clone)]
pub(crate) struct Lanes {
    pub(crate) control: mpsc::Sender<ChainFrame>,
    pub(crate) formation: mpsc::Sender<FormationMessage>,
    history: Arc<HistoryLanes>,
    state: watch::Receiver<LaneState>,
    wake: Arc<Wake>,
}

/// The lanes to one peer for the history of chains: for updates, and for snapshots.
struct HistoryLanes {
    /// The most lanes of one kind.
    most: usize,
    lanes: Mutex<Vec<HistoryLane>>,
    added: Notify,
}

#[derive(Clone)]
struct HistoryLane {
    kind: u8,
    priority: i32,
    queue: Arc<FrameQueue>,
    /// The strong senders belong to the chains that use the lane.
    frames: mpsc::WeakSender<ChainFrame>,
}

/// Used by one pump at a time: that of the present connection.
type FrameQueue = tokio::sync::Mutex<mpsc::Receiver<ChainFrame>>;

impl HistoryLanes {
    fn lock(&self) -> MutexGuard<'_, Vec<HistoryLane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, kind: u8, priority: i32, room: usize) -> mpsc::Sender<ChainFrame> {
        let mut lanes = self.lock();
        let used = lanes.iter().filter(|lane| lane.kind == kind).map(|lane| (lane.frames.strong_count(), &lane.frames));
        let used: Vec<_> = used.filter(|&(users, _)| users > 0).collect();
        if used.len() >= self.most
            && let Some(shared) = used.iter().min_by_key(|(users, _)| users).and_then(|(_, frames)| frames.upgrade())
        {
            return shared;
        }
        let (frames, queue) = mpsc::channel(room);
        lanes.push(HistoryLane { kind, priority, queue: Arc::new(FrameQueue::new(queue)), frames: frames.downgrade() });
        self.added.notify_one();
        frames
    }

    /// Drops all queued frames, which are useless without the earlier, lost ones: replicas start sending from scratch.
    /// Removes lanes without users. No pump may run during this call.
    fn clear(&self) {
        let empty = |queue: &mut mpsc::Receiver<_>| while queue.try_recv().is_ok() {};
        self.lock().retain(|lane| {
            lane.queue.try_lock().is_ok_and(|mut queue| {
                empty(&mut queue);
                !queue.is_closed()
            })
        });
    }
}

/// Tasks to wake when a lane has capacity again or its link has changed.
type Wake = RwLock<Vec<Arc<Notify>>>;

fn wake_all(wake: &Wake) {
    wake.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|sleeper| sleeper.notify_one());
}

impl Lanes {
    pub(crate) fn state(&self) -> LaneState {
        *self.state.borrow()
    }

    pub(crate) fn add_updates(&self) -> mpsc::Sender<ChainFrame> {
        self.history.add(streams::CHAIN_UPDATES, UPDATES_PRIORITY, UPDATES_QUEUE)
    }

    pub(crate) fn add_snapshots(&self) -> mpsc::Sender<ChainFrame> {
        self.history.add(streams::CHAIN_SNAPSHOTS, SNAPSHOTS_PRIORITY, SNAPSHOTS_QUEUE)
    }

    /// Notifies `sleeper` when a lane has capacity again or the state has changed.
    pub(crate) fn wake(&self, sleeper: &Arc<Notify>) {
        let mut all = self.wake.write().unwrap_or_else(PoisonError::into_inner);
        // The tasks of sleepers that only this list still holds have ended.
        all.retain(|other| Arc::strong_count(other) > 1 && !Arc::ptr_eq(other, sleeper));
        all.push(sleeper.clone());
        drop(all);
        sleeper.notify_one();
    }
}

/// All lanes of a node. The lanes to a peer are made when first needed.
pub(crate) struct Hub {
    endpoint: Endpoint,
    peers: Mutex<BTreeMap<NodeId, Lanes>>,
}

impl Hub {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, peers: Mutex::default() }
    }

    /// The lanes to `peer`, which is dialled at `addrs` from now on; at its known addresses, if `addrs` is empty.
    pub(crate) fn lanes(&self, peer: NodeId, addrs: &[SocketAddr]) -> Lanes {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let link = self.endpoint.link(peer, addrs.to_vec());
        let streams = self.endpoint.config().max_streams_per_connection;
        peers.entry(peer).or_insert_with(|| spawn(link, streams)).clone()
    }

    /// Drops the lanes to all nodes for which `keep` is `false`. Each lane ends with its last user.
    pub(crate) fn retain(&self, keep: impl Fn(NodeId) -> bool) {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).retain(|&node, _| keep(node));
    }

    pub(crate) fn close(&self) {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Starts the lanes. Assumes that the peer's limit on open streams is `streams`, as this node's is.
fn spawn(link: Link, streams: u32) -> Lanes {
    let (control, control_queue) = mpsc::channel(CONTROL_QUEUE);
    let most = (streams as usize / LANES_SHARE_DIVISOR).max(1);
    let history = Arc::new(HistoryLanes { most, lanes: Mutex::default(), added: Notify::new() });
    let (formation, formation_queue) = mpsc::channel(FORMATION_QUEUE);
    let (state, state_seen) = watch::channel(LaneState::default());
    let wake = Arc::<Wake>::default();
    let task = FrameLaneTask {
        link,
        control: control_queue,
        history: history.clone(),
        formation: formation_queue,
        state,
        wake: wake.clone(),
    };
    tokio::spawn(task.run());
    Lanes { control, formation, history, state: state_seen, wake }
}

struct FrameLaneTask {
    link: Link,
    control: mpsc::Receiver<ChainFrame>,
    history: Arc<HistoryLanes>,
    formation: mpsc::Receiver<FormationMessage>,
    state: watch::Sender<LaneState>,
    wake: Arc<Wake>,
}

impl FrameLaneTask {
    /// Runs until the hub and all senders have dropped the lanes, or the endpoint has stopped.
    async fn run(mut self) {
        while let Some(connection) = self.connect().await {
            let outcome = self.serve(&connection).await;
            self.state.send_modify(|state| state.up = None);
            self.history.clear();
            wake_all(&self.wake);
            match outcome {
                Ok(()) => return,
                // The connection is lost, the peer refused a stream, or a frame can't be sent: only a new connection
                // helps.
                Err(error) => connection.close(CloseCode::REPLACED, &error.to_string()),
            }
        }
    }

    /// Waits for the next connection. `None`: all users have dropped the lanes, or the endpoint has stopped.
    async fn connect(&mut self) -> Option<Connection> {
        tokio::select! {
            biased;
            connection = self.link.connected() => connection.ok(),
            () = self.state.closed() => None,
        }
    }

    async fn serve(&mut self, connection: &Connection) -> Result<(), WriteError> {
        let open = |kind: u8| connection.open_uni(StreamKind(kind), CONTROL_PRIORITY);
        let mut control = open(streams::CHAIN_CONTROL).await?;
        let mut formation = open(streams::FORMATION).await?;
        self.state.send_modify(|state| {
            state.generation += 1;
            state.up = Some(connection.peer().id);
        });
        wake_all(&self.wake);
        let mut pumps = JoinSet::new();
        let outcome = tokio::select! {
            biased;
            result = pump(Vec::new(), &mut self.control, &mut control, chain::encode, || wake_all(&self.wake)) => result,
            result = pump(Vec::new(), &mut self.formation, &mut formation, encode_formation, || {}) => result,
            result = pump_history(&mut pumps, &self.history, &self.wake, connection) => result,
            reason = connection.closed() => Err(WriteError::Lost(reason)),
        };
        pumps.shutdown().await;
        outcome
    }
}

/// Runs a pump for each history lane. Ends when one of them fails.
async fn pump_history(
    pumps: &mut JoinSet<Result<(), WriteError>>,
    lanes: &HistoryLanes,
    wake: &Arc<Wake>,
    connection: &Connection,
) -> Result<(), WriteError> {
    let mut started = 0;
    loop {
        let new: Vec<_> = lanes.lock().iter().skip(started).cloned().collect();
        started += new.len();
        for HistoryLane { kind, priority, queue, .. } in new {
            let (connection, wake) = (connection.clone(), wake.clone());
            pumps.spawn(async move {
                let mut queue = queue.lock().await;
                // An idle lane opens no stream; most snapshot lanes are idle.
                let mut first = Vec::new();
                if queue.recv_many(&mut first, BATCH).await == 0 {
                    return Ok(());
                }
                let mut stream = connection.open_uni(StreamKind(kind), priority).await?;
                pump(first, &mut queue, &mut stream, chain::encode, || wake_all(&wake)).await
            });
        }
        tokio::select! {
            biased;
            () = lanes.added.notified() => {}
            Some(ended) = pumps.join_next() => {
                // A pump that ends without an error belongs to a lane that no chain uses any longer.
                if let Ok(Err(error)) = ended {
                    return Err(error);
                }
            }
        }
    }
}

fn encode_formation(message: &FormationMessage) -> Result<Encoded, EncodeError> {
    let header = formation::encode(message)?;
    Ok(Encoded { header: header.as_ref().into(), body: EncodedBody::new() })
}

/// Moves the taken frames, then those of the queue, into a stream, in batches. Calls `room` when the queue has capacity
/// again.
async fn pump<T>(
    mut taken: Vec<T>,
    queue: &mut mpsc::Receiver<T>,
    stream: &mut FrameWriter,
    encode: impl Fn(&T) -> Result<Encoded, EncodeError>,
    room: impl Fn(),
) -> Result<(), WriteError> {
    let mut batch = FrameBatch::new();
    while !taken.is_empty() || queue.recv_many(&mut taken, BATCH).await > 0 {
        room();
        for frame in taken.drain(..) {
            match encode(&frame) {
                Ok(Encoded { header, body }) => batch.push(&header, &body),
                Err(error) => tracing::error!(%error, "a frame can't be encoded"),
            }
        }
        stream.send_all(&mut batch).await?;
    }
    Ok(())
}
