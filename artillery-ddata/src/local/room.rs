//! Bounds on the bytes of requests and answers at this node, for all connections together and for each.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use artillery_core::{
    config::TransportConfig,
    transport::{Connection, StreamKind},
};
use tokio::time::{Instant, timeout, timeout_at};

use super::LONGEST_WAIT;
use crate::{
    api::{Query, Refusal, Reply},
    budget::{self, Budget, Share},
    metrics::Tally,
    wire::{
        request::{Encoded, encode_answer_to},
        streams::{ANSWERS, APART_PRIORITY},
    },
};

/// Bounds, in bytes, for the requests and answers of all connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// The bound of each kind of request, and of small answers.
    queue: usize,
    frame: usize,
    /// The bound of one connection's large answers that were passed to QUIC and not yet received by the peer. They must
    /// leave space in the connection's window for small answers.
    sent: usize,
}

/// One connection may use this fraction of each total: one divided by this number.
const CONNECTION_SHARE_DIVISOR: usize = 4;

/// Capacity for large answers, in frames of the largest size.
const LARGE_ANSWERS: usize = 4;

impl Sizes {
    pub(crate) fn new(queue_bytes: usize, transport: &TransportConfig) -> Self {
        Self { queue: queue_bytes, frame: transport.max_frame_bytes, sent: budget::unreceived_bytes(transport) }
    }
}

pub(crate) struct Rooms {
    sizes: Sizes,
    tally: Arc<Tally>,
    /// Totals for client connections and for node connections. Forwarded requests have a total of their own: otherwise
    /// two nodes that forward to each other could deadlock.
    clients: Kinds,
    nodes: Kinds,
    by_connection: Mutex<BTreeMap<u64, Weak<ConnectionRoom>>>,
}

impl Rooms {
    pub(crate) fn new(sizes: Sizes, tally: Arc<Tally>) -> Self {
        let whole = || Kinds::new(|kind| Budget::new(sizes.of(kind)));
        Self { sizes, tally, clients: whole(), nodes: whole(), by_connection: Mutex::default() }
    }

    /// The budgets that all streams of a connection share. They exist while one of its streams or requests does.
    pub(crate) fn of(&self, connection: &Connection) -> Arc<ConnectionRoom> {
        // No code that holds the lock can panic halfway through a change.
        let mut rooms = self.by_connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(&connection.id()).and_then(Weak::upgrade) {
            return room;
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let whole = if connection.peer().kind.is_node() { &self.nodes } else { &self.clients };
        let room = Arc::new(ConnectionRoom::new(self.sizes, whole, self.tally.clone()));
        rooms.insert(connection.id(), Arc::downgrade(&room));
        room
    }

    pub(crate) fn taken_bytes(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let rooms = self.by_connection.lock().unwrap_or_else(PoisonError::into_inner);
        let unreceived = rooms.values().filter_map(Weak::upgrade).map(|room| room.sent.taken()).sum();
        let taken = |kind| self.clients.of(kind).taken() + self.nodes.of(kind).taken();
        RoomKind::ALL
            .into_iter()
            .map(move |(kind, name)| (name, taken(kind)))
            .chain([("unreceived_answers", unreceived)])
    }
}

/// A kind of request or answer with a budget of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RoomKind {
    /// Small writes that are forwarded.
    Forwards,
    Reads,
    Watches,
    /// Small writes that wait for their chain.
    Writes,
    /// Small answers to reads, waiting to be written.
    Answers,
    /// Small answers to writes, which reads must not block.
    WriteAnswers,
    LargeRequests,
    LargeAnswers,
}

impl RoomKind {
    /// All kinds in declaration order, with their names in metrics.
    const ALL: [(Self, &str); 8] = [
        (Self::Forwards, "forwards"),
        (Self::Reads, "reads"),
        (Self::Watches, "watches"),
        (Self::Writes, "small_writes"),
        (Self::Answers, "answers"),
        (Self::WriteAnswers, "write_answers"),
        (Self::LargeRequests, "large_requests"),
        (Self::LargeAnswers, "large_answers"),
    ];
}

impl Sizes {
    fn of(self, kind: RoomKind) -> usize {
        match kind {
            RoomKind::LargeAnswers => self.frame.saturating_mul(LARGE_ANSWERS),
            _ => self.queue,
        }
    }
}

#[derive(Debug)]
struct Kinds([Budget; RoomKind::ALL.len()]);

impl Kinds {
    fn new(budget: impl Fn(RoomKind) -> Budget) -> Self {
        Self(RoomKind::ALL.map(|(kind, _)| budget(kind)))
    }

    fn of(&self, kind: RoomKind) -> &Budget {
        &self.0[kind as usize]
    }
}

/// The budgets of one connection, drawn from the total of all connections.
pub(crate) struct ConnectionRoom {
    kinds: Kinds,
    sent: Budget,
    /// The longest frame that is sent, in bytes.
    pub(crate) frame: usize,
    pub(crate) tally: Arc<Tally>,
}

impl ConnectionRoom {
    fn new(sizes: Sizes, whole: &Kinds, tally: Arc<Tally>) -> Self {
        Self {
            kinds: Kinds::new(|kind| whole.of(kind).part(sizes.of(kind) / CONNECTION_SHARE_DIVISOR)),
            sent: Budget::new(sizes.sent),
            frame: sizes.frame,
            tally,
        }
    }

    pub(crate) fn of(&self, kind: RoomKind) -> &Budget {
        self.kinds.of(kind)
    }

    /// The capacity that a read holds until its answer. A large read has already reserved capacity. A watch holds its
    /// capacity for long, so it is refused, instead of waiting, if none is available.
    pub(crate) async fn of_read(&self, query: &Query, share: Share, deadline: Instant) -> Result<Share, Reply> {
        let bytes = budget::of_query(query);
        match query {
            _ if !share.is_none() => Ok(share),
            Query::Changes(_) => self.of(RoomKind::Watches).try_take(bytes).ok_or(Reply::Refused(Refusal::Busy)),
            _ => timeout_at(deadline, self.of(RoomKind::Reads).take(bytes)).await.map_err(|_| Reply::Expired),
        }
    }

    /// Sends an answer on a stream of its own, in a task of its own. The budget in bytes bounds the number of these
    /// tasks.
    pub(crate) fn send_apart(
        self: &Arc<Self>,
        connection: &Connection,
        number: u64,
        answer: Encoded,
        shares: [Share; 2],
    ) {
        let (room, connection) = (self.clone(), connection.clone());
        tokio::spawn(async move {
            let bytes = answer.body.iter().map(bytes::Bytes::len).sum();
            let sent = async {
                let _sent = room.sent.take(bytes).await;
                let mut writer = connection.open_uni(StreamKind(ANSWERS), APART_PRIORITY).await?;
                // Announce the number first: a peer that no longer wants the answer can stop the stream before the body
                // arrives.
                writer.send(&encode_answer_to(number), &[]).await?;
                writer.send(&answer.header, &answer.body).await?;
                writer.finish();
                writer.stopped().await;
                Ok::<_, artillery_core::error::WriteError>(())
            };
            match timeout(LONGEST_WAIT, sent).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, number, "the peer stopped a large answer"),
                // Stop sending: other answers need the capacity.
                Err(_) => tracing::debug!(number, "the peer did not receive a large answer in time"),
            }
            drop(shares);
        });
    }
}
