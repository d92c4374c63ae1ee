//! The parts of a connection that its two nodes hold: its ends, and the ends of its streams.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{SimulatedLine, pipe::Pipe};
use crate::{
    error::{CloseReason, ReadError, WriteError},
    transport::{CloseCode, StreamKind},
};

/// Maximum number of streams opened by the dialled side that the other side has not accepted yet.
const MAX_UNACCEPTED_STREAMS: usize = 4;

/// Receives the streams that the dialling side opens.
pub(in crate::transport) trait Accept: Send + Sync + 'static {
    /// Handles a new stream. `writer` is set if the stream is bidirectional.
    fn accept(&self, kind: StreamKind, reader: PipeReader, writer: Option<PipeWriter>);

    /// Handles a datagram.
    fn datagram(&self, payload: Bytes);
}

/// One side of a connection. Dropping it closes the connection.
pub(in crate::transport) struct LineEnd {
    line: Arc<SimulatedLine>,
    side: usize,
    opened: Arc<Opened>,
    /// The other side, set if this one dialled.
    acceptor: Option<Arc<dyn Accept>>,
}

/// The channel of streams opened by the dialled side. Both sides hold it, so it is never closed for either of them.
struct Opened {
    sender: mpsc::Sender<(StreamKind, PipeReader)>,
    receiver: tokio::sync::Mutex<mpsc::Receiver<(StreamKind, PipeReader)>>,
}

impl LineEnd {
    pub(in crate::transport) fn accepting(line: Arc<SimulatedLine>) -> Arc<Self> {
        let (sender, receiver) = mpsc::channel(MAX_UNACCEPTED_STREAMS);
        let opened = Arc::new(Opened { sender, receiver: tokio::sync::Mutex::new(receiver) });
        Arc::new(Self { line, side: 1, opened, acceptor: None })
    }

    /// Creates side 0 for this side 1. `acceptor` receives the streams that side 0 opens.
    pub(in crate::transport) fn dialling(&self, acceptor: Arc<dyn Accept>) -> Arc<Self> {
        let (line, opened) = (self.line.clone(), self.opened.clone());
        Arc::new(Self { line, side: 0, opened, acceptor: Some(acceptor) })
    }

    /// Opens a stream, bidirectional if `both`. Only the side that dialled may open bidirectional streams; on the other
    /// side the call never returns.
    pub(in crate::transport) async fn open(
        self: &Arc<Self>,
        kind: StreamKind,
        both: bool,
    ) -> Result<(PipeWriter, PipeReader), WriteError> {
        let Some(acceptor) = self.acceptor.clone() else {
            return if both { std::future::pending().await } else { self.open_back(kind).await };
        };
        if let Some(reason) = self.close_reason() {
            return Err(WriteError::Lost(reason));
        }
        let (there, back) = (Pipe::new(self.line.clone(), 0), Pipe::new(self.line.clone(), 1));
        let (line, at) = (self.line.clone(), self.line.departure());
        let (reader, writer) = (PipeReader::new(there.clone(), None), PipeWriter::new(back.clone(), None));
        tokio::spawn(async move {
            if line.arrival(0, at).await.is_ok() {
                acceptor.accept(kind, reader, both.then_some(writer));
            }
        });
        let back = if both { back } else { Pipe::ended(self.line.clone()) };
        Ok((PipeWriter::new(there, Some(self.clone())), PipeReader::new(back, Some(self.clone()))))
    }

    /// Sends a datagram to the side that was dialled. In the other direction, drops it.
    pub(in crate::transport) fn send_datagram(&self, payload: Bytes) {
        let Some(acceptor) = self.acceptor.clone() else { return };
        let (line, delay) = (self.line.clone(), self.line.draw_datagram());
        tokio::spawn(async move {
            if line.carry_datagram(delay).await {
                acceptor.datagram(payload);
            }
        });
    }

    /// Opens a stream to the side that dialled, once fewer than [`MAX_UNACCEPTED_STREAMS`] wait to be accepted.
    async fn open_back(&self, kind: StreamKind) -> Result<(PipeWriter, PipeReader), WriteError> {
        let line = self.line.clone();
        let room = tokio::select! {
            biased;
            reason = self.closed() => return Err(WriteError::Lost(reason)),
            room = self.opened.sender.clone().reserve_owned() => {
                room.map_err(|_| WriteError::Lost(CloseReason::TimedOut))?
            }
        };
        let pipe = Pipe::new(line.clone(), 1);
        let (at, reader) = (line.departure(), PipeReader::new(pipe.clone(), None));
        let arriving = line.clone();
        tokio::spawn(async move {
            if arriving.arrival(1, at).await.is_ok() {
                room.send((kind, reader));
            }
        });
        Ok((PipeWriter::new(pipe, None), PipeReader::new(Pipe::ended(line), None)))
    }

    pub(in crate::transport) async fn accept(&self) -> Result<(StreamKind, PipeReader), CloseReason> {
        let mut opened = self.opened.receiver.lock().await;
        tokio::select! {
            biased;
            reason = self.closed() => Err(reason),
            Some(opened) = opened.recv() => Ok(opened),
        }
    }

    /// Whether a message sent now arrives and is answered. The call waits while the path is cut.
    pub(in crate::transport) async fn is_answered(&self) -> bool {
        let there = self.line.arrival(self.side, self.line.departure()).await;
        there.is_ok() && self.line.arrival(1 - self.side, self.line.departure()).await.is_ok()
    }

    pub(in crate::transport) fn close(&self, code: CloseCode, words: &str) {
        self.line.close(self.side, code, words);
    }

    pub(in crate::transport) fn close_reason(&self) -> Option<CloseReason> {
        self.line.close_reason(self.side)
    }

    pub(in crate::transport) async fn closed(&self) -> CloseReason {
        self.line.closed(self.side).await
    }
}

impl fmt::Debug for LineEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineEnd").field("line", &self.line).field("side", &self.side).finish_non_exhaustive()
    }
}

impl Drop for LineEnd {
    fn drop(&mut self) {
        // Streams hold the side that dialled, and that side holds the other one.
        self.close(CloseCode::DONE, "");
    }
}

#[derive(Debug)]
pub(in crate::transport) struct PipeWriter {
    pipe: Arc<Pipe>,
    /// Keeps the connection open.
    _end: Option<Arc<LineEnd>>,
}

impl PipeWriter {
    fn new(pipe: Arc<Pipe>, end: Option<Arc<LineEnd>>) -> Self {
        Self { pipe, _end: end }
    }

    pub(in crate::transport) async fn write(&mut self, chunks: &[Bytes]) -> Result<(), WriteError> {
        self.pipe.write(chunks).await
    }

    pub(in crate::transport) fn finish(&mut self) {
        self.pipe.finish();
    }

    pub(in crate::transport) fn reset(&mut self, code: u32) {
        self.pipe.reset(code);
    }

    pub(in crate::transport) async fn stopped(&self) {
        self.pipe.stopped().await;
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.pipe.finish();
    }
}

#[derive(Debug)]
pub(in crate::transport) struct PipeReader {
    pipe: Arc<Pipe>,
    /// Keeps the connection open.
    _end: Option<Arc<LineEnd>>,
}

impl PipeReader {
    fn new(pipe: Arc<Pipe>, end: Option<Arc<LineEnd>>) -> Self {
        Self { pipe, _end: end }
    }

    pub(in crate::transport) async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.pipe.next().await
    }

    pub(in crate::transport) fn stop(&mut self, code: u32) {
        self.pipe.stop(code);
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.pipe.stop(0);
    }
}
