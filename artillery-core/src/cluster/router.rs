//! Hands what the endpoint receives to the membership, or to the service of the application.

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
    transport::{IncomingStream, PeerInfo, Service, StreamKind},
};

/// The endpoint's service.
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

    /// Drops the service.
    pub(super) fn retire(&self) {
        *self.service.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn service(&self) -> Option<Arc<dyn Service>> {
        self.service.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An input that finds the queue full is lost, as a packet on the way may be. Later packets of
    /// SWIM say it again. A node that is no active member is dialled again: a seed soon, another one when it is next
    /// announced.
    fn enqueue(&self, input: MembershipInput) {
        if self.inputs.try_send(input).is_err() {
            tracing::debug!("the membership is too busy, or has stopped");
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
        // A node that lists itself as a seed is harmless: no warning.
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
