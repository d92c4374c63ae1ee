//! Small requests: many concurrently on one stream, which also carries the answers.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use artillery_core::{
    Frame,
    config::TransportConfig,
    error::{CloseReason, ReadError, WriteError},
    transport::{CloseCode, Connection, FrameBatch, FrameReader, FrameWriter, Link, StreamKind},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{
    CallOutcome, Carrier, Doubts, NotSent, Question,
    calls::{CallRoom, LaneCall, LaneTable},
};
use crate::{
    budget::{Budget, unreceived_bytes},
    error::Unknown,
    message::request::{MAX_OUTSTANDING, Request, Response},
    wire::{
        request::{EncodeError, Encoded, decode_response, encode_request},
        streams::REQUESTS,
    },
};

/// A write to the stream gathers no further request once it has about this many bytes.
const BATCH_BYTES: usize = 256 << 10;

const BATCH: usize = 256;

/// The deadline for the node is earlier than the caller's by this margin, or by a tenth of the remaining time if that
/// is less. A refusal by the node then arrives in time to be distinguished from silence.
const DEADLINE_MARGIN: Duration = Duration::from_millis(50);

pub(super) struct Lane {
    calls: Arc<LaneTable>,
    places: Arc<Semaphore>,
    outstanding: Budget,
    carrier: Carrier,
}

impl Lane {
    pub(super) fn spawn(
        link: Link,
        priority: i32,
        config: &TransportConfig,
        numbers: Arc<AtomicU64>,
        carrier: &Carrier,
    ) -> Self {
        let calls = Arc::new(LaneTable::default());
        let task = LaneTask { link, priority, max_frame: config.max_frame_bytes, calls: calls.clone(), numbers };
        carrier.runtime.spawn(task.run());
        // Two bounds. Requests that the node doesn't read must leave space for other streams in the connection's
        // window. And the requests in flight must fit into the stream's window: otherwise a request would be treated as
        // sent while it still waits here.
        let outstanding = unreceived_bytes(config).min(config.stream_window_bytes as usize);
        let places = Arc::new(Semaphore::new(MAX_OUTSTANDING));
        Self { calls, places, outstanding: Budget::fine(outstanding), carrier: carrier.clone() }
    }

    pub(super) const fn calls(&self) -> &Arc<LaneTable> {
        &self.calls
    }

    /// Asks a question of `bytes` bytes. If no answer arrives within the duration in `doubts`, the future in `doubts`
    /// starts. When this future ends, the call ends without an answer.
    pub(super) async fn ask<'a>(
        &self,
        question: &Question,
        bytes: usize,
        deadline: Instant,
        doubts: Option<(Duration, impl FnOnce() -> Doubts<'a>)>,
    ) -> CallOutcome {
        let room = match self.room_now(bytes) {
            Some(room) => room,
            None => match Box::pin(timeout_at(deadline, self.room(bytes))).await {
                Ok(Some(room)) => room,
                Ok(None) => return CallOutcome::NotSent(NotSent::Stopped),
                Err(_) => return CallOutcome::NotSent(NotSent::Busy),
            },
        };
        let until = doubts.as_ref().map_or(deadline, |(patience, _)| deadline.min(Instant::now() + *patience));
        match self.calls.begin(question.clone(), deadline, until, room) {
            Some(call) => self.outcome(call, until, deadline, doubts.map(|(_, doubts)| doubts)).await,
            None => CallOutcome::NotSent(NotSent::Stopped),
        }
    }

    /// Waits for a call's outcome until `until`. Then the doubts start, and the call continues until they end, at most
    /// until `deadline`.
    pub(super) async fn outcome<'a>(
        &self,
        mut call: LaneCall,
        until: Instant,
        deadline: Instant,
        doubts: Option<impl FnOnce() -> Doubts<'a>>,
    ) -> CallOutcome {
        if let Some(outcome) = self.in_time(&mut call, until).await {
            return outcome;
        }
        let Some(doubts) = doubts.filter(|_| until < deadline) else { return call.give_up(Unknown::TimedOut) };
        call.extend(deadline);
        let in_time = async {
            tokio::select! {
                biased;
                outcome = self.in_time(&mut call, deadline) => outcome.ok_or(Unknown::TimedOut),
                () = doubts() => Err(Unknown::NoAnswer),
            }
        };
        match in_time.await {
            Ok(outcome) => outcome,
            Err(reason) => call.give_up(reason),
        }
    }

    /// Waits for a call's outcome until the call times out. The lane's task wakes the call then. If that task is in
    /// another runtime, which may not be driven, this future has a timer of its own.
    async fn in_time(&self, call: &mut LaneCall, until: Instant) -> Option<CallOutcome> {
        if self.carrier.keeps_time() {
            return call.in_time().await;
        }
        Box::pin(timeout_at(until, call.in_time())).await.ok().flatten()
    }

    pub(super) fn room_now(&self, bytes: usize) -> Option<CallRoom> {
        let share = self.outstanding.try_take(bytes)?;
        Some((self.places.clone().try_acquire_owned().ok()?, share))
    }

    /// Waits for capacity, in the order of the calls; `None` if the lane is closed.
    async fn room(&self, bytes: usize) -> Option<CallRoom> {
        let share = self.outstanding.take(bytes).await;
        Some((self.places.clone().acquire_owned().await.ok()?, share))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.calls.close();
    }
}

/// Sends a lane's questions to the node, over one connection after another.
struct LaneTask {
    link: Link,
    priority: i32,
    max_frame: usize,
    calls: Arc<LaneTable>,
    /// The last request number issued on this channel, over all its streams and connections.
    numbers: Arc<AtomicU64>,
}

/// All calls end with the task, for whatever reason it ends.
impl Drop for LaneTask {
    fn drop(&mut self) {
        self.calls.stop();
        self.calls.lose(&Unknown::Lost(Arc::new(CloseReason::Here)));
    }
}

impl LaneTask {
    /// Runs until the lane or the endpoint is closed.
    async fn run(self) {
        tokio::select! {
            biased;
            () = self.serve() => {}
            () = self.calls.keep_time() => {}
        }
    }

    async fn serve(&self) {
        // No stream is opened before the first call.
        while self.calls.wait().await {
            let Ok(connection) = self.link.connected().await else { return };
            let reason = match connection.open_bi(StreamKind(REQUESTS), self.priority).await {
                Ok((writer, reader)) => match self.session(&connection, writer, reader).await {
                    Some(reason) => reason,
                    None => return,
                },
                Err(error) => written(error),
            };
            self.calls.lose(&reason);
        }
    }

    /// Runs until the stream is lost, and returns the reason. `None`: the lane is closed.
    async fn session(&self, connection: &Connection, mut writer: FrameWriter, reader: FrameReader) -> Option<Unknown> {
        tokio::select! {
            biased;
            reason = receive(reader, &self.calls, connection) => Some(reason),
            sent = self.send(connection, &mut writer) => sent.err(),
        }
    }

    async fn send(&self, connection: &Connection, writer: &mut FrameWriter) -> Result<(), Unknown> {
        let (mut batch, mut questions) = (FrameBatch::new(), Vec::with_capacity(BATCH));
        while self.calls.wait().await {
            self.calls.send(BATCH_BYTES, &self.numbers, &mut questions);
            let now = Instant::now();
            for (number, question, deadline) in questions.drain(..) {
                let request = request(number, question, deadline.saturating_duration_since(now));
                match encode(&request, connection, self.max_frame) {
                    Ok(encoded) => batch.push(&encoded.header, &encoded.body),
                    Err(reason) => self.calls.not_sent(number, reason),
                }
            }
            writer.send_all(&mut batch).await.map_err(written)?;
        }
        writer.finish();
        Ok(())
    }
}

/// The request for a question with this much time left.
pub(super) fn request(number: u64, question: Question, left: Duration) -> Request {
    let left = left.saturating_sub(DEADLINE_MARGIN.min(left / 10));
    let deadline_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
    let Question { chain, forwarded, operation, .. } = question;
    Request { number, chain, deadline_ms, forwarded, operation }
}

/// Encodes a frame for this connection, if it doesn't exceed this side's limit. The node is assumed to have the same limit.
pub(super) fn encode(request: &Request, connection: &Connection, max_frame: usize) -> Result<Encoded, NotSent> {
    let limit = max_frame as u64;
    let encoded = encode_request(request, connection.peer().version).map_err(|error| match error {
        EncodeError::Unsupported { needs, has } => NotSent::Unsupported { needs, has },
        EncodeError::TooLong(len) => NotSent::TooLarge { len, limit },
        _ => NotSent::TooLarge { len: u64::MAX, limit },
    })?;
    let len = encoded.body.iter().fold(encoded.header.len(), |sum, piece| sum + piece.len()) as u64;
    if len > limit { Err(NotSent::TooLarge { len, limit }) } else { Ok(encoded) }
}

/// Passes responses to their callers until the stream ends, and returns the reason of the end.
async fn receive(mut reader: FrameReader, calls: &LaneTable, connection: &Connection) -> Unknown {
    let mut responses = Vec::with_capacity(BATCH);
    loop {
        let mut next = match reader.next().await {
            Ok(Some(frame)) => Some(frame),
            Ok(None) => return Unknown::NoAnswer,
            Err(error) => return lost(error),
        };
        while let Some(frame) = next {
            match response(&frame) {
                Ok(response) => responses.push(response),
                Err(reason) => {
                    calls.answer(&mut responses);
                    return violation(connection, reason);
                }
            }
            next = if responses.len() < BATCH { reader.next_ready() } else { None };
        }
        calls.answer(&mut responses);
    }
}

pub(super) fn response(frame: &Frame) -> Result<Response, String> {
    decode_response(frame).map_err(|error| format!("not a response: {error}"))
}

/// Closes the connection of a node that violated the protocol. Call it before dropping the stream: a frame that the
/// drop queues may delay the close.
pub(super) fn violation(connection: &Connection, reason: String) -> Unknown {
    connection.close(CloseCode::VIOLATION, &reason);
    Unknown::Lost(Arc::new(CloseReason::Protocol(reason)))
}

/// The outcome of a call whose stream can no longer be read.
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
