//! Streams of frames.

use bytes::Bytes;

use crate::{
    error::{ReadError, WriteError},
    frame::Frame,
};

/// Frames to be written together: small pieces are gathered, large ones (values) are handed on without a copy.
#[derive(Debug, Default)]
pub struct FrameBatch {}

impl FrameBatch {
    /// An empty batch. Keep it: its memory is used again.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a frame with an encoded `header` and the pieces of its body.
    pub fn push(&mut self, header: &[u8], body: &[Bytes]) {
        let _ = (header, body);
        todo!()
    }

    /// Frames in it.
    pub fn frames(&self) -> usize {
        todo!()
    }

    /// Bytes in it.
    pub fn bytes(&self) -> usize {
        todo!()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.frames() == 0
    }
}

/// The sending end of a stream. Dropped without [`FrameWriter::finish`], the stream ends as if it was finished.
#[derive(Debug)]
pub struct FrameWriter {}

impl FrameWriter {
    /// Sends one frame: returns when QUIC has taken it, which waits while the windows are full.
    ///
    /// Not to be cancelled: half a frame may have been written. Drop the writer then.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn send(&mut self, header: &[u8], body: &[Bytes]) -> Result<(), WriteError> {
        let _ = (header, body);
        todo!()
    }

    /// Sends all frames of the batch in one write and leaves it empty. Not to be cancelled, as [`FrameWriter::send`].
    ///
    /// # Errors
    /// [`WriteError`]; a frame that is too large fails before anything of the batch is written.
    pub async fn send_all(&mut self, batch: &mut FrameBatch) -> Result<(), WriteError> {
        let _ = batch;
        todo!()
    }

    /// No frame follows. What was sent is still delivered.
    pub fn finish(&mut self) {
        todo!()
    }

    /// Gives the stream up: what was not delivered yet may never be.
    pub fn reset(&mut self, code: u32) {
        let _ = code;
        todo!()
    }

    /// Waits until the peer has everything after [`FrameWriter::finish`], or wants no more, or is gone.
    pub async fn stopped(&self) {
        todo!()
    }
}

/// The receiving end of a stream.
#[derive(Debug)]
pub struct FrameReader {}

impl FrameReader {
    /// The next frame, `None` when the stream was finished after a whole one. May be cancelled: nothing is lost.
    ///
    /// # Errors
    /// [`ReadError`]; the stream is then useless.
    pub async fn next(&mut self) -> Result<Option<Frame>, ReadError> {
        todo!()
    }

    /// The next frame, if it has been received already: after [`FrameReader::next`], take these as one batch.
    ///
    /// An error is kept for the next call of [`FrameReader::next`].
    pub fn next_ready(&mut self) -> Option<Frame> {
        todo!()
    }

    /// Tells the sender that nothing more of this stream is wanted.
    pub fn stop(&mut self, code: u32) {
        let _ = code;
        todo!()
    }
}
