//! Length-delimited frames: a small encoded header, followed by raw bytes.
//!
//! On the wire: number of following bytes (`u32`, little endian), header length (`u32`), header, body.

use bytes::{Buf, Bytes, BytesMut};

use crate::{codec::MAX_HEADER, error::FrameError};

/// Size of the two length fields that precede the header.
pub const PREFIX: usize = 8;

/// A received frame. Header and body share the memory into which the frame was received.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Frame {
    /// Describes the content, at most 1 MiB. Artillery stores encoded values here.
    pub header: Bytes,
    /// Raw bytes. The header describes the boundaries of their parts.
    pub body: Bytes,
}

impl Frame {
    /// Size of the frame on the wire, in bytes.
    pub fn wire_len(&self) -> usize {
        PREFIX + self.header.len() + self.body.len()
    }

    /// The whole frame as one buffer. It copies, so use it for tests and small frames.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.wire_len());
        out.extend_from_slice(&prefix(self.header.len(), self.body.len()));
        out.extend_from_slice(&self.header);
        out.extend_from_slice(&self.body);
        out.freeze()
    }
}

/// The first [`PREFIX`] bytes of a frame. `header + body` must be at most 4 GiB minus 5 bytes, far above the frame
/// limit of any peer.
pub fn prefix(header: usize, body: usize) -> [u8; PREFIX] {
    debug_assert!(header + body + 4 <= u32::MAX as usize);
    let mut out = [0; PREFIX];
    out[..4].copy_from_slice(&((header + body + 4) as u32).to_le_bytes());
    out[4..].copy_from_slice(&(header as u32).to_le_bytes());
    out
}

/// Reassembles frames from received bytes, wherever the bytes were split.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: BytesMut,
    limit: usize,
}

impl FrameDecoder {
    /// A decoder that rejects frames whose header and body together exceed `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// Appends received bytes. Memory grows with the received bytes, never with a claimed length.
    pub fn push(&mut self, received: &[u8]) {
        self.make_room(received.len());
        self.buffer.extend_from_slice(received);
    }

    /// Grows the buffer, up to the length of the next frame. A buffer that grows by itself could end up at twice that
    /// length, and a value that is retained from it would keep all of that memory.
    fn make_room(&mut self, more: usize) {
        let needed = self.buffer.len() + more;
        if needed > self.buffer.capacity()
            && let Ok(Some((len, _))) = self.lengths()
            && 4 + len > needed
        {
            let mut larger = BytesMut::with_capacity((4 + len).min(2 * needed));
            larger.extend_from_slice(&self.buffer);
            self.buffer = larger;
        }
    }

    /// The next complete frame, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`FrameError`] if the lengths are invalid. The stream is then unusable.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((len, header)) = self.lengths()? else { return Ok(None) };
        if self.buffer.len() < 4 + len {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let mut frame = self.buffer.split_to(len - 4).freeze();
        let header = frame.split_to(header);
        Ok(Some(Frame { header, body: frame }))
    }

    /// Size of header and body of the next frame, or `None` until its lengths have arrived.
    ///
    /// # Errors
    /// Like [`FrameDecoder::next_frame`].
    pub fn next_len(&self) -> Result<Option<usize>, FrameError> {
        Ok(self.lengths()?.map(|(len, _)| len - 4))
    }

    /// Checks that a stream has ended on a frame boundary.
    ///
    /// # Errors
    /// [`FrameError::Truncated`].
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let wanted = match self.lengths() {
            Ok(Some((len, _))) => 4 + len,
            _ => PREFIX,
        };
        Err(FrameError::Truncated { missing: wanted.saturating_sub(self.buffer.len()) as u64 })
    }

    fn lengths(&self) -> Result<Option<(usize, usize)>, FrameError> {
        let Some(prefix) = self.buffer.get(..PREFIX) else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]);
        let (len, header) = (word(0) as usize, word(4) as usize);
        if len.saturating_sub(4) > self.limit {
            return Err(FrameError::TooLarge { len: len as u64, limit: self.limit });
        }
        if len < 4 || header > len - 4 || header > MAX_HEADER {
            return Err(FrameError::BadHeaderLength { header: header as u64, len: len as u64 });
        }
        Ok(Some((len, header)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(header: &[u8], body: &[u8]) -> Frame {
        Frame { header: Bytes::copy_from_slice(header), body: Bytes::copy_from_slice(body) }
    }

    #[test]
    fn a_frame_cut_at_any_byte_is_reassembled() {
        let whole = frame(b"head", b"body").to_bytes();
        for cut in 0..whole.len() {
            let mut decoder = FrameDecoder::new(100);
            decoder.push(&whole[..cut]);
            assert_eq!(decoder.next_frame(), Ok(None), "cut at {cut}");
            assert_eq!(decoder.finish().is_err(), cut > 0, "cut at {cut}");
            decoder.push(&whole[cut..]);
            assert_eq!(decoder.next_frame(), Ok(Some(frame(b"head", b"body"))));
            assert_eq!(decoder.finish(), Ok(()));
        }
    }

    #[test]
    fn oversized_is_refused_before_it_arrives() {
        let mut decoder = FrameDecoder::new(7);
        decoder.push(&prefix(4, 4));
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLarge { len: 12, limit: 7 }));
    }

    #[test]
    fn header_longer_than_its_frame_is_refused() {
        let mut decoder = FrameDecoder::new(100);
        decoder.push(&[8, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(decoder.next_frame(), Err(FrameError::BadHeaderLength { header: 5, len: 8 }));
        let mut decoder = FrameDecoder::new(100);
        decoder.push(&[0; PREFIX]);
        assert!(decoder.next_frame().is_err());
    }

    proptest! {
        #[test]
        fn frames_survive_any_cuts(
            frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..9), prop::collection::vec(any::<u8>(), 0..50)), 0..6),
            step in 1usize..40,
        ) {
            let frames: Vec<_> = frames.iter().map(|(h, b)| frame(h, b)).collect();
            let wire: Vec<u8> = frames.iter().flat_map(|f| f.to_bytes().to_vec()).collect();
            let mut decoder = FrameDecoder::new(1000);
            let mut seen = Vec::new();
            for piece in wire.chunks(step) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push(frame);
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert_eq!(decoder.finish(), Ok(()));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let mut decoder = FrameDecoder::new(64);
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
            let _ = decoder.finish();
        }
    }
}
