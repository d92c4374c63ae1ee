//! One direction of a stream.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use tokio::{sync::Notify, time::Instant};

use super::line::{End, Line};
use crate::error::{ReadError, WriteError};

/// Bytes on their way at most, as the window of a stream.
const WINDOW: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Pipe {
    line: Arc<Line>,
    /// Who sends.
    side: usize,
    state: Mutex<State>,
    /// Something has come, or nothing more will.
    news: Notify,
    /// There is room again, or nobody reads any more.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Pieces on their way, and when they arrive.
    queue: VecDeque<(Instant, Bytes)>,
    bytes: usize,
    finished: bool,
    reset: Option<u32>,
    stopped: Option<u32>,
}

impl Pipe {
    pub(super) fn new(line: Arc<Line>, side: usize) -> Self {
        Self { line, side, state: Mutex::default(), news: Notify::new(), room: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds it can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A direction that brings nothing.
pub(super) fn ended(line: Arc<Line>) -> Arc<Pipe> {
    let pipe = Pipe::new(line, 1);
    pipe.lock().finished = true;
    Arc::new(pipe)
}

/// The sending end.
#[derive(Debug)]
pub(in crate::transport) struct Inlet {
    pipe: Arc<Pipe>,
    /// Keeps the connection.
    _end: Option<Arc<End>>,
}

impl Inlet {
    pub(super) fn new(pipe: Arc<Pipe>, end: Option<Arc<End>>) -> Self {
        Self { pipe, _end: end }
    }

    /// Hands the chunks over as one piece, once there is room.
    pub(in crate::transport) async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), WriteError> {
        let pipe = &self.pipe;
        loop {
            if let Some(reason) = pipe.line.close_reason(pipe.side) {
                return Err(WriteError::Lost(reason));
            }
            {
                let mut state = pipe.lock();
                if let Some(code) = state.stopped {
                    return Err(WriteError::Stopped(code.into()));
                }
                if state.finished || state.reset.is_some() {
                    return Err(WriteError::Finished);
                }
                if state.bytes < WINDOW {
                    let mut piece = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
                    chunks.iter().for_each(|chunk| piece.extend_from_slice(chunk));
                    let before = state.queue.back().map(|(at, _)| *at);
                    let at = pipe.line.departure();
                    state.bytes += piece.len();
                    // Nothing overtakes within a stream.
                    state.queue.push_back((before.map_or(at, |before| before.max(at)), piece.freeze()));
                    pipe.news.notify_one();
                    return Ok(());
                }
            }
            tokio::select! {
                biased;
                reason = pipe.line.closed(pipe.side) => return Err(WriteError::Lost(reason)),
                () = pipe.room.notified() => {}
            }
        }
    }

    pub(in crate::transport) fn finish(&mut self) {
        self.pipe.lock().finished = true;
        self.pipe.news.notify_one();
    }

    pub(in crate::transport) fn reset(&mut self, code: u32) {
        self.pipe.lock().reset = Some(code);
        self.pipe.news.notify_one();
    }

    /// Waits until the reader has everything, or wants no more, or the connection is gone.
    pub(in crate::transport) async fn stopped(&self) {
        let is_done = || {
            let state = self.pipe.lock();
            state.stopped.is_some() || (state.finished && state.queue.is_empty())
        };
        while !is_done() {
            tokio::select! {
                biased;
                _ = self.pipe.line.closed(self.pipe.side) => return,
                () = self.pipe.room.notified() => {}
            }
        }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The receiving end.
#[derive(Debug)]
pub(in crate::transport) struct Outlet {
    pipe: Arc<Pipe>,
    /// Keeps the connection.
    _end: Option<Arc<End>>,
}

impl Outlet {
    pub(super) fn new(pipe: Arc<Pipe>, end: Option<Arc<End>>) -> Self {
        Self { pipe, _end: end }
    }

    /// The next piece when it has arrived, `None` at the end. May be cancelled: nothing is lost.
    pub(in crate::transport) async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        let pipe = &self.pipe;
        loop {
            let next = {
                let state = pipe.lock();
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
                    reason = pipe.line.closed(1 - pipe.side) => return Err(ReadError::Lost(reason)),
                    () = pipe.news.notified() => continue,
                }
            };
            pipe.line.arrival(pipe.side, at).await?;
            let mut state = pipe.lock();
            if let Some((_, piece)) = state.queue.pop_front() {
                state.bytes -= piece.len();
                pipe.room.notify_one();
                return Ok(Some(piece));
            }
        }
    }

    pub(in crate::transport) fn stop(&mut self, code: u32) {
        self.pipe.lock().stopped.get_or_insert(code);
        self.pipe.room.notify_one();
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.stop(0);
    }
}
