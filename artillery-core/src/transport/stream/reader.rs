use std::sync::Arc;

use bytes::Bytes;
use quinn::RecvStream;

#[cfg(feature = "testing")]
use crate::transport::medium::PipeReader;
use crate::{
    error::ReadError,
    frame::{Frame, FrameDecoder},
    transport::{counters::CounterCells, quic},
};

const MAX_CHUNKS_PER_READ: usize = 32;

/// The receiving end of a stream. Dropping it before the end stops the stream, which notifies the sender.
#[derive(Debug)]
pub struct FrameReader {
    stream: StreamSource,
    decoder: FrameDecoder,
    counters: Arc<CounterCells>,
    /// The error that ended the stream, returned by every later read. `None` while the stream is open, and after a
    /// clean end.
    failed: Option<ReadError>,
}

#[derive(Debug)]
pub(in crate::transport) enum StreamSource {
    Quic(RecvStream),
    #[cfg(feature = "testing")]
    Simulated(PipeReader),
}

impl From<RecvStream> for StreamSource {
    fn from(stream: RecvStream) -> Self {
        Self::Quic(stream)
    }
}

#[cfg(feature = "testing")]
impl From<PipeReader> for StreamSource {
    fn from(outlet: PipeReader) -> Self {
        Self::Simulated(outlet)
    }
}

impl StreamSource {
    /// Passes the next bytes to `take`. `false` at the end of the stream.
    async fn read(&mut self, mut take: impl FnMut(&[u8])) -> Result<bool, ReadError> {
        match self {
            Self::Quic(stream) => {
                let mut chunks = [const { Bytes::new() }; MAX_CHUNKS_PER_READ];
                let count = stream.read_chunks(&mut chunks).await.map_err(quic::read_error)?;
                chunks[..count.unwrap_or(0)].iter().for_each(|chunk| take(chunk));
                Ok(count.is_some())
            }
            #[cfg(feature = "testing")]
            Self::Simulated(outlet) => {
                let chunk = outlet.next().await?;
                chunk.iter().for_each(|chunk| take(chunk));
                Ok(chunk.is_some())
            }
        }
    }
}

impl FrameReader {
    pub(in crate::transport) fn new(stream: StreamSource, limit: usize, counters: Arc<CounterCells>) -> Self {
        Self { stream, decoder: FrameDecoder::new(limit), counters, failed: None }
    }

    /// The next frame, or `None` if the stream was finished after a complete frame. Cancel-safe.
    ///
    /// # Errors
    /// [`ReadError`]. The stream is then unusable. After [`ReadError::Frame`] it is also stopped, which notifies the
    /// sender.
    pub async fn next(&mut self) -> Result<Option<Frame>, ReadError> {
        loop {
            if let Some(frame) = self.next_ready() {
                return Ok(Some(frame));
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// The size of header and body of the next frame, available once its prefix has arrived. A caller without capacity
    /// for the frame can then stop reading. `None` if the stream was finished after a complete frame. Cancel-safe.
    ///
    /// # Errors
    /// Like [`FrameReader::next`].
    pub async fn next_len(&mut self) -> Result<Option<usize>, ReadError> {
        loop {
            match self.decoder.next_len() {
                Ok(Some(len)) => return Ok(Some(len)),
                Ok(None) => {}
                Err(error) => return Err(self.fail(error.into())),
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// Waits for bytes and passes them to the decoder. `false` if the stream has ended.
    async fn read(&mut self) -> Result<bool, ReadError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let decoder = &mut self.decoder;
        match self.stream.read(|chunk| decoder.push(chunk)).await {
            Ok(true) => Ok(true),
            Ok(false) => match self.decoder.finish() {
                Ok(()) => Ok(false),
                Err(error) => Err(self.fail(error.into())),
            },
            Err(error) => Err(self.fail(error)),
        }
    }

    /// The next frame, if it has already been received. Call it after [`FrameReader::next`] to collect a batch.
    ///
    /// An error is kept for the next call of [`FrameReader::next`].
    pub fn next_ready(&mut self) -> Option<Frame> {
        if self.failed.is_some() {
            return None;
        }
        match self.decoder.next_frame() {
            Ok(frame) => {
                let frame = frame?;
                self.counters.frames_received.add(1);
                self.counters.frame_bytes_received.add(frame.wire_len() as u64);
                Some(frame)
            }
            Err(error) => {
                self.fail(error.into());
                None
            }
        }
    }

    /// Stops the stream, which notifies the sender that nothing more will be read. The sender gets `code` in
    /// [`WriteError::Stopped`](crate::error::WriteError::Stopped).
    pub fn stop(&mut self, code: u32) {
        match &mut self.stream {
            // Fails only if the stream has already ended.
            StreamSource::Quic(stream) => drop(stream.stop(code.into())),
            #[cfg(feature = "testing")]
            StreamSource::Simulated(outlet) => outlet.stop(code),
        }
    }

    fn fail(&mut self, error: ReadError) -> ReadError {
        if matches!(error, ReadError::Frame(_)) {
            self.stop(MALFORMED_CODE);
        }
        self.failed = Some(error.clone());
        error
    }
}

/// Stop code for a malformed frame, or one that exceeds the limit.
const MALFORMED_CODE: u32 = 1;
