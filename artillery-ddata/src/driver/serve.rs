//! Serves the requests of one stream, sent by a client or forwarded by a node.

mod operators;
mod ready;
mod routing;
mod writer;

use std::{future::ready, sync::Arc, time::Duration};

use artillery_core::transport::{CloseCode, FrameReader, IncomingStream};
use bytes::Bytes;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use self::{ready::ReadyAnswers, routing::For};
use crate::{
    ChainId, ClusterId, Epoch, Error,
    api::{Query, ReadMode, ReadPath, ReadReply, Refusal, Reply},
    budget::{self, Share},
    control::{
        History, NodeInfo, chain_of,
        message::{AdminCommand, ArrangeError},
        recovery::{NotRecovered, Recovered, Standing},
        reopening::{NotReopened, Reopened},
        succession::{NotReplaced, Replacement},
    },
    driver::BoxFuture,
    error::NotApplied,
    local::{
        LONGEST_WAIT, Local, answer_by,
        answering::{Answering, Answers},
        handle::{ChainHandle, ReadRequest, Responder, WriteRequest},
        room::{ConnectionRoom, RoomKind, Rooms, Sizes},
    },
    message::request::{MAX_OUTSTANDING, Operation, Request, SMALL},
    rpc::{
        channel::Question,
        router::{CallAnswer, RequestError, Router},
    },
    wire::request::decode_request,
};

/// A watch without a change is answered after this time, which bounds the number of queries of a dead client.
const LONGEST_WATCH: Duration = Duration::from_secs(10);

/// A server's node, as operators use it. The defaults are the answers of a node with a fixed configuration.
pub(crate) trait OperatedNode: Send + Sync {
    /// The node's status as JSON.
    fn status(&self) -> BoxFuture<Bytes>;

    fn arrange(&self, _command: AdminCommand) -> BoxFuture<Result<Option<Epoch>, ArrangeError>> {
        Box::pin(ready(Err(ArrangeError::Fixed)))
    }

    /// The chains, the log and the cluster that this node holds. `None` without a configuration log, or while the node
    /// loads its directory.
    fn standing(&self) -> BoxFuture<Option<Standing>> {
        Box::pin(ready(None))
    }

    /// Continues alone, if the named cluster was in this history and can't continue otherwise.
    fn recover(&self, _cluster: ClusterId, _history: History) -> BoxFuture<Result<Recovered, NotRecovered>> {
        Box::pin(ready(Err(NotRecovered::Static)))
    }

    /// Reopens a chain from the surviving stores, if this node leads and no complete store is available.
    fn reopen(&self, _chain: ChainId) -> BoxFuture<Result<Reopened, NotReopened>> {
        Box::pin(ready(Err(NotReopened::Fixed)))
    }

    /// Stops this node, to create or join another cluster. Refused if any incarnation that ever served is still alive.
    fn replace(&self, _cluster: ClusterId, _by: Replacement) -> BoxFuture<Result<Vec<NodeInfo>, NotReplaced>> {
        Box::pin(ready(Err(NotReplaced::Static)))
    }
}

/// Answers requests for a node.
pub(crate) struct Server {
    local: Arc<Local>,
    router: Arc<Router>,
    /// Larger values are refused.
    max_value_bytes: u64,
    node: Box<dyn OperatedNode>,
    rooms: Rooms,
}

impl Server {
    pub(crate) fn new(
        local: Arc<Local>,
        router: Arc<Router>,
        max_value_bytes: u64,
        sizes: Sizes,
        node: Box<dyn OperatedNode>,
    ) -> Self {
        let rooms = Rooms::new(sizes, local.tally.clone());
        Self { local, router, max_value_bytes, node, rooms }
    }

    /// The bytes of all connections' requests and answers that are held now, by kind of budget.
    pub(crate) fn taken_bytes(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.rooms.taken_bytes()
    }

    /// Serves a stream of kind [`REQUESTS`](crate::wire::streams::REQUESTS). A violation of the protocol closes the
    /// connection.
    pub(crate) async fn serve(self: Arc<Self>, stream: IncomingStream) {
        let IncomingStream { mut reader, writer, connection, .. } = stream;
        let Some(writer) = writer else {
            connection.close(CloseCode::VIOLATION, "requests without a return path");
            return;
        };
        let room = self.rooms.of(&connection);
        let outstanding = Semaphore::new(MAX_OUTSTANDING);
        let (answers, waiting) = Answers::new(room.clone());
        // Lend the reader: it must outlive the close of the connection. Dropping it earlier queues a frame, and quinn
        // then delays the close whenever the congestion window is full, which even a probe of the path's packet size
        // can cause.
        let ready = ReadyAnswers::new(room.clone());
        let reading = self.read(&mut reader, answers, &ready, &outstanding, &room);
        let writing = writer::write(writer, waiting, &ready, &outstanding, &room, &connection);
        tokio::pin!(reading, writing);
        let serving = async {
            tokio::select! {
                biased;
                read = &mut reading => match read {
                    // The sender has sent its last request, but still expects answers.
                    Ok(()) => writing.await,
                    Err(violation) => connection.close(CloseCode::VIOLATION, &violation),
                },
                () = &mut writing => {}
            }
        };
        tokio::select! {
            biased;
            () = serving => {}
            // While serving waits for capacity or answers, only this notices that the connection closed.
            _ = connection.closed() => {}
        }
    }

    /// Reads requests until the sender's last one, within the budget for them and their answers. `Err`: the sender
    /// violated the protocol.
    async fn read(
        self: &Arc<Self>,
        reader: &mut FrameReader,
        answers: Answers,
        ready: &ReadyAnswers,
        outstanding: &Semaphore,
        room: &Arc<ConnectionRoom>,
    ) -> Result<(), String> {
        loop {
            // A lost connection is no violation.
            let Ok(Some(len)) = reader.next_len().await else { return Ok(()) };
            let mut share = match len {
                len if len > SMALL => room.of(RoomKind::LargeRequests).take(len).await,
                _ => Share::none(),
            };
            // An unfinished request must not keep its budget indefinitely.
            let Ok(frame) = timeout(LONGEST_WAIT, reader.next()).await else { return Err("half a request".to_owned()) };
            let Ok(Some(frame)) = frame else { return Ok(()) };
            let mut next = Some(frame);
            while let Some(frame) = next {
                let request = decode_request(&frame).map_err(|error| format!("no request: {error}"))?;
                let share = std::mem::replace(&mut share, Share::none());
                match self.known_here(&request) {
                    Some(reply) => ready.answer(request.number, reply, &answers, outstanding).await,
                    None => {
                        let Ok(permit) = outstanding.acquire().await else { return Ok(()) };
                        permit.forget();
                        self.on_request(request, share, &answers, room).await;
                    }
                }
                next = reader.next_ready();
            }
        }
    }

    /// The reply, if the request is a strong read of one key that this node can answer from its local state.
    fn known_here(&self, request: &Request) -> Option<Reply> {
        match &request.operation {
            Operation::Read { query: Query::Key(key), mode: ReadMode::Strong, history, .. } => {
                self.local_read(request.chain, key, *history)
            }
            _ => None,
        }
    }

    async fn on_request(self: &Arc<Self>, request: Request, share: Share, answers: &Answers, room: &ConnectionRoom) {
        let answering = answers.expect(&request).await;
        match request.operation {
            Operation::Admin(operation) => self.tell(operation, answering),
            _ => self.serve_or_forward(request, share, answering, answers, room).await,
        }
    }

    /// A strong read from this node's local state. `None`: pass the request on; the chain answers it, and refuses a
    /// session of another history.
    fn local_read(&self, chain: ChainId, key: &[u8], history: Option<ClusterId>) -> Option<Reply> {
        if !self.belongs(key, chain) {
            return None;
        }
        // Load the watermark after the lookup: then it covers the version found.
        let read = |handle: &ChainHandle| {
            let (held, as_of) = (handle.local(key)?, handle.gate.watermark());
            let expires = held.as_ref().is_some_and(|held| held.expires.is_some());
            Ok::<_, crate::replica::NotLocal>((held, as_of, if expires { handle.chain_time() } else { 0 }))
        };
        let (held, as_of, chain_time) = self.local.with_chain(chain, read)?.ok()?;
        if history.is_some() && history != self.local.history_id() {
            return None;
        }
        let held = held.filter(|held| held.value.is_some());
        Some(Reply::Read(ReadReply { held, clean: true, way: ReadPath::Local, as_of, chain_time }))
    }

    fn belongs(&self, key: &[u8], chain: ChainId) -> bool {
        let chains = self.local.chain_count();
        chains > 0 && chain_of(key, chains) == chain
    }

    async fn serve_or_forward(
        self: &Arc<Self>,
        request: Request,
        share: Share,
        answering: Answering,
        answers: &Answers,
        room: &ConnectionRoom,
    ) {
        let wait = Duration::from_millis(request.deadline_ms.into()).min(longest_wait(&request.operation));
        let deadline = Instant::now() + wait;
        let (number, is_write, timing) = (request.number, request.operation.is_write(), answering.timing);
        let (share, answering) = match &request.operation {
            Operation::Read { query, .. } => match room.of_read(query, share, deadline).await {
                // The answer holds the read's share while the read waits, at this node or at another one.
                Ok(share) => (Share::none(), answering.holding(share)),
                Err(reply) => return answering.reply(reply),
            },
            _ => (share, answering),
        };
        let handed = match self.place(&request) {
            // A large write has a stream and a share of its own already. Only a small one waits in line.
            Ok(For::Here(handle)) if is_write && share.is_none() => {
                timeout_at(deadline, write_here(handle, request, deadline, answering, answers, room)).await
            }
            Ok(For::Here(handle)) => timeout_at(deadline, serve_here(&handle, request, deadline, answering)).await,
            Ok(For::AnotherNode) => timeout_at(deadline, self.forward(request, share, deadline, answering, room)).await,
            Err(refusal) => {
                answering.reply(Reply::Refused(refusal));
                Ok(())
            }
        };
        if handed.is_err() {
            // Timed out before the hand-over: the request was never applied.
            answers.brief(number, timing, if is_write { Reply::Refused(Refusal::Busy) } else { Reply::Expired });
        }
    }

    /// Forwards the request in a task of its own, once the budget has capacity for it.
    async fn forward(
        self: &Arc<Self>,
        request: Request,
        share: Share,
        deadline: Instant,
        answering: Answering,
        room: &ConnectionRoom,
    ) {
        let Request { chain, operation, .. } = request;
        // A large write has its share already, and so has a read.
        let share = match operation.is_write() && share.is_none() {
            true => room.of(RoomKind::Forwards).take(budget::of_operation(&operation)).await,
            false => share,
        };
        let server = self.clone();
        tokio::spawn(async move {
            let _share = share;
            let is_write = operation.is_write();
            let question = Question { chain, forwarded: true, only: None, operation };
            match server.router.call(question, deadline).await {
                Ok(CallAnswer { reply, node, .. }) => {
                    answering.reply_by(Some(node).filter(|&by| by != server.local.me), reply);
                }
                Err(RequestError::Certainly(error)) => answering.reply(in_words_of_the_chain(&error, is_write)),
                Err(RequestError::Perhaps(_)) => answering.reply(Reply::Expired),
            }
        });
    }
}

fn longest_wait(operation: &Operation) -> Duration {
    match operation {
        Operation::Read { query: Query::Changes(_), .. } => LONGEST_WATCH,
        _ => LONGEST_WAIT,
    }
}

/// The outcome of a forwarded request, as a reply to its sender. A write is refused only if it was certainly not
/// applied.
fn in_words_of_the_chain(error: &Error, is_write: bool) -> Reply {
    match error {
        Error::Refused { reason, .. } => Reply::Refused(*reason),
        Error::NotApplied { .. } if is_write => Reply::Refused(Refusal::NoChain),
        Error::NotApplied { reason: NotApplied::TimedOut } | Error::OutcomeUnknown { .. } => Reply::Expired,
        Error::NotApplied { .. } => Reply::Refused(Refusal::NoChain),
    }
}

/// Passes a small write to the chain's task. While the chain's queue is full, each write of the stream waits in line in
/// a task of its own. If only the first one waited in line, later large writes would overtake the others.
async fn write_here(
    handle: ChainHandle,
    request: Request,
    deadline: Instant,
    answering: Answering,
    answers: &Answers,
    room: &ConnectionRoom,
) {
    let (number, timing) = (request.number, answering.timing);
    let Operation::Write { request, history, write } = request.operation else { return };
    let responder = Responder::Stream(answering);
    let write = WriteRequest { request, history, write, deadline: handle.deadline(deadline), caller: responder };
    let Some(write) = handle.try_write(write) else { return };
    // Stop reading from the stream while the budget for waiting writes is used up.
    let share = room.of(RoomKind::Writes).take(budget::of_write(&write.write)).await;
    let Some(waiting) = handle.line_up(write).await else { return };
    let answers = answers.clone();
    tokio::spawn(async move {
        let _share = share;
        tokio::select! {
            biased;
            () = answers.gone() => {}
            handed = timeout_at(deadline, waiting) => if handed.is_err() {
                // Timed out before the hand-over: the write was never applied.
                answers.brief(number, timing, Reply::Refused(Refusal::Busy));
            }
        }
    });
}

/// Passes the request to the chain's task. While the chain's queue is full, nothing is read from the stream.
async fn serve_here(handle: &ChainHandle, request: Request, deadline: Instant, answering: Answering) {
    let responder = Responder::Stream(answering);
    match request.operation {
        Operation::Read { query, mode, floor, history } => {
            let deadline = handle.deadline(answer_by(&query, deadline));
            handle.read(ReadRequest { query, mode, floor, history, deadline, caller: responder }).await;
        }
        Operation::Write { request, history, write } => {
            let deadline = handle.deadline(deadline);
            handle.write(WriteRequest { request, history, write, deadline, caller: responder }).await;
        }
        Operation::Admin(_) => {}
    }
}
