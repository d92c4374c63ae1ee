//! Accepts peers' streams: of chains, of formation, and of requests.

use std::sync::{Arc, OnceLock};

use artillery_core::{
    ClusterId, MemberId,
    transport::{ForeignPeer, IncomingStream, PeerInfo, Service},
};
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

pub(crate) struct DataService {
    pub(crate) chains: Arc<ChainInlets>,
    /// Set once the node has started; earlier requests are dropped.
    pub(crate) server: Arc<OnceLock<Arc<Server>>>,
    pub(crate) formation: mpsc::Sender<(MemberId, FormationMessage)>,
    /// Set once the node belongs to a cluster with a changeable configuration; earlier calls get no answer.
    pub(crate) control: Arc<OnceLock<Arc<ControlEndpoint>>>,
    /// Nodes of other clusters of the same name.
    pub(crate) meetings: mpsc::Sender<ForeignPeer>,
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
                if let Some(door) = self.control.get() {
                    let (door, from) = (door.clone(), peer.id);
                    tokio::spawn(async move { control::serve(from, stream, &door).await });
                }
            }
            streams::REQUESTS => {
                if let Some(server) = self.server.get() {
                    tokio::spawn(server.clone().serve(stream));
                }
            }
            // Dropping the stream tells the peer that its kind is unknown here.
            kind => tracing::debug!(peer = %peer.id, kind, "a stream of an unknown kind"),
        }
    }

    fn succeeded(&self, by: ClusterId) {
        if let Some(door) = self.control.get() {
            // Without room this is dropped: the next contact with that cluster reports it again.
            drop(door.commands.try_send(ControlCommand::Succeeded { by }));
        }
    }

    fn gave_way(&self, by: ClusterId) {
        if let Some(door) = self.control.get() {
            // Without capacity this is dropped: the next contact reports it again.
            drop(door.commands.try_send(ControlCommand::GaveWay { by }));
        }
    }

    fn met_foreign(&self, peer: ForeignPeer) {
        // With a full queue this is dropped: the next contact reports it again.
        drop(self.meetings.try_send(peer));
    }
}
