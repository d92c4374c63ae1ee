//! What an endpoint calls when something arrives.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;

use super::{Connection, FrameReader, FrameWriter, PeerInfo, StreamKind};
use crate::{
    error::{CloseReason, Refusal},
    id::ClusterId,
};

/// A stream that a peer opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct IncomingStream {
    /// What the opener wants it for.
    pub kind: StreamKind,
    /// Its frames.
    pub reader: FrameReader,
    /// For answers, if the stream is bidirectional.
    pub writer: Option<FrameWriter>,
    /// The connection that it came by: to close it when the peer breaks the rules.
    pub connection: Connection,
}

/// The receiving side of an endpoint. Calls come from the endpoint's tasks: they must not block or take long.
pub trait Service: Send + Sync + 'static {
    /// Whether a peer that dialled and passed the checks of the hello may stay.
    ///
    /// # Errors
    /// The reason that it is told.
    fn admit(&self, peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        let _ = peer;
        Ok(())
    }

    /// A peer that was dialled has accepted this node.
    fn reached(&self, peer: &Arc<PeerInfo>) {
        let _ = peer;
    }

    /// A peer opened a stream. Spawn a task that reads it; dropping it tells the peer that it is not wanted.
    fn stream(&self, peer: &Arc<PeerInfo>, stream: IncomingStream);

    /// A datagram with some content came.
    fn datagram(&self, peer: &Arc<PeerInfo>, payload: Bytes) {
        let _ = (peer, payload);
    }

    /// A peer that had dialled before it belonged to a formation tells which one it has joined.
    fn joined_cluster(&self, peer: &Arc<PeerInfo>, id: ClusterId) {
        let _ = (peer, id);
    }

    /// A peer was met that belongs to another formation, which succeeds the one that this node belongs to: an operator has given
    /// that up. It is refused all the same.
    fn succeeded(&self, by: ClusterId) {
        let _ = by;
    }

    /// Somebody who dialled was refused, or a connection was closed since the peer turned out to be of another
    /// formation.
    fn refused(&self, addr: SocketAddr, reason: &Refusal) {
        let _ = (addr, reason);
    }

    /// A connection that a peer had dialled is gone.
    fn disconnected(&self, peer: &Arc<PeerInfo>, reason: &CloseReason) {
        let _ = (peer, reason);
    }
}
