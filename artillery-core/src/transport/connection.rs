//! A connection that this node dialled, or that an [`IncomingStream`](super::IncomingStream) came by.

use std::sync::Arc;

use bytes::Bytes;

use super::{FrameReader, FrameWriter, PeerInfo};
use crate::error::{CloseReason, DatagramError, WriteError};

/// What a stream is for. Below 16 for this crate, the others for what is built on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKind(pub u8);

impl StreamKind {
    /// The first stream of a connection: who is there?
    pub const HELLO: Self = Self(0);
    /// The first kind that is free for what is built on this crate.
    pub const FIRST_FREE: Self = Self(16);
}

/// Why a side closes a connection, as a number. Numbers below 16 belong to this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(pub u32);

impl CloseCode {
    /// It is not needed any more.
    pub const DONE: Self = Self(0);
    /// The endpoint is shut down.
    pub const SHUTDOWN: Self = Self(1);
    /// Refused in the hello.
    pub const REFUSED: Self = Self(2);
    /// The peer broke the rules.
    pub const VIOLATION: Self = Self(3);
    /// A newer connection or process takes its place.
    pub const REPLACED: Self = Self(4);
}

/// A connection whose both ends know and accept each other. Clones are the same connection, which is closed when the
/// last of them is dropped.
#[derive(Debug, Clone)]
pub struct Connection {
    peer: Arc<PeerInfo>,
}

impl Connection {
    /// Who is at the other end.
    pub fn peer(&self) -> &Arc<PeerInfo> {
        &self.peer
    }

    /// Opens a stream to the peer. Of several streams with data to send, those of higher `priority` go first.
    ///
    /// Only the side that dialled may open streams.
    ///
    /// # Errors
    /// [`WriteError::Lost`].
    pub async fn open_uni(&self, kind: StreamKind, priority: i32) -> Result<FrameWriter, WriteError> {
        let _ = (kind, priority);
        todo!()
    }

    /// Opens a stream with a way back.
    ///
    /// # Errors
    /// [`WriteError::Lost`].
    pub async fn open_bi(&self, kind: StreamKind, priority: i32) -> Result<(FrameWriter, FrameReader), WriteError> {
        let _ = (kind, priority);
        todo!()
    }

    /// Sends a datagram, which may be lost. It never waits: older unsent datagrams are dropped for it.
    ///
    /// # Errors
    /// [`DatagramError`]; what does not fit is counted.
    pub fn send_datagram(&self, payload: Bytes) -> Result<(), DatagramError> {
        let _ = payload;
        todo!()
    }

    /// Bytes that fit into a datagram now, `None` while the peer takes none.
    pub fn max_datagram(&self) -> Option<usize> {
        todo!()
    }

    /// Waits until the connection is gone.
    pub async fn closed(&self) -> CloseReason {
        todo!()
    }

    /// Why the connection is gone, `None` while it lives.
    pub fn close_reason(&self) -> Option<CloseReason> {
        todo!()
    }

    /// Closes it at once; what was not sent yet is lost.
    pub fn close(&self, code: CloseCode, reason: &str) {
        let _ = (code, reason);
        todo!()
    }
}
