use bytes::{Bytes, BytesMut};

use crate::frame::{PREFIX, prefix};

/// Pieces of up to this size are copied next to each other, which is cheaper than passing each on separately.
const MAX_GATHERED_BYTES: usize = 1024;

/// Frames to be written together. Small pieces are gathered, large ones (values) are passed on without a copy.
#[derive(Debug, Default)]
pub struct FrameBatch {
    chunks: Vec<Bytes>,
    gathered: BytesMut,
    frames: usize,
    bytes: usize,
    largest: usize,
}

impl FrameBatch {
    /// Creates an empty batch. Reuse it to reuse its memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a frame with an encoded `header` and the pieces of its body. The receiver rejects a header of more than
    /// 1 MiB.
    pub fn push(&mut self, header: &[u8], body: &[Bytes]) {
        let body_len = body.iter().map(Bytes::len).sum();
        self.frames += 1;
        self.bytes += PREFIX + header.len() + body_len;
        self.largest = self.largest.max(header.len() + body_len);
        if header.len() + body_len + 4 > u32::MAX as usize {
            // The length does not fit into a prefix. `largest` ensures that the batch is never written.
            return;
        }
        self.gathered.extend_from_slice(&prefix(header.len(), body_len));
        self.gathered.extend_from_slice(header);
        for piece in body {
            if piece.len() <= MAX_GATHERED_BYTES {
                self.gathered.extend_from_slice(piece);
            } else {
                self.chunks().push(piece.clone());
            }
        }
    }

    /// The number of frames in the batch.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// The size of the batch on the wire, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the batch contains no frame.
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    pub(super) fn largest(&self) -> usize {
        self.largest
    }

    /// All chunks, in order. Call [`FrameBatch::clear`] after the last one was written.
    pub(super) fn chunks(&mut self) -> &mut Vec<Bytes> {
        if !self.gathered.is_empty() {
            self.chunks.push(self.gathered.split().freeze());
        }
        &mut self.chunks
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.gathered.clear();
        (self.frames, self.bytes, self.largest) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Frame, FrameDecoder};

    #[test]
    fn values_are_not_copied_and_small_frames_are_one_chunk() {
        let value = Bytes::from(vec![7; MAX_GATHERED_BYTES + 1]);
        let mut batch = FrameBatch::new();
        for _ in 0..10 {
            batch.push(b"small", &[Bytes::from_static(b"key")]);
        }
        batch.push(b"large", std::slice::from_ref(&value));
        let chunks = batch.chunks();
        assert_eq!(chunks.len(), 2);
        assert_eq!(chunks[1].as_ptr(), value.as_ptr());
    }

    proptest! {
        #[test]
        fn pushed_frames_are_decoded(frames in prop::collection::vec((0usize..20, prop::collection::vec(0usize..3000, 0..4)), 0..8)) {
            let mut batch = FrameBatch::new();
            let mut expected = Vec::new();
            for (header, body) in &frames {
                let header = vec![1; *header];
                let body: Vec<Bytes> = body.iter().map(|len| vec![2; *len].into()).collect();
                batch.push(&header, &body);
                expected.push(Frame { header: header.into(), body: body.concat().into() });
            }
            prop_assert_eq!(batch.frames(), expected.len());
            prop_assert_eq!(batch.bytes(), expected.iter().map(Frame::wire_len).sum::<usize>());
            let mut decoder = FrameDecoder::new(1 << 20);
            batch.chunks().iter().for_each(|chunk| decoder.push(chunk));
            let mut seen = Vec::new();
            while let Some(frame) = decoder.next_frame().unwrap() {
                seen.push(frame);
            }
            prop_assert_eq!(seen, expected);
            batch.clear();
            prop_assert!(batch.is_empty() && batch.chunks().is_empty());
        }
    }
}
