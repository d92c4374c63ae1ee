//! What the rest of a node holds of a chain: local reads, and the way into its task.

use std::sync::Arc;

use artillery_core::{Timestamp, clock};
use tokio::sync::{mpsc, oneshot};

use crate::{
    ChainId, Sequence,
    replica::{Gate, NotLocal, Query, ReadMode, Refusal, Reply, Write},
    store::{Held, Store},
    update::RequestKey,
};

/// Takes the reply of one request. It never waits: whoever makes one sees to it that there is room for the reply.
pub(crate) enum Responder {
    /// A caller in this process.
    Caller(oneshot::Sender<Reply>),
    /// A request with this number that came by a stream; its stream has room for all that it let in.
    Stream {
        /// The client's number of the request.
        number: u64,
        /// Leads to the task that writes the stream's responses.
        responses: mpsc::Sender<(u64, Reply)>,
    },
}

impl Responder {
    pub(crate) fn reply(self, reply: Reply) {
        // A receiver that is gone doesn't want to know.
        match self {
            Self::Caller(caller) => drop(caller.send(reply)),
            Self::Stream { number, responses } => drop(responses.try_send((number, reply))),
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
    pub(crate) reads: mpsc::Sender<ReadRequest>,
    pub(crate) writes: mpsc::Sender<WriteRequest>,
}

impl ChainHandle {
    /// A local clean read: no lock, no task, no allocation.
    pub(crate) fn local(&self, key: &[u8]) -> Result<Option<Held>, NotLocal> {
        self.gate.read(&*self.store, key, clock::now)
    }

    /// Hands a read to the chain's task, waiting while its queue is full. Whoever calls bounds the wait; a call given
    /// up has left nothing behind. The responder gets exactly one reply, or is dropped if the node stops.
    pub(crate) async fn read(&self, request: ReadRequest) {
        if let Err(mpsc::error::SendError(request)) = self.reads.send(request).await {
            request.responder.reply(Reply::Refused(Refusal::NoChain));
        }
    }

    /// Hands a write to the chain's task, which takes it while the window has room: otherwise this waits. As
    /// [`read`](Self::read) otherwise: a call given up has applied nothing.
    pub(crate) async fn write(&self, request: WriteRequest) {
        if let Err(mpsc::error::SendError(request)) = self.writes.send(request).await {
            request.responder.reply(Reply::Refused(Refusal::NoChain));
        }
    }
}
