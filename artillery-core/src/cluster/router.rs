//! Routes calls of the endpoint to the membership, to the application's service, or to both.

use std::{
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

use super::{driver::MembershipInput, record::DiscoveryRecord};
use crate::{
    error::{CloseReason, ConnectError, Refusal},
    id::{ClusterId, MemberId},
    transport::{ForeignPeer, IncomingStream, PeerInfo, Service, StreamKind},
};

pub(super) struct ServiceRouter {
    inputs: mpsc::Sender<MembershipInput>,
    service: RwLock<Option<Arc<dyn Service>>>,
    record: Arc<DiscoveryRecord>,
}

impl ServiceRouter {
    pub(super) fn new(
        inputs: mpsc::Sender<MembershipInput>,
        service: Option<Arc<dyn Service>>,
        record: Arc<DiscoveryRecord>,
    ) -> Self {
        Self { inputs, service: RwLock::new(service), record }
    }

    pub(super) fn serve(&self, service: Arc<dyn Service>) {
        *self.service.write().unwrap_or_else(PoisonError::into_inner) = Some(service);
    }

    pub(super) fn retire(&self) {
        *self.service.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn service(&self) -> Option<Arc<dyn Service>> {
        self.service.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops the input if the queue is full or closed, like a packet lost in transit.
    fn enqueue(&self, input: MembershipInput) {
        if self.inputs.try_send(input).is_err() {
            tracing::debug!("dropping an input: the membership queue is full or closed");
        }
    }

    fn on_met(&self, peer: &Arc<PeerInfo>) {
        if peer.kind.is_node() {
            self.enqueue(MembershipInput::Met(Arc::clone(peer)));
        }
    }
}

impl Service for ServiceRouter {
    fn admit(&self, peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        if let Some(service) = self.service() {
            service.admit(peer)?;
        }
        self.on_met(peer);
        Ok(())
    }

    fn reached(&self, peer: &Arc<PeerInfo>) {
        self.on_met(peer);
        if let Some(service) = self.service() {
            service.reached(peer);
        }
    }

    fn stream(&self, peer: &Arc<PeerInfo>, stream: IncomingStream) {
        if stream.kind == StreamKind::MEMBERSHIP {
            let (inputs, from) = (self.inputs.clone(), peer.id);
            tokio::spawn(async move {
                let mut reader = stream.reader;
                while let Ok(Some(frame)) = reader.next().await {
                    if inputs.send(MembershipInput::Packet(from, frame.header)).await.is_err() {
                        return;
                    }
                }
            });
        } else if let Some(service) = self.service() {
            service.stream(peer, stream);
        }
    }

    fn datagram(&self, peer: &Arc<PeerInfo>, payload: Bytes) {
        let mut packet = payload.clone();
        if packet.first() == Some(&StreamKind::MEMBERSHIP.0) {
            packet.advance(1);
            self.enqueue(MembershipInput::Packet(peer.id, packet));
        } else if let Some(service) = self.service() {
            service.datagram(peer, payload);
        }
    }

    fn joined_cluster(&self, peer: &Arc<PeerInfo>, id: ClusterId) {
        if let Some(service) = self.service() {
            service.joined_cluster(peer, id);
        }
    }

    fn succeeded(&self, by: ClusterId) {
        if let Some(service) = self.service() {
            service.succeeded(by);
        }
    }

    fn gave_way(&self, by: ClusterId) {
        if let Some(service) = self.service() {
            service.gave_way(by);
        }
    }

    fn met_foreign(&self, peer: ForeignPeer) {
        if let Some(service) = self.service() {
            service.met_foreign(peer);
        }
    }

    fn name_taken(&self, by: MemberId) {
        self.record.set_name_taken(by);
        if let Some(service) = self.service() {
            service.name_taken(by);
        }
    }

    fn refused(&self, addr: SocketAddr, reason: &Refusal) {
        if !matches!(reason, Refusal::Itself(_)) {
            self.record.set_refused(addr, ConnectError::Rejected(reason.clone()));
        }
        // A node that lists itself as a seed is harmless.
        if !matches!(reason, Refusal::Itself(_)) && self.record.should_warn(addr) {
            tracing::warn!(%addr, %reason, "refused a peer");
        }
        if let Some(service) = self.service() {
            service.refused(addr, reason);
        }
    }

    fn disconnected(&self, peer: &Arc<PeerInfo>, reason: &CloseReason) {
        if let Some(service) = self.service() {
            service.disconnected(peer, reason);
        }
    }
}
