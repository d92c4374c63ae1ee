//! Serves the requests of one stream: of clients, and of nodes that hand requests on.

use std::{sync::Arc, time::Duration};

use artillery_core::{
    frame::Frame,
    transport::{CloseCode, FrameBatch, FrameReader, FrameWriter, IncomingStream},
};
use bytes::Bytes;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, timeout_at},
};

use super::{
    handle::{ChainHandle, ReadRequest, Responder, WriteRequest},
    local::Local,
};
use crate::{
    ChainId, Error, Mode, Place,
    client::{
        channel::Question,
        router::{Answer, Failed, Router, check_key, check_value, on_the_clock},
    },
    control::chain_of,
    error::NotApplied,
    kv::Call,
    replica::{Query, Read, ReadMode, Refusal, Reply, Way},
    wire::request::{MAX_OUTSTANDING, Operation, Request, Response, ResponseAnswer, decode_request, encode_response},
};

/// No request waits here longer, whatever its sender says: nobody can make a node remember it for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Responses that are written together at most.
const BATCH: usize = 256;

/// Says, as JSON, how this node stands.
pub(crate) type StatusSource = Box<dyn Fn() -> Call<Bytes> + Send + Sync>;

/// What answers the requests that come to a node.
pub(crate) struct Server {
    pub(crate) local: Arc<Local>,
    pub(crate) router: Arc<Router>,
    /// Larger values are refused.
    pub(crate) max_value_bytes: u64,
    pub(crate) status: StatusSource,
}

/// Where the answers to one stream's requests go. There is room for as many as are let in.
#[derive(Clone)]
struct Answers {
    replies: mpsc::Sender<(u64, Reply)>,
    responses: mpsc::Sender<Response>,
}

impl Answers {
    fn reply(&self, number: u64, reply: Reply) {
        self.respond(Response { number, by: None, answer: ResponseAnswer::Reply(reply) });
    }

    fn respond(&self, response: Response) {
        // Nobody is there to read it: the stream is gone.
        drop(self.responses.try_send(response));
    }
}

/// Who a request is for.
enum For {
    Here(ChainHandle),
    AnotherNode,
}

impl Server {
    /// Serves a stream of kind [`REQUESTS`](crate::wire::streams::REQUESTS) until it ends. Whoever breaks the rules
    /// loses the connection.
    pub(crate) async fn serve(self: Arc<Self>, stream: IncomingStream) {
        let IncomingStream { mut reader, writer, connection, .. } = stream;
        let Some(writer) = writer else {
            connection.close(CloseCode::VIOLATION, "requests without a way back");
            return;
        };
        let room = Arc::new(Semaphore::new(MAX_OUTSTANDING));
        let (replies, from_chains) = mpsc::channel(MAX_OUTSTANDING);
        let (responses, others) = mpsc::channel(MAX_OUTSTANDING);
        // Lent, not given: a reader dropped before the connection is closed leaves a frame to send, and quinn then holds
        // the farewell back whenever the congestion window is full, a probe of the path's packet size being enough.
        let reading = self.read(&mut reader, Answers { replies, responses }, &room);
        let writing = write(writer, from_chains, others, &room);
        tokio::pin!(reading, writing);
        tokio::select! {
            biased;
            read = &mut reading => match read {
                // The sender has no more requests, and still wants its answers.
                Ok(()) => writing.await,
                Err(violation) => connection.close(CloseCode::VIOLATION, &violation),
            },
            () = &mut writing => {}
        }
    }

    /// Takes requests in, no more than there is room for answers, until the sender has no more of them.
    async fn read(
        self: &Arc<Self>,
        reader: &mut FrameReader,
        answers: Answers,
        room: &Semaphore,
    ) -> Result<(), String> {
        loop {
            // A lost connection is no fault of the requests.
            let Ok(Some(frame)) = reader.next().await else { return Ok(()) };
            let mut next = Some(frame);
            while let Some(frame) = next {
                let Ok(permit) = room.acquire().await else { return Ok(()) };
                permit.forget();
                self.take_in(&frame, &answers).await?;
                next = reader.next_ready();
            }
        }
    }

    async fn take_in(self: &Arc<Self>, frame: &Frame, answers: &Answers) -> Result<(), String> {
        let request = decode_request(frame).map_err(|error| format!("no request: {error}"))?;
        let number = request.number;
        match &request.operation {
            Operation::Read { query: Query::Key(key), mode: ReadMode::Strong, .. } => {
                match self.local_read(request.chain, key) {
                    Some(reply) => answers.reply(number, reply),
                    None => self.serve_or_forward(request, answers).await,
                }
            }
            Operation::Read { .. } | Operation::Write { .. } => self.serve_or_forward(request, answers).await,
            Operation::Routing => {
                let routing = self.local.routing().borrow().as_deref().cloned().map(Box::new);
                answers.respond(Response { number, by: None, answer: ResponseAnswer::Routing(routing) });
            }
            Operation::Status => {
                let (json, answers) = ((self.status)(), answers.clone());
                tokio::spawn(async move {
                    answers.respond(Response { number, by: None, answer: ResponseAnswer::Status(json.await) });
                });
            }
        }
        Ok(())
    }

    /// A strong read that this node can serve from its own state needs nobody else.
    fn local_read(&self, chain: ChainId, key: &[u8]) -> Option<Reply> {
        if !self.belongs(key, chain) {
            return None;
        }
        // The watermark is loaded after the lookup: whatever that found is covered by it.
        let read = |handle: &ChainHandle| handle.local(key).map(|held| (held, handle.gate.watermark()));
        let (held, as_of) = self.local.with_chain(chain, read)?.ok()?;
        let held = held.filter(|held| held.value.is_some());
        Some(Reply::Read(Read { held, clean: true, way: Way::Local, as_of }))
    }

    fn belongs(&self, key: &[u8], chain: ChainId) -> bool {
        let chains = self.local.chain_count();
        chains > 0 && chain_of(key, chains) == chain
    }

    async fn serve_or_forward(self: &Arc<Self>, request: Request, answers: &Answers) {
        let wait = Duration::from_millis(request.deadline_ms.into()).min(LONGEST_WAIT);
        let deadline = Instant::now() + wait;
        match self.place(&request) {
            Ok(For::Here(handle)) => serve_here(&handle, request, deadline, answers).await,
            Ok(For::AnotherNode) => self.forward(request, deadline, answers.clone()),
            Err(refusal) => answers.reply(request.number, Reply::Refused(refusal)),
        }
    }

    /// Whether this node is the one to answer. What it isn't, it hands on, unless another node has done so already:
    /// then its chain refuses, and says who to ask.
    fn place(&self, request: &Request) -> Result<For, Refusal> {
        match &request.operation {
            Operation::Read { query, .. } => self.check(request.chain, query.keys().iter(), std::iter::empty())?,
            Operation::Write { write, .. } => self.check(request.chain, write.keys(), write.values())?,
            Operation::Routing | Operation::Status => return Err(Refusal::NoChain),
        }
        match self.local.chain(request.chain) {
            Some(handle) if request.forwarded || self.answers(request) => Ok(For::Here(handle)),
            None if request.forwarded => Err(Refusal::NoChain),
            _ => Ok(For::AnotherNode),
        }
    }

    /// Whether all keys and values may be that long, and belong to that chain.
    fn check<'a>(
        &self,
        chain: ChainId,
        keys: impl Iterator<Item = &'a Bytes>,
        mut values: impl Iterator<Item = &'a Bytes>,
    ) -> Result<(), Refusal> {
        if chain.0 >= self.local.chain_count() {
            return Err(Refusal::NoChain);
        }
        for key in keys {
            check_key(key)?;
            if !self.belongs(key, chain) {
                return Err(Refusal::NoChain);
            }
        }
        values.try_for_each(|value| check_value(value, self.max_value_bytes))
    }

    /// Whether this node's place in the chain is the right one for the request.
    fn answers(&self, request: &Request) -> bool {
        let place = self.local.place(request.chain);
        match &request.operation {
            Operation::Write { .. } => place == Place::Head,
            Operation::Read { mode: ReadMode::Strong | ReadMode::Bounded { .. }, .. }
                if self.is_classic(request.chain) =>
            {
                self.is_tail(request)
            }
            Operation::Read { mode: ReadMode::Eventual, .. } => true,
            _ => matches!(place, Place::Head | Place::Middle | Place::Tail),
        }
    }

    fn is_classic(&self, chain: ChainId) -> bool {
        let routing = self.local.routing();
        let routing = routing.borrow();
        routing.as_ref().and_then(|routing| routing.chain(chain)).is_some_and(|config| config.mode == Mode::Classic)
    }

    fn is_tail(&self, request: &Request) -> bool {
        let routing = self.local.routing();
        let routing = routing.borrow();
        let config = routing.as_ref().and_then(|routing| routing.chain(request.chain));
        config.is_some_and(|config| config.tail() == Some(self.local.me))
    }

    /// Has the right node answer, in a task of its own: there are no more of them than there is room for answers.
    fn forward(self: &Arc<Self>, request: Request, deadline: Instant, answers: Answers) {
        let server = self.clone();
        tokio::spawn(async move {
            let Request { number, chain, operation, .. } = request;
            let is_write = operation.is_write();
            let question = Question { chain, forwarded: true, only: None, operation };
            let (by, reply) = match server.router.call(question, deadline).await {
                Ok(Answer { reply, node, .. }) => (Some(node).filter(|&by| by != server.local.me), reply),
                Err(Failed::Certainly(error)) => (None, in_words_of_the_chain(&error, is_write)),
                Err(Failed::Perhaps(_)) => (None, Reply::Expired),
            };
            answers.respond(Response { number, by, answer: ResponseAnswer::Reply(reply) });
        });
    }
}

/// What a forwarded request came to, for its sender: refusals only where nothing was applied.
fn in_words_of_the_chain(error: &Error, is_write: bool) -> Reply {
    match error {
        Error::Refused { reason, .. } => Reply::Refused(*reason),
        Error::NotApplied { .. } if is_write => Reply::Refused(Refusal::NoChain),
        Error::NotApplied { reason: NotApplied::TimedOut } | Error::OutcomeUnknown { .. } => Reply::Expired,
        Error::NotApplied { .. } => Reply::Refused(Refusal::NoChain),
    }
}

/// Hands the request to the chain's task, and waits while that has no room: then nothing more is read from the stream.
async fn serve_here(handle: &ChainHandle, request: Request, deadline: Instant, answers: &Answers) {
    let number = request.number;
    let responder = Responder::Stream { number, responses: answers.replies.clone() };
    let until = on_the_clock(deadline);
    let is_write = request.operation.is_write();
    let handed = async {
        match request.operation {
            Operation::Read { query, mode, floor } => {
                handle.read(ReadRequest { query, mode, floor, deadline: until, responder }).await;
            }
            Operation::Write { request, write } => {
                handle.write(WriteRequest { request, write, deadline: until, responder }).await;
            }
            Operation::Routing | Operation::Status => {}
        }
    };
    if timeout_at(deadline, handed).await.is_err() {
        // The chain never saw it.
        answers.reply(number, if is_write { Reply::Refused(Refusal::Busy) } else { Reply::Expired });
    }
}

/// Writes what has been answered, many responses at a time, until nobody answers any more or the stream is lost.
async fn write(
    mut writer: FrameWriter,
    mut replies: mpsc::Receiver<(u64, Reply)>,
    mut responses: mpsc::Receiver<Response>,
    room: &Semaphore,
) {
    let mut batch = FrameBatch::new();
    let mut from_chains = Vec::with_capacity(BATCH);
    let mut ready = Vec::with_capacity(BATCH);
    let (mut chains_answer, mut others_answer) = (true, true);
    while chains_answer || others_answer {
        // Nothing received means that nobody is left who could send.
        tokio::select! {
            biased;
            received = replies.recv_many(&mut from_chains, BATCH), if chains_answer => chains_answer = received > 0,
            received = responses.recv_many(&mut ready, BATCH), if others_answer => others_answer = received > 0,
        }
        // Whatever else is ready goes along.
        while let Ok(reply) = replies.try_recv() {
            from_chains.push(reply);
        }
        while let Ok(response) = responses.try_recv() {
            ready.push(response);
        }
        ready.extend(from_chains.drain(..).map(|(number, reply)| Response {
            number,
            by: None,
            answer: ResponseAnswer::Reply(reply),
        }));
        for response in &ready {
            match encode_response(response) {
                Ok(encoded) => batch.push(&encoded.header, &encoded.body),
                Err(error) => {
                    tracing::error!(%error, number = response.number, "a response can't be sent");
                    return;
                }
            }
        }
        if !batch.is_empty() && writer.send_all(&mut batch).await.is_err() {
            return;
        }
        room.add_permits(ready.len());
        ready.clear();
    }
    writer.finish();
}
