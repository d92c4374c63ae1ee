use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;

use super::{Connection, ForeignPeer, FrameReader, FrameWriter, PeerInfo, StreamKind};
use crate::{
    error::{CloseReason, Refusal},
    id::{ClusterId, MemberId},
};

/// A stream opened by a peer.
#[derive(Debug)]
#[non_exhaustive]
pub struct IncomingStream {
    /// The purpose that the opener stated.
    pub kind: StreamKind,
    /// Receives the peer's frames.
    pub reader: FrameReader,
    /// Sends answers, if the stream is bidirectional.
    pub writer: Option<FrameWriter>,
    /// The connection of the stream. Close it if the peer violates the protocol.
    pub connection: Connection,
}

/// The receiving side of an endpoint. The endpoint's tasks call it, so its methods must not block or take long.
pub trait Service: Send + Sync + 'static {
    /// Decides whether to accept a peer that dialled and passed the checks of the hello. If the reply to an admitted
    /// peer can't be sent, [`disconnected`](Self::disconnected) is not called.
    ///
    /// # Errors
    /// The reason, which is sent to the peer.
    fn admit(&self, peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        let _ = peer;
        Ok(())
    }

    /// A dialled peer has accepted this node, and this node the peer.
    fn reached(&self, peer: &Arc<PeerInfo>) {
        let _ = peer;
    }

    /// A peer opened a stream. Spawn a task that reads it. Dropping the stream stops it and thereby notifies the peer.
    fn stream(&self, peer: &Arc<PeerInfo>, stream: IncomingStream);

    /// A non-empty datagram was received.
    fn datagram(&self, peer: &Arc<PeerInfo>, payload: Bytes) {
        let _ = (peer, payload);
    }

    /// A peer that dialled before it belonged to a formation has joined `id`. This node belongs to the same formation
    /// or to none.
    fn joined_cluster(&self, peer: &Arc<PeerInfo>, id: ClusterId) {
        let _ = (peer, id);
    }

    /// A peer's formation succeeds this node's, which an operator has retired. The peer is refused as well.
    fn succeeded(&self, by: ClusterId) {
        let _ = by;
    }

    /// A peer of another formation, `by`, states that this node's formation has given way to it.
    fn gave_way(&self, by: ClusterId) {
        let _ = by;
    }

    /// This node met a node of another formation, with this cluster's name and a trusted certificate, and neither
    /// formation succeeds the other or has given way to it. The nodes refuse each other. Called at each contact, on
    /// both sides.
    fn met_foreign(&self, peer: ForeignPeer) {
        let _ = peer;
    }

    /// Another process with this node's name, `by`, is running, and a peer or that process itself has refused this
    /// process. Stop this process. Not called for a refusal by a peer if this process has an open connection to another
    /// node that is at least 10 s old. Not called for a refusal by `by` if this process has refused `by`, or belongs to
    /// a formation and has been up for at least 10 s. In these cases `by` must stop.
    fn name_taken(&self, by: MemberId) {
        let _ = by;
    }

    /// A peer that dialled was refused or failed to complete the handshake and hello, or a connection was closed
    /// because its sides now belong to different formations.
    fn refused(&self, addr: SocketAddr, reason: &Refusal) {
        let _ = (addr, reason);
    }

    /// A connection that a peer dialled and that was accepted was closed.
    fn disconnected(&self, peer: &Arc<PeerInfo>, reason: &CloseReason) {
        let _ = (peer, reason);
    }
}
