//! Accepts the streams of peers.

use std::sync::Arc;

use artillery_core::{
    ClusterId, MemberId,
    transport::{ForeignPeer, IncomingStream, PeerInfo, Service},
};
use artillery_proto::node::NodeInput;
use tokio::sync::mpsc;

use crate::{
    control::formation::FormationMessage,
    driver::{
        control::{self, ControlCommand, ControlEndpoint},
        receive::{self, ChainInlets},
        serve::Server,
    },
    wire::streams,
};

/// The parts of a node that serve streams. They exist only in some of the node's states.
pub(crate) trait Entrances: Send + Sync {
    /// `None` before the node has started: requests are dropped.
    fn server(&self) -> Option<Arc<Server>>;

    /// `None` before the node follows a configuration log: calls get no answer.
    fn control(&self) -> Option<Arc<ControlEndpoint>>;
}

pub(crate) struct DataService {
    pub(crate) chains: Arc<ChainInlets>,
    /// Must not keep the node alive: the endpoint holds this service.
    pub(crate) entrances: Box<dyn Entrances>,
    pub(crate) formation: mpsc::Sender<(MemberId, FormationMessage)>,
    /// Nodes of other clusters of the same name.
    pub(crate) meetings: mpsc::Sender<ForeignPeer>,
}

impl DataService {
    /// With a full queue the notice is dropped: the next contact with that cluster repeats it.
    fn notify(&self, notice: NodeInput) {
        if let Some(control) = self.entrances.control() {
            drop(control.commands.try_send(ControlCommand::Input(notice)));
        }
    }
}

impl Service for DataService {
    fn stream(&self, peer: &Arc<PeerInfo>, stream: IncomingStream) {
        let is_node = peer.kind.is_node();
        match stream.kind.0 {
            streams::CHAIN_CONTROL | streams::CHAIN_UPDATES | streams::CHAIN_SNAPSHOTS if is_node => {
                tokio::spawn(receive::chain_stream(peer.id, stream, self.chains.clone()));
            }
            streams::FORMATION if is_node => {
                tokio::spawn(receive::formation_stream(peer.id, stream, self.formation.clone()));
            }
            streams::CONTROL if is_node => {
                if let Some(control) = self.entrances.control() {
                    let from = peer.id;
                    tokio::spawn(async move { control::serve(from, stream, &control).await });
                }
            }
            streams::REQUESTS => {
                if let Some(server) = self.entrances.server() {
                    tokio::spawn(server.serve(stream));
                }
            }
            // Dropping the stream shows the peer that its kind is unknown here, or isn't for clients.
            kind => tracing::debug!(peer = %peer.id, kind, "a stream of an unknown kind"),
        }
    }

    fn succeeded(&self, by: ClusterId) {
        self.notify(NodeInput::Succeeded { by });
    }

    fn gave_way(&self, by: ClusterId) {
        self.notify(NodeInput::GaveWay { by });
    }

    fn met_foreign(&self, peer: ForeignPeer) {
        // With a full queue the meeting is dropped: the next contact repeats it.
        drop(self.meetings.try_send(peer));
    }
}
