//! Small requests: many at a time on one stream, whose answers come back on it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use artillery_core::{
    config::TransportConfig,
    error::{CloseReason, ReadError, WriteError},
    frame::Frame,
    transport::{CloseCode, Connection, FrameBatch, FrameReader, FrameWriter, Link, StreamKind},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout_at},
};

use super::{
    NotSent, Outcome, Question,
    pending::{Asking, Pending, Ticket, Waiting},
};
use crate::{
    budget::{Budget, Share},
    driver::serve::unreceived_bytes,
    error::Unknown,
    wire::{
        request::{EncodeError, Encoded, MAX_OUTSTANDING, Request, Response, decode_response, encode_request},
        streams::REQUESTS,
    },
};

/// Requests that wait to be written, for each lane.
const QUEUE: usize = 256;

/// Frames are gathered into one write up to about so many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// The node is told a little less time than there is, so that its refusal arrives in time to be told from silence.
const MARGIN: Duration = Duration::from_millis(50);

/// One stream's worth of requests.
pub(super) struct Lane {
    queue: mpsc::Sender<Ask>,
    pending: Arc<Pending>,
    /// Bytes of those that aren't answered yet.
    outstanding: Budget,
}

/// A question on its way to the stream.
struct Ask {
    question: Question,
    deadline: Instant,
    ticket: Arc<Ticket>,
    answer: oneshot::Sender<Outcome>,
    share: Share,
}

impl Lane {
    pub(super) fn spawn(
        link: Link,
        priority: i32,
        config: &TransportConfig,
        numbers: Arc<AtomicU64>,
        runtime: &Handle,
    ) -> Self {
        let (sender, queue) = mpsc::channel(QUEUE);
        let pending = Arc::new(Pending::default());
        let max_frame = config.max_frame_bytes;
        let task = LaneTask { link, priority, max_frame, queue, pending: pending.clone(), held: None, numbers };
        runtime.spawn(task.run());
        // What the node doesn't take in must leave room in the connection's window for other streams; and no more than its
        // stream takes in before the node reads on, so that what is under way is not held up here instead.
        let outstanding = unreceived_bytes(config).min(config.stream_window_bytes as usize);
        Self { queue: sender, pending, outstanding: Budget::new(outstanding) }
    }

    pub(super) const fn pending(&self) -> &Arc<Pending> {
        &self.pending
    }

    /// Asks what takes so many bytes.
    pub(super) async fn ask(&self, question: Question, bytes: usize, deadline: Instant) -> Outcome {
        let (answer, wait) = oneshot::channel();
        let ticket = Arc::new(Ticket::default());
        let asking = Asking { ticket: ticket.clone() };
        let queue = async { (self.outstanding.take(bytes).await, self.queue.reserve().await) };
        let Ok((share, place)) = timeout_at(deadline, queue).await else { return Outcome::NotSent(NotSent::Busy) };
        let Ok(place) = place else { return Outcome::NotSent(NotSent::Stopped) };
        place.send(Ask { question, deadline, ticket, answer, share });
        match timeout_at(deadline, wait).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) if asking.give_up() => Outcome::Unanswered(Unknown::NoAnswer),
            Ok(Err(_)) => Outcome::NotSent(NotSent::Stopped),
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
    /// The last number that was given to a request, whatever its stream.
    numbers: Arc<AtomicU64>,
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
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let encoded = match encode(&request(number, ask.question, ask.deadline), self.max_frame) {
            Ok(encoded) => encoded,
            Err(reason) => return drop(ask.answer.send(Outcome::NotSent(reason))),
        };
        let sent = self.pending.with(|all| {
            let sent = ask.ticket.send();
            if sent {
                all.insert(number, Waiting { answer: ask.answer, _permit: Some(permit), _share: ask.share });
            }
            sent
        });
        if sent {
            batch.push(&encoded.header, &encoded.body);
        }
    }
}

/// The request that a question becomes.
pub(super) fn request(number: u64, question: Question, deadline: Instant) -> Request {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = left.saturating_sub(MARGIN.min(left / 10));
    let deadline_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
    let Question { chain, forwarded, operation, .. } = question;
    Request { number, chain, deadline_ms, forwarded, operation }
}

/// As a frame that isn't longer than the node takes in.
pub(super) fn encode(request: &Request, max_frame: usize) -> Result<Encoded, NotSent> {
    let limit = max_frame as u64;
    let encoded = encode_request(request).map_err(|error| match error {
        EncodeError::TooLong(len) => NotSent::TooLarge { len, limit },
        _ => NotSent::TooLarge { len: u64::MAX, limit },
    })?;
    let len = encoded.body.iter().fold(encoded.header.len(), |sum, piece| sum + piece.len()) as u64;
    if len > limit { Err(NotSent::TooLarge { len, limit }) } else { Ok(encoded) }
}

/// Hands out responses until there are no more, and says why.
async fn receive(mut reader: FrameReader, pending: &Pending, connection: &Connection) -> Unknown {
    loop {
        let mut next = match reader.next().await {
            Ok(Some(frame)) => Some(frame),
            Ok(None) => return Unknown::NoAnswer,
            Err(error) => return lost(error),
        };
        while let Some(frame) = next {
            match response(&frame) {
                Ok(response) => pending.answer(response),
                Err(reason) => return violation(connection, reason),
            }
            next = reader.next_ready();
        }
    }
}

/// The response in a frame.
pub(super) fn response(frame: &Frame) -> Result<Response, String> {
    decode_response(frame).map_err(|error| format!("no response: {error}"))
}

/// Closes the connection of a node that broke the rules. To be called while its stream is still held: what a dropped one
/// leaves to be said can hold the farewell back.
pub(super) fn violation(connection: &Connection, reason: String) -> Unknown {
    connection.close(CloseCode::VIOLATION, &reason);
    Unknown::Lost(Arc::new(CloseReason::Protocol(reason)))
}

/// Why there is no answer on a stream that can't be read.
pub(super) fn lost(error: ReadError) -> Unknown {
    match error {
        ReadError::Lost(reason) => Unknown::Lost(Arc::new(reason)),
        error => Unknown::Lost(Arc::new(CloseReason::Protocol(error.to_string()))),
    }
}

fn written(error: WriteError) -> Unknown {
    match error {
        WriteError::Lost(reason) => Unknown::Lost(Arc::new(reason)),
        _ => Unknown::NoAnswer,
    }
}
