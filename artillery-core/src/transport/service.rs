//! What an endpoint calls when something arrives.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;

use super::{Connection, ForeignPeer, FrameReader, FrameWriter, PeerInfo, StreamKind};
use crate::{
    error::{CloseReason, Refusal},
    id::{ClusterId, MemberId},
};

/// A stream that a peer opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct IncomingStream {
    /// What the opener uses it for.
    pub kind: StreamKind,
    /// Its frames.
    pub reader: FrameReader,
    /// For answers, if the stream is bidirectional.
    pub writer: Option<FrameWriter>,
    /// The connection that brought it: close it if the peer breaks the rules.
    pub connection: Connection,
}

/// The receiving side of an endpoint. Calls come from the endpoint's tasks, so they must not block or take long.
pub trait Service: Send + Sync + 'static {
    /// Whether a peer that dialled and passed the checks of the hello may stay.
    ///
    /// # Errors
    /// The reason, which the peer is told.
    fn admit(&self, peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        let _ = peer;
        Ok(())
    }

    /// A peer that was dialled has accepted this node.
    fn reached(&self, peer: &Arc<PeerInfo>) {
        let _ = peer;
    }

    /// A peer opened a stream. Spawn a task that reads it. Dropping it tells the peer that it is not wanted.
    fn stream(&self, peer: &Arc<PeerInfo>, stream: IncomingStream);

    /// A datagram with content came.
    fn datagram(&self, peer: &Arc<PeerInfo>, payload: Bytes) {
        let _ = (peer, payload);
    }

    /// A peer that had dialled before it belonged to a formation tells which one it has joined.
    fn joined_cluster(&self, peer: &Arc<PeerInfo>, id: ClusterId) {
        let _ = (peer, id);
    }

    /// A peer was met whose formation succeeds this node's formation: an operator has given that up. The peer is
    /// refused as well.
    fn succeeded(&self, by: ClusterId) {
        let _ = by;
    }

    /// A peer of another formation, `by`, states that this node's formation has given way to it.
    fn gave_way(&self, by: ClusterId) {
        let _ = by;
    }

    /// A node of another formation was met, with this cluster's name and a certificate that is trusted here, and neither formation
    /// succeeds the other. Both nodes refuse each other. Called at each contact, on both sides.
    fn met_foreign(&self, peer: ForeignPeer) {
        let _ = peer;
    }

    /// Another process with this node's name is running, and peers refuse this one. `by` is that process.
    fn name_taken(&self, by: MemberId) {
        let _ = by;
    }

    /// A peer that dialled was refused, or a connection was closed since its peer joined another formation.
    fn refused(&self, addr: SocketAddr, reason: &Refusal) {
        let _ = (addr, reason);
    }

    /// A connection that a peer had dialled is gone.
    fn disconnected(&self, peer: &Arc<PeerInfo>, reason: &CloseReason) {
        let _ = (peer, reason);
    }
}
