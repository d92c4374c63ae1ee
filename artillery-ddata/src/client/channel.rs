//! Requests to one node: many at a time on one connection, each waiting for its own response.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use artillery_core::{
    error::{CloseReason, ConnectError, ReadError, WriteError},
    frame::Frame,
    transport::{CloseCode, Connection, FrameBatch, FrameReader, FrameWriter, Link, LinkState, StreamKind},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::{
    ChainId, MemberId,
    error::Unknown,
    wire::{
        request::{
            EncodeError, Encoded, MAX_OUTSTANDING, Operation, Request, Response, decode_response, encode_request,
        },
        streams::REQUESTS,
    },
};

/// Requests that wait to be written, for each lane.
const QUEUE: usize = 256;

/// Frames are gathered into one write up to about so many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// The node is told a little less time than there is, so that its refusal arrives in time to be told from silence.
const MARGIN: Duration = Duration::from_millis(50);

/// What is asked of a node.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) chain: ChainId,
    pub(crate) forwarded: bool,
    /// Nobody else will do.
    pub(crate) only: Option<MemberId>,
    pub(crate) operation: Operation,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answered(Response),
    /// It was never handed to a connection.
    NotSent(NotSent),
    /// It was, and there is no answer.
    Unanswered(Unknown),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotSent {
    TimedOut,
    /// The endpoint is closed.
    Stopped,
    /// Larger than frames may be, in bytes.
    TooLarge {
        len: u64,
        limit: u64,
    },
}

/// The way to one node. Reads have a stream of their own, so that they needn't stand behind large writes.
pub(crate) struct Channel {
    link: Link,
    reads: Lane,
    writes: Lane,
}

impl Channel {
    pub(crate) fn new(link: Link, max_frame: usize, runtime: &Handle) -> Self {
        let lane = |priority| Lane::spawn(link.clone(), priority, max_frame, runtime);
        Self { reads: lane(1), writes: lane(0), link }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.connection().is_some()
    }

    /// Why there is no connection, as far as is known.
    pub(crate) fn failure(&self) -> Option<Arc<ConnectError>> {
        match self.link.watch().current() {
            LinkState::Down(reason) => reason,
            LinkState::Up(_) => None,
        }
    }

    /// Asks, and waits for the answer until `deadline`. Dropped, it leaves nothing behind but the request itself, if
    /// that was sent.
    pub(crate) async fn ask(&self, question: Question, deadline: Instant) -> Outcome {
        let lane = if question.operation.is_write() { &self.writes } else { &self.reads };
        lane.ask(question, deadline).await
    }
}

/// One stream's worth of requests.
struct Lane {
    queue: mpsc::Sender<Ask>,
    pending: Arc<Pending>,
}

/// A question on its way to the stream.
struct Ask {
    question: Question,
    deadline: Instant,
    ticket: Arc<Ticket>,
    answer: oneshot::Sender<Outcome>,
}

/// Settles between the asker, who may give up, and the writer, who may send, which of them was first.
#[derive(Default)]
struct Ticket(AtomicU64);

impl Ticket {
    const GIVEN_UP: u64 = u64::MAX;

    fn settle(&self, state: u64) -> Result<u64, u64> {
        self.0.compare_exchange(0, state, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Whether it may be sent under `number` (above 0): afterwards it counts as sent.
    fn send(&self, number: u64) -> bool {
        self.settle(number).is_ok()
    }

    /// Gives it up; the number, if it was sent before.
    fn give_up(&self) -> Option<u64> {
        self.settle(Self::GIVEN_UP).err().filter(|&state| state != Self::GIVEN_UP)
    }
}

/// Who waits for which response.
#[derive(Default)]
struct Pending(Mutex<BTreeMap<u64, Waiting>>);

struct Waiting {
    answer: oneshot::Sender<Outcome>,
    /// Its place among those that may be outstanding.
    _permit: OwnedSemaphorePermit,
}

impl Pending {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<u64, Waiting>) -> T) -> T {
        // Nothing is left half done in there by a panic.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn answer(&self, response: Response) {
        // Whoever gave up has taken its entry along.
        if let Some(waiting) = self.with(|all| all.remove(&response.number)) {
            drop(waiting.answer.send(Outcome::Answered(response)));
        }
    }

    fn fail_all(&self, reason: &Unknown) {
        for waiting in self.with(std::mem::take).into_values() {
            drop(waiting.answer.send(Outcome::Unanswered(reason.clone())));
        }
    }
}

/// Takes back what an asker that goes away has left.
struct Asking<'a> {
    ticket: Arc<Ticket>,
    pending: &'a Pending,
}

impl Asking<'_> {
    /// Whether it had been sent.
    fn give_up(&self) -> bool {
        let Some(number) = self.ticket.give_up() else { return false };
        self.pending.with(|all| all.remove(&number));
        true
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Lane {
    fn spawn(link: Link, priority: i32, max_frame: usize, runtime: &Handle) -> Self {
        let (sender, queue) = mpsc::channel(QUEUE);
        let pending = Arc::new(Pending::default());
        let task = LaneTask { link, priority, max_frame, queue, pending: pending.clone(), held: None, last_number: 0 };
        runtime.spawn(task.run());
        Self { queue: sender, pending }
    }

    async fn ask(&self, question: Question, deadline: Instant) -> Outcome {
        let (answer, wait) = oneshot::channel();
        let ticket = Arc::new(Ticket::default());
        let asking = Asking { ticket: ticket.clone(), pending: &self.pending };
        let ask = Ask { question, deadline, ticket, answer };
        let answered = async {
            if self.queue.send(ask).await.is_err() {
                return Some(Outcome::NotSent(NotSent::Stopped));
            }
            wait.await.ok()
        };
        match timeout_at(deadline, answered).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) if asking.give_up() => Outcome::Unanswered(Unknown::NoAnswer),
            Ok(None) => Outcome::NotSent(NotSent::Stopped),
            Err(_) if asking.give_up() => Outcome::Unanswered(Unknown::TimedOut),
            Err(_) => Outcome::NotSent(NotSent::TimedOut),
        }
    }
}

/// Brings a lane's questions to the node, over one connection after the other.
struct LaneTask {
    link: Link,
    priority: i32,
    max_frame: usize,
    queue: mpsc::Receiver<Ask>,
    pending: Arc<Pending>,
    /// Taken out of the queue, and not written yet.
    held: Option<Ask>,
    last_number: u64,
}

impl LaneTask {
    /// Ends with the lane or the endpoint.
    async fn run(mut self) {
        self.serve().await;
        self.pending.fail_all(&Unknown::Lost(Arc::new(CloseReason::Here)));
    }

    async fn serve(&mut self) {
        loop {
            // No stream is opened before somebody asks.
            if self.held.is_none() {
                self.held = self.queue.recv().await;
            }
            if self.held.is_none() {
                return;
            }
            let Ok(connection) = self.link.connected().await else { return };
            let reason = match connection.open_bi(StreamKind(REQUESTS), self.priority).await {
                Ok((writer, reader)) => match self.session(&connection, writer, reader).await {
                    Some(reason) => reason,
                    None => return,
                },
                Err(error) => written(error),
            };
            self.pending.fail_all(&reason);
        }
    }

    /// Until the stream is lost, and why; `None`: nobody can ask any more.
    async fn session(
        &mut self,
        connection: &Connection,
        mut writer: FrameWriter,
        reader: FrameReader,
    ) -> Option<Unknown> {
        let pending = self.pending.clone();
        tokio::select! {
            biased;
            reason = receive(reader, &pending, connection) => Some(reason),
            sent = self.send(&mut writer) => sent.err(),
        }
    }

    async fn send(&mut self, writer: &mut FrameWriter) -> Result<(), Unknown> {
        let room = Arc::new(Semaphore::new(MAX_OUTSTANDING));
        let mut batch = FrameBatch::new();
        loop {
            if self.held.is_none() {
                self.held = self.queue.recv().await;
            }
            if self.held.is_none() {
                writer.finish();
                return Ok(());
            }
            let Ok(permit) = room.clone().acquire_owned().await else { return Ok(()) };
            self.push(permit, &mut batch);
            while batch.bytes() < BATCH_BYTES
                && let Ok(permit) = room.clone().try_acquire_owned()
                && let Ok(ask) = self.queue.try_recv()
            {
                self.held = Some(ask);
                self.push(permit, &mut batch);
            }
            if !batch.is_empty() {
                writer.send_all(&mut batch).await.map_err(written)?;
            }
        }
    }

    /// Puts the question that is held into the batch, unless its asker has given up.
    fn push(&mut self, permit: OwnedSemaphorePermit, batch: &mut FrameBatch) {
        let Some(ask) = self.held.take() else { return };
        let left = ask.deadline.saturating_duration_since(Instant::now());
        let left = left.saturating_sub(MARGIN.min(left / 10));
        self.last_number += 1;
        let Question { chain, forwarded, operation, .. } = ask.question;
        let number = self.last_number;
        let deadline_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        let encoded = match self.encode(&Request { number, chain, deadline_ms, forwarded, operation }) {
            Ok(encoded) => encoded,
            Err(reason) => return drop(ask.answer.send(Outcome::NotSent(reason))),
        };
        let sent = self.pending.with(|all| {
            let sent = ask.ticket.send(number);
            if sent {
                all.insert(number, Waiting { answer: ask.answer, _permit: permit });
            }
            sent
        });
        if sent {
            batch.push(&encoded.header, &encoded.body);
        }
    }

    fn encode(&self, request: &Request) -> Result<Encoded, NotSent> {
        let limit = self.max_frame as u64;
        let encoded = encode_request(request).map_err(|error| match error {
            EncodeError::TooLong(len) => NotSent::TooLarge { len, limit },
            _ => NotSent::TooLarge { len: u64::MAX, limit },
        })?;
        let len = encoded.body.iter().fold(encoded.header.len(), |sum, piece| sum + piece.len()) as u64;
        if len > limit { Err(NotSent::TooLarge { len, limit }) } else { Ok(encoded) }
    }
}

/// Hands out responses until there are no more, and says why.
async fn receive(mut reader: FrameReader, pending: &Pending, connection: &Connection) -> Unknown {
    loop {
        let mut next = match reader.next().await {
            Ok(Some(frame)) => Some(frame),
            Ok(None) => return Unknown::NoAnswer,
            Err(ReadError::Lost(reason)) => return Unknown::Lost(Arc::new(reason)),
            Err(error) => return Unknown::Lost(Arc::new(CloseReason::Protocol(error.to_string()))),
        };
        while let Some(frame) = next {
            if let Err(reason) = take_in(&frame, pending) {
                connection.close(CloseCode::VIOLATION, &reason);
                return Unknown::Lost(Arc::new(CloseReason::Protocol(reason)));
            }
            next = reader.next_ready();
        }
    }
}

fn take_in(frame: &Frame, pending: &Pending) -> Result<(), String> {
    let response = decode_response(frame).map_err(|error| format!("no response: {error}"))?;
    pending.answer(response);
    Ok(())
}

fn written(error: WriteError) -> Unknown {
    match error {
        WriteError::Lost(reason) => Unknown::Lost(Arc::new(reason)),
        _ => Unknown::NoAnswer,
    }
}
