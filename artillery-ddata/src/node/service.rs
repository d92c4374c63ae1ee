//! Takes in what peers open: streams of chains, of formation, and of requests.

use std::sync::{Arc, OnceLock};

use artillery_core::{
    MemberId,
    transport::{IncomingStream, PeerInfo, PeerKind, Service},
};
use tokio::sync::mpsc;

use crate::{
    client::router::Router,
    control::formation::FormationMessage,
    driver::{
        local::Local,
        receive::{self, Chains},
        serve,
    },
    wire::streams,
};

pub(super) struct DataService {
    pub(super) local: Arc<Local>,
    pub(super) chains: Arc<Chains>,
    /// Set once the node has started; requests that come before are not taken.
    pub(super) router: Arc<OnceLock<Arc<Router>>>,
    pub(super) formation: mpsc::Sender<(MemberId, FormationMessage)>,
    pub(super) max_value: usize,
}

impl Service for DataService {
    fn stream(&self, peer: &Arc<PeerInfo>, stream: IncomingStream) {
        let is_node = peer.kind == PeerKind::Node;
        match stream.kind.0 {
            streams::CHAIN_CONTROL | streams::CHAIN_UPDATES if is_node => {
                tokio::spawn(receive::chain_stream(peer.id, stream, self.chains.clone()));
            }
            streams::FORMATION if is_node => {
                tokio::spawn(receive::formation_stream(peer.id, stream, self.formation.clone()));
            }
            streams::REQUESTS => {
                if let Some(router) = self.router.get() {
                    tokio::spawn(serve::serve(stream, self.local.clone(), router.clone(), self.max_value));
                }
            }
            // Dropping it tells the peer that nobody here knows what it wants.
            kind => tracing::debug!(peer = %peer.id, kind, "a stream of an unknown kind"),
        }
    }
}
