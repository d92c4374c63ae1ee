//! Large requests and large answers: each on a stream of its own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use artillery_core::{
    Frame,
    config::TransportConfig,
    error::ReadError,
    transport::{Connection, FrameReader, FrameWriter, Link, StreamKind},
};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

use super::{
    CallOutcome, Doubts, NotSent, Question,
    calls::{CallRoom, LaneTable},
    lane::{encode, lost, request, response, violation},
};
use crate::{
    budget::Budget,
    budget::unreceived_bytes,
    error::Unknown,
    wire::{
        request::decode_answer_to,
        streams::{ANSWERS, APART_PRIORITY, REQUESTS},
    },
};

/// The code with which a stream is reset or stopped: its request was abandoned, or its answer is no longer wanted.
const UNWANTED_CODE: u32 = 3;

pub(super) struct LargeCalls {
    link: Link,
    max_frame: usize,
    numbers: Arc<AtomicU64>,
    waiting: Arc<LargeCallers>,
    /// Bytes of unanswered requests. Bounded, since unread requests must not fill the connection's window.
    outstanding: Budget,
}

impl LargeCalls {
    pub(super) fn new(link: Link, config: &TransportConfig, numbers: Arc<AtomicU64>) -> Self {
        Self {
            link,
            max_frame: config.max_frame_bytes,
            numbers,
            waiting: Arc::default(),
            outstanding: Budget::new(unreceived_bytes(config)),
        }
    }

    pub(super) const fn waiting(&self) -> &Arc<LargeCallers> {
        &self.waiting
    }

    /// Asks in the caller's task: dropping the call drops its stream.
    pub(super) async fn ask<'a>(
        &self,
        question: &Question,
        bytes: usize,
        deadline: Instant,
        doubts: Option<(Duration, impl FnOnce() -> Doubts<'a>)>,
    ) -> CallOutcome {
        let handed_over = AtomicBool::new(false);
        let Ok(_share) = timeout_at(deadline, self.outstanding.take(bytes)).await else {
            return CallOutcome::NotSent(NotSent::Busy);
        };
        let doubts = async {
            match doubts {
                Some((patience, doubts)) => {
                    sleep(patience).await;
                    doubts().await;
                }
                None => std::future::pending().await,
            }
        };
        let asked = async {
            tokio::select! {
                biased;
                outcome = self.send(question, deadline, &handed_over) => outcome,
                () = doubts => CallOutcome::Unanswered(Unknown::NoAnswer),
            }
        };
        match timeout_at(deadline, asked).await {
            Ok(outcome) => outcome,
            Err(_) if handed_over.load(Ordering::Relaxed) => CallOutcome::Unanswered(Unknown::TimedOut),
            Err(_) => CallOutcome::NotSent(NotSent::TimedOut),
        }
    }

    async fn send(&self, question: &Question, deadline: Instant, handed_over: &AtomicBool) -> CallOutcome {
        let Ok(connection) = self.link.connected().await else { return CallOutcome::NotSent(NotSent::Stopped) };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let left = deadline.saturating_duration_since(Instant::now());
        let encoded = match encode(&request(number, question.clone(), left), &connection, self.max_frame) {
            Ok(encoded) => encoded,
            Err(reason) => return CallOutcome::NotSent(reason),
        };
        let (answer, apart) = oneshot::channel();
        let _entry = self.waiting.enter(number, answer);
        let (mut writer, mut reader) = match connection.open_bi(StreamKind(REQUESTS), APART_PRIORITY).await {
            Ok((writer, reader)) => (GivenUp(writer), reader),
            // No stream could be opened: the next attempt uses another connection, if there is one.
            Err(_) => return CallOutcome::NotSent(NotSent::Lost),
        };
        // The node can't have decoded the request before all of it was passed on.
        if writer.0.send(&encoded.header, &encoded.body).await.is_err() {
            return CallOutcome::NotSent(NotSent::Lost);
        }
        handed_over.store(true, Ordering::Relaxed);
        drop(encoded);
        writer.0.finish();
        tokio::select! {
            biased;
            outcome = answer_here(&connection, &mut reader, number) => outcome,
            outcome = apart => outcome.unwrap_or(CallOutcome::Unanswered(Unknown::NoAnswer)),
        }
    }
}

/// The stream of a request. Dropping it resets the stream, so that QUIC doesn't keep data that the node hasn't read.
/// After an answer, the reset has no effect.
struct GivenUp(FrameWriter);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.reset(UNWANTED_CODE);
    }
}

/// Waits for the answer on the request's own stream. If the answer arrives on another stream, this never returns.
async fn answer_here(connection: &Connection, reader: &mut FrameReader, number: u64) -> CallOutcome {
    let frame = match reader.next().await {
        Ok(Some(frame)) => frame,
        // The answer will arrive on another stream.
        Ok(None) => std::future::pending().await,
        Err(error) => return CallOutcome::Unanswered(lost(error)),
    };
    answer(&frame, number).unwrap_or_else(|reason| CallOutcome::Unanswered(violation(connection, reason)))
}

fn answer(frame: &Frame, number: u64) -> Result<CallOutcome, String> {
    let response = response(frame)?;
    if response.number != number {
        return Err(format!("a response to {} on the stream of {number}", response.number));
    }
    Ok(CallOutcome::Answered(response))
}

#[derive(Default)]
pub(super) struct LargeCallers(Mutex<BTreeMap<u64, oneshot::Sender<CallOutcome>>>);

impl LargeCallers {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<u64, oneshot::Sender<CallOutcome>>) -> T) -> T {
        // No code that holds the lock can panic halfway through a change.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a caller. Dropping the result removes it.
    fn enter(&self, number: u64, answer: oneshot::Sender<CallOutcome>) -> ExpectedAnswer<'_> {
        self.with(|all| all.insert(number, answer));
        ExpectedAnswer { number, waiting: self }
    }

    fn take(&self, number: u64) -> Option<oneshot::Sender<CallOutcome>> {
        self.with(|all| all.remove(&number))
    }
}

struct ExpectedAnswer<'a> {
    number: u64,
    waiting: &'a LargeCallers,
}

impl Drop for ExpectedAnswer<'_> {
    fn drop(&mut self) {
        self.waiting.take(self.number);
    }
}

/// Accepts the streams on which a node sends large answers.
pub(super) struct Returns {
    link: Link,
    callers: Arc<Callers>,
}

struct Callers {
    calls: [Arc<LaneTable>; 2],
    waiting: Arc<LargeCallers>,
}

impl Callers {
    /// The caller that waits for this answer, and the capacity of its call, which is held until the answer has arrived.
    fn take(&self, number: u64) -> Option<(oneshot::Sender<CallOutcome>, Option<CallRoom>)> {
        let taken = self.calls.iter().find_map(|calls| calls.take(number));
        taken.or_else(|| Some((self.waiting.take(number)?, None)))
    }
}

impl Returns {
    pub(super) fn new(link: Link, calls: [Arc<LaneTable>; 2], waiting: Arc<LargeCallers>) -> Self {
        Self { link, callers: Arc::new(Callers { calls, waiting }) }
    }

    /// Serves one connection after another, until the endpoint is closed.
    pub(super) async fn run(self) {
        while let Ok(connection) = self.link.connected().await {
            // Bounded by the number of streams that a node may have open.
            let mut streams = JoinSet::new();
            while let Ok((kind, reader)) = connection.accept_uni().await {
                while streams.try_join_next().is_some() {}
                // Dropping a stream of another kind shows the node that its kind is unknown here.
                if kind.0 == ANSWERS {
                    streams.spawn(on_answer_stream(connection.clone(), reader, self.callers.clone()));
                }
            }
            // The running tasks notice that the connection is lost.
            while streams.join_next().await.is_some() {}
        }
    }
}

/// Receives one large answer while its caller waits.
async fn on_answer_stream(connection: Connection, mut reader: FrameReader, callers: Arc<Callers>) {
    let number = match reader.next().await {
        Ok(Some(frame)) => decode_answer_to(&frame).map_err(|error| format!("not a request number: {error}")),
        Ok(None) => Err("a stream without an answer".to_owned()),
        // Without a number the caller is unknown. The loss of the connection ends its call.
        Err(_) => return,
    };
    let number = match number {
        Ok(number) => number,
        Err(reason) => return drop(violation(&connection, reason)),
    };
    let Some((mut caller, _room)) = callers.take(number) else { return reader.stop(UNWANTED_CODE) };
    let outcome = tokio::select! {
        biased;
        next = reader.next() => match next {
            Ok(Some(frame)) => answer(&frame, number),
            Ok(None) => Err("a stream without an answer".to_owned()),
            Err(ReadError::Frame(error)) => Err(error.to_string()),
            Err(error) => Ok(CallOutcome::Unanswered(lost(error))),
        },
        () = caller.closed() => return reader.stop(UNWANTED_CODE),
    };
    let outcome = outcome.unwrap_or_else(|reason| CallOutcome::Unanswered(violation(&connection, reason)));
    drop(caller.send(outcome));
}
