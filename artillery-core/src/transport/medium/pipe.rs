//! One direction of a stream.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use tokio::{sync::Notify, time::Instant};

use super::SimulatedLine;
use crate::error::{ReadError, WriteError};

/// A write waits while at least this many bytes are in flight, as with the window of a stream.
const WINDOW_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Pipe {
    line: Arc<SimulatedLine>,
    side: usize,
    state: Mutex<PipeState>,
    /// Notified when a piece, the end or a reset was queued.
    news: Notify,
    /// Notified when capacity was freed, or the reader is gone.
    room: Notify,
}

#[derive(Debug, Default)]
struct PipeState {
    /// Pieces in flight, with their arrival times.
    queue: VecDeque<(Instant, Bytes)>,
    bytes: usize,
    finished: bool,
    reset: Option<u32>,
    stopped: Option<u32>,
}

impl Pipe {
    pub(super) fn new(line: Arc<SimulatedLine>, side: usize) -> Arc<Self> {
        Arc::new(Self { line, side, state: Mutex::default(), news: Notify::new(), room: Notify::new() })
    }

    /// A direction without data.
    pub(super) fn ended(line: Arc<SimulatedLine>) -> Arc<Self> {
        let pipe = Self::new(line, 1);
        pipe.lock().finished = true;
        pipe
    }

    fn lock(&self) -> MutexGuard<'_, PipeState> {
        // No code that holds the lock can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the chunks as one piece, once there is capacity.
    pub(super) async fn write(&self, chunks: &[Bytes]) -> Result<(), WriteError> {
        loop {
            if let Some(reason) = self.line.close_reason(self.side) {
                return Err(WriteError::Lost(reason));
            }
            {
                let mut state = self.lock();
                if let Some(code) = state.stopped {
                    return Err(WriteError::Stopped(code.into()));
                }
                if state.finished || state.reset.is_some() {
                    return Err(WriteError::Finished);
                }
                if state.bytes < WINDOW_BYTES {
                    let mut piece = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
                    chunks.iter().for_each(|chunk| piece.extend_from_slice(chunk));
                    let before = state.queue.back().map(|(at, _)| *at);
                    let at = self.line.departure();
                    state.bytes += piece.len();
                    // Pieces of a stream stay in order.
                    state.queue.push_back((before.map_or(at, |before| before.max(at)), piece.freeze()));
                    self.news.notify_one();
                    return Ok(());
                }
            }
            tokio::select! {
                biased;
                reason = self.line.closed(self.side) => return Err(WriteError::Lost(reason)),
                () = self.room.notified() => {}
            }
        }
    }

    pub(super) fn finish(&self) {
        self.lock().finished = true;
        self.news.notify_one();
    }

    pub(super) fn reset(&self, code: u32) {
        self.lock().reset = Some(code);
        self.news.notify_one();
    }

    /// Waits until the reader has received everything or has stopped the stream, or the connection is closed.
    pub(super) async fn stopped(&self) {
        let is_done = || {
            let state = self.lock();
            state.stopped.is_some() || (state.finished && state.queue.is_empty())
        };
        while !is_done() {
            tokio::select! {
                biased;
                _ = self.line.closed(self.side) => return,
                () = self.room.notified() => {}
            }
        }
    }

    /// The next piece once it has arrived, or `None` at the end. Cancel-safe.
    pub(super) async fn next(&self) -> Result<Option<Bytes>, ReadError> {
        loop {
            let next = {
                let state = self.lock();
                match state.queue.front() {
                    _ if state.reset.is_some() => return Err(ReadError::Reset(state.reset.unwrap_or(0).into())),
                    Some((at, _)) => Some(*at),
                    None if state.finished => return Ok(None),
                    None => None,
                }
            };
            let Some(at) = next else {
                tokio::select! {
                    biased;
                    reason = self.line.closed(1 - self.side) => return Err(ReadError::Lost(reason)),
                    () = self.news.notified() => continue,
                }
            };
            self.line.arrival(self.side, at).await?;
            let mut state = self.lock();
            if let Some((_, piece)) = state.queue.pop_front() {
                state.bytes -= piece.len();
                self.room.notify_one();
                return Ok(Some(piece));
            }
        }
    }

    pub(super) fn stop(&self, code: u32) {
        self.lock().stopped.get_or_insert(code);
        self.room.notify_one();
    }
}
