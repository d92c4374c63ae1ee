//! What the rest of a node holds of a chain: local reads, and the way into its task.

use std::sync::Arc;

use artillery_core::{Timestamp, clock};
use tokio::sync::{mpsc, oneshot};

use super::serve::Answering;
use crate::{
    ChainId, Sequence,
    budget::{self, Budget, Share},
    replica::{Gate, NotLocal, Query, ReadMode, Refusal, Reply, Write},
    store::{Held, Store},
    update::RequestKey,
};

/// Takes the reply of one request. It never waits: whoever makes one sees to it that there is room for the reply.
pub(crate) enum Responder {
    /// A caller in this process.
    Caller(oneshot::Sender<Reply>),
    /// A request that came by a stream.
    Stream(Answering),
}

impl Responder {
    pub(crate) fn reply(self, reply: Reply) {
        match self {
            // A receiver that is gone doesn't want to know.
            Self::Caller(caller) => drop(caller.send(reply)),
            Self::Stream(answering) => answering.reply(reply),
        }
    }
}

pub(crate) struct ReadRequest {
    pub(crate) query: Query,
    pub(crate) mode: ReadMode,
    pub(crate) floor: Option<Sequence>,
    pub(crate) deadline: Timestamp,
    pub(crate) responder: Responder,
}

pub(crate) struct WriteRequest {
    pub(crate) request: Option<RequestKey>,
    pub(crate) write: Write,
    pub(crate) deadline: Timestamp,
    pub(crate) responder: Responder,
}

/// One chain of which this node is a member. Clones are the same chain.
#[derive(Clone)]
pub(crate) struct ChainHandle {
    pub(crate) chain: ChainId,
    pub(crate) gate: Arc<Gate>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) reads: Queue<ReadRequest>,
    pub(crate) writes: Queue<WriteRequest>,
}

/// The way into a chain's task for one kind of request, bounded by number and by bytes.
pub(crate) struct Queue<T> {
    sender: mpsc::Sender<Queued<T>>,
    room: Budget,
}

/// A request that waits, and the room that it takes.
pub(crate) struct Queued<T> {
    pub(crate) request: T,
    _share: Share,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), room: self.room.clone() }
    }
}

impl<T> Queue<T> {
    /// A queue for so many requests, of so many bytes together.
    pub(crate) fn new(requests: usize, bytes: usize) -> (Self, mpsc::Receiver<Queued<T>>) {
        let (sender, receiver) = mpsc::channel(requests);
        (Self { sender, room: Budget::new(bytes) }, receiver)
    }

    /// Waits for room; gives the request back if nobody takes any. Cancelled, it has left nothing behind.
    async fn send(&self, request: T, bytes: usize) -> Result<(), T> {
        let _share = self.room.take(bytes).await;
        self.sender.send(Queued { request, _share }).await.map_err(|error| error.0.request)
    }
}

impl ChainHandle {
    /// A local clean read: no lock, no task, no allocation.
    pub(crate) fn local(&self, key: &[u8]) -> Result<Option<Held>, NotLocal> {
        self.gate.read(&*self.store, key, clock::now)
    }

    /// Hands a read to the chain's task, waiting while its queue is full. Whoever calls bounds the wait; a call given
    /// up has left nothing behind. The responder gets exactly one reply, or is dropped if the node stops.
    pub(crate) async fn read(&self, request: ReadRequest) {
        let bytes = budget::of_query(&request.query);
        if let Err(request) = self.reads.send(request, bytes).await {
            request.responder.reply(Reply::Refused(Refusal::NoChain));
        }
    }

    /// Hands a write to the chain's task, which takes it while the window has room: otherwise this waits. As
    /// [`read`](Self::read) otherwise: a call given up has applied nothing.
    pub(crate) async fn write(&self, request: WriteRequest) {
        let bytes = budget::of_write(&request.write);
        if let Err(request) = self.writes.send(request, bytes).await {
            request.responder.reply(Reply::Refused(Refusal::NoChain));
        }
    }
}
