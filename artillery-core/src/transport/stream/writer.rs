use std::sync::Arc;

use bytes::Bytes;
use quinn::SendStream;

use super::FrameBatch;
#[cfg(feature = "testing")]
use crate::transport::medium::PipeWriter;
use crate::{
    error::WriteError,
    transport::{counters::CounterCells, quic},
};

/// The sending end of a stream. Dropping it finishes the stream, or resets it if a write was cancelled or failed.
#[derive(Debug)]
pub struct FrameWriter {
    stream: StreamSink,
    limit: usize,
    counters: Arc<CounterCells>,
    single: FrameBatch,
    /// Set while a write is in progress, and after one was cancelled or failed.
    writing: bool,
}

#[derive(Debug)]
pub(in crate::transport) enum StreamSink {
    Quic(SendStream),
    #[cfg(feature = "testing")]
    Simulated(PipeWriter),
}

impl From<SendStream> for StreamSink {
    fn from(stream: SendStream) -> Self {
        Self::Quic(stream)
    }
}

#[cfg(feature = "testing")]
impl From<PipeWriter> for StreamSink {
    fn from(inlet: PipeWriter) -> Self {
        Self::Simulated(inlet)
    }
}

impl FrameWriter {
    pub(in crate::transport) fn new(stream: StreamSink, limit: usize, counters: Arc<CounterCells>) -> Self {
        Self { stream, limit, counters, single: FrameBatch::new(), writing: false }
    }

    /// Sends one frame. Returns once QUIC has accepted it; this waits while the flow-control windows are full. The
    /// receiver rejects a header of more than 1 MiB.
    ///
    /// Do not cancel this call: part of the frame may have been written, and the writer is then unusable.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn send(&mut self, header: &[u8], body: &[Bytes]) -> Result<(), WriteError> {
        let mut batch = std::mem::take(&mut self.single);
        batch.push(header, body);
        let sent = self.send_all(&mut batch).await;
        self.single = batch;
        sent
    }

    /// Sends all frames of the batch in one write and empties the batch, even after an error. Like
    /// [`FrameWriter::send`], it must not be cancelled.
    ///
    /// # Errors
    /// [`WriteError`]. If a frame is too large, no part of the batch is written.
    pub async fn send_all(&mut self, batch: &mut FrameBatch) -> Result<(), WriteError> {
        let sent = self.write(batch).await;
        batch.clear();
        sent
    }

    async fn write(&mut self, batch: &mut FrameBatch) -> Result<(), WriteError> {
        if batch.is_empty() {
            return Ok(());
        }
        if batch.largest() > self.limit {
            return Err(WriteError::TooLarge { len: batch.largest(), limit: self.limit });
        }
        if std::mem::replace(&mut self.writing, true) {
            return Err(WriteError::Interrupted);
        }
        let (frames, bytes) = (batch.frames() as u64, batch.bytes() as u64);
        match &mut self.stream {
            StreamSink::Quic(stream) => stream.write_all_chunks(batch.chunks()).await.map_err(quic::write_error)?,
            #[cfg(feature = "testing")]
            StreamSink::Simulated(inlet) => inlet.write(batch.chunks()).await?,
        }
        self.writing = false;
        self.counters.writes.add(1);
        self.counters.frames_sent.add(frames);
        self.counters.frame_bytes_sent.add(bytes);
        Ok(())
    }

    /// Finishes the stream. Frames already sent are still delivered.
    pub fn finish(&mut self) {
        match &mut self.stream {
            // Fails only if the stream has already ended.
            StreamSink::Quic(stream) => drop(stream.finish()),
            #[cfg(feature = "testing")]
            StreamSink::Simulated(inlet) => inlet.finish(),
        }
    }

    /// Resets the stream. Undelivered frames may be lost. The receiver gets `code` in
    /// [`ReadError::Reset`](crate::error::ReadError::Reset).
    pub fn reset(&mut self, code: u32) {
        match &mut self.stream {
            // Fails only if the stream has already ended.
            StreamSink::Quic(stream) => drop(stream.reset(code.into())),
            #[cfg(feature = "testing")]
            StreamSink::Simulated(inlet) => inlet.reset(code),
        }
    }

    /// Waits until the peer has received everything after [`FrameWriter::finish`], has stopped the stream, or is gone.
    pub async fn stopped(&self) {
        match &self.stream {
            // The caller only waits for the end, so the outcome is irrelevant.
            StreamSink::Quic(stream) => drop(stream.stopped().await),
            #[cfg(feature = "testing")]
            StreamSink::Simulated(inlet) => inlet.stopped().await,
        }
    }
}

impl Drop for FrameWriter {
    fn drop(&mut self) {
        if self.writing {
            self.reset(0);
        }
    }
}
