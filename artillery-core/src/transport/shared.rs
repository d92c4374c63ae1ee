//! The state shared by all tasks of an endpoint.

#[cfg(feature = "testing")]
use std::{
    collections::BTreeMap,
    sync::{Mutex, Weak},
};
use std::{net::SocketAddr, sync::Arc};

use rand::RngExt;
use tokio::{
    runtime,
    sync::{Semaphore, watch},
    time::Instant,
};

#[cfg(feature = "testing")]
use super::medium::SimulatedPort;
use super::{
    CloseCode, Connection, ForeignPeer, LocalInfo, PeerInfo, Service, connection,
    counters::{CounterCells, RefusalCounters},
    hello::{Formation, Hello},
    link::Links,
    registry::Registry,
    security::Security,
    twins::{NameClaim, Twins},
};
use crate::{
    config::TransportConfig,
    error::Refusal,
    id::{ClusterId, MemberId},
};

#[cfg(feature = "testing")]
pub(super) type Listeners = Mutex<BTreeMap<SocketAddr, Weak<EndpointShared>>>;

pub(super) struct EndpointShared {
    pub(super) carrier: EndpointCarrier,
    pub(super) config: TransportConfig,
    pub(super) local: LocalInfo,
    pub(super) service: Arc<dyn Service>,
    pub(super) counters: Arc<CounterCells>,
    pub(super) refused: RefusalCounters,
    pub(super) registry: Registry,
    pub(super) links: Links,
    pub(super) twins: Twins,
    pub(super) handshakes: Arc<Semaphore>,
    pub(super) connections: Arc<Semaphore>,
    pub(super) id: MemberId,
    /// The runtime in which the endpoint was bound. Links run there, whichever runtime requests them.
    pub(super) runtime: runtime::Handle,
    pub(super) local_addr: SocketAddr,
    /// The advertised addresses. At least one.
    pub(super) advertised: watch::Sender<Vec<SocketAddr>>,
    /// The unspecified address to state in hellos, if peers should use the source address of this endpoint's packets.
    unspecified: Option<SocketAddr>,
}

pub(super) enum EndpointCarrier {
    /// QUIC on a socket, and the identity used to dial.
    Quic(quinn::Endpoint, Security),
    /// A port on a simulated network, and all endpoints of that network.
    #[cfg(feature = "testing")]
    Simulated(SimulatedPort, Arc<Listeners>),
}

impl EndpointCarrier {
    pub(super) fn close(&self, code: CloseCode) {
        match self {
            Self::Quic(quinn, _) => quinn.close(code.0.into(), b""),
            #[cfg(feature = "testing")]
            Self::Simulated(port, _) => port.close(code),
        }
    }

    /// A random number in `[0, 1)`. It shortens pauses, so that nodes do not dial simultaneously.
    pub(super) fn chance(&self) -> f64 {
        match self {
            #[allow(clippy::disallowed_methods, reason = "nodes that dial in step would stay in step")]
            Self::Quic(..) => rand::rng().random(),
            #[cfg(feature = "testing")]
            Self::Simulated(port, _) => port.chance(),
        }
    }
}

impl EndpointShared {
    /// Creates an endpoint without connections. Must be called within a tokio runtime.
    pub(super) fn new(
        carrier: EndpointCarrier,
        config: TransportConfig,
        local: LocalInfo,
        service: Arc<dyn Service>,
        counters: Arc<CounterCells>,
        id: MemberId,
        local_addr: SocketAddr,
    ) -> Arc<Self> {
        let advertised = match config.advertise {
            Some(addr) if addr.port() == 0 => (addr.ip(), local_addr.port()).into(),
            addr => addr.unwrap_or(local_addr),
        };
        Arc::new(Self {
            carrier,
            service,
            counters,
            refused: RefusalCounters::default(),
            registry: Registry::new(local.cluster_id),
            links: Links::default(),
            twins: Twins::new(),
            handshakes: Arc::new(Semaphore::new(config.max_handshakes as usize)),
            connections: Arc::new(Semaphore::new(config.max_connections as usize)),
            id,
            runtime: runtime::Handle::current(),
            local_addr,
            advertised: watch::Sender::new(vec![advertised]),
            unspecified: Some(advertised).filter(|addr| addr.ip().is_unspecified()),
            config,
            local,
        })
    }

    pub(super) fn hello(&self) -> Hello {
        Hello {
            cluster: self.local.cluster.clone(),
            cluster_id: self.registry.cluster_id(),
            member: self.id,
            kind: self.local.kind,
            addr: self.unspecified.unwrap_or_else(|| self.advertised()),
        }
    }

    pub(super) fn advertised(&self) -> SocketAddr {
        self.advertised.borrow().first().copied().unwrap_or(self.local_addr)
    }

    /// Notifies the service of a peer of another formation: `gave_way` or `succeeded` if the peer states this about
    /// this node's formation, otherwise `met_foreign`, unless that formation is a predecessor of this one or has given
    /// way to it.
    pub(super) fn met_foreign(&self, name: &str, addr: SocketAddr, cluster: ClusterId, states: &Formation) {
        let Some(mine) = self.registry.cluster_id().filter(|mine| *mine != cluster) else { return };
        let formation = self.registry.formation();
        if states.gave_way.contains(&mine) {
            self.service.gave_way(cluster);
        } else if states.succeeds.contains(&mine) {
            self.service.succeeded(cluster);
        } else if !formation.succeeds.contains(&cluster) && !formation.gave_way.contains(&cluster) {
            let Formation { holds_data, is_led, .. } = *states;
            self.service.met_foreign(ForeignPeer { cluster, holds_data, is_led, name: name.to_owned(), addr });
        }
    }

    pub(super) fn connection(
        &self,
        carrier: impl Into<connection::ConnectionCarrier>,
        peer: Arc<PeerInfo>,
    ) -> Connection {
        Connection::new(carrier.into(), peer, self.config.max_frame_bytes, Arc::clone(&self.counters))
    }

    pub(super) fn refused(&self, addr: SocketAddr, reason: &Refusal) {
        self.counters.refused.add(1);
        self.refused.add(reason);
        tracing::debug!(%addr, %reason, "refused a peer");
        self.service.refused(addr, reason);
    }

    fn name_claim(&self) -> NameClaim {
        self.twins.claim(self.registry.cluster_id().is_some(), self.registry.oldest_with_node())
    }

    /// Records and reports that this endpoint refused a peer, if the peer has this node's name.
    pub(super) fn on_twin(&self, refusal: &Refusal, peer: MemberId, addr: SocketAddr) {
        if matches!(refusal, Refusal::Itself(_)) && peer != self.id {
            self.twins.on_refused(peer);
            if self.twins.should_warn(Instant::now()) {
                tracing::warn!(%addr, other = %peer, "another process uses this node's name: give each node its own name");
            }
        }
    }

    /// Handles a peer's refusal of this endpoint. Notifies the service if the refusal proves that the name is taken and
    /// this process must stop.
    pub(super) fn on_refusal(&self, refusal: &Refusal) {
        let (by, yields) = match refusal {
            Refusal::NameTaken { by } => (*by, self.name_claim().yields_to_peer()),
            Refusal::Itself(by) if *by != self.id && !self.twins.has_refused(*by) => {
                (*by, self.name_claim().yields_to_twin())
            }
            _ => return,
        };
        if yields {
            self.service.name_taken(by);
        } else {
            tracing::warn!(other = ?by, "another process uses this node's name: stop that process");
        }
    }

    /// How often this endpoint's identity was replaced. Read it before a handshake, for [`trusts`](Self::trusts).
    pub(super) fn identity_changes(&self) -> u64 {
        match &self.carrier {
            EndpointCarrier::Quic(_, security) => security.changes(),
            #[cfg(feature = "testing")]
            EndpointCarrier::Simulated(..) => 0,
        }
    }

    /// Whether the peer of a connection is still trusted. The handshake has verified that, unless the identity was
    /// replaced since `changes_before` was read.
    ///
    /// Call this after the connection was registered. Then either this call sees the new identity, or
    /// [`Endpoint::set_identity`](super::Endpoint::set_identity) sees the connection.
    pub(super) fn trusts(&self, connection: &Connection, changes_before: u64) -> bool {
        match &self.carrier {
            EndpointCarrier::Quic(_, security) => {
                security.changes() == changes_before || connection.is_trusted_by(&security.identity())
            }
            #[cfg(feature = "testing")]
            EndpointCarrier::Simulated(..) => true,
        }
    }
}
