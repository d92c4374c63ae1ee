//! Writes and reads bodies: pieces, one after the other.

use std::ops::Range;

use bytes::Bytes;

use super::{DecodeError, EncodeError, EncodedBody};
use crate::types::keep::keep;

/// Pieces of a body, in order; they are shared, not copied.
#[derive(Default)]
pub(super) struct BodyWriter(EncodedBody);

impl BodyWriter {
    /// Appends a piece and returns its length, for the header.
    pub(super) fn add(&mut self, piece: &Bytes) -> Result<u32, EncodeError> {
        let len = u32::try_from(piece.len()).map_err(|_| EncodeError::TooLong(piece.len() as u64))?;
        if len > 0 {
            self.0.push(piece.clone());
        }
        Ok(len)
    }

    pub(super) fn add_some(&mut self, piece: Option<&Bytes>) -> Result<Option<u32>, EncodeError> {
        piece.map(|piece| self.add(piece)).transpose()
    }

    pub(super) fn len(&self) -> u64 {
        self.0.iter().map(|piece| piece.len() as u64).sum()
    }

    pub(super) fn into_pieces(self) -> EncodedBody {
        self.0
    }
}

/// Splits a received body. A piece beyond its end is empty; [`Taker::end`] then fails.
pub(super) struct Taker<'a> {
    body: &'a Bytes,
    at: u64,
}

impl<'a> Taker<'a> {
    pub(super) fn new(body: &'a Bytes) -> Self {
        Self { body, at: 0 }
    }

    fn next(&mut self, len: u32) -> Range<usize> {
        let start = self.at;
        self.at += u64::from(len);
        if self.at > self.body.len() as u64 { 0..0 } else { start as usize..self.at as usize }
    }

    /// A piece that is needed only while the message is processed: a slice of the body.
    pub(super) fn borrow(&mut self, len: u32) -> Bytes {
        let at = self.next(len);
        self.body.slice(at)
    }

    /// A piece that may be kept for a long time.
    pub(super) fn take(&mut self, len: u32) -> Bytes {
        self.pair(0, len).1
    }

    /// A key and the value after it, which may be kept for a long time.
    pub(super) fn pair(&mut self, key: u32, value: u32) -> (Bytes, Bytes) {
        let (key, value) = (self.next(key), self.next(value));
        if value.end < key.end {
            return (Bytes::new(), Bytes::new());
        }
        keep(self.body, key.start.min(value.start)..value.end, value.start)
    }

    /// Checks that the pieces make up the whole body.
    pub(super) fn end(self) -> Result<(), DecodeError> {
        let (stated, actual) = (self.at, self.body.len() as u64);
        if stated == actual { Ok(()) } else { Err(DecodeError::BodyLength { stated, actual }) }
    }
}
