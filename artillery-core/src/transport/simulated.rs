//! A simulated network within this process, for tests: without sockets, and with all delays drawn from a seed.
//!
//! Its endpoints and connections are those of the real transport, so code that uses their streams runs unchanged. Only
//! the layer below streams differs. As with QUIC, a stream loses nothing and keeps its order while its connection lasts:
//! a lost packet becomes a delay, and pieces in flight are lost when the connection breaks. A lost datagram stays lost. A
//! connection breaks at random, or if one of its directions was cut for the idle timeout.
//!
//! Streams are driven by tokio's timers. In a current-thread runtime with a paused clock, a run is a function of its
//! seed.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

pub use super::medium::Weather;
use super::{
    Endpoint, LocalInfo, Service,
    medium::{Medium, SimulatedPort},
    shared::{EndpointCarrier, EndpointShared, Listeners},
};
use crate::{
    config::TransportConfig,
    id::{MemberId, NodeId},
};

/// A simulated network. Clones share the network.
#[derive(Clone)]
pub struct Network {
    medium: Arc<Medium>,
    listeners: Arc<Listeners>,
    addresses: Arc<Mutex<BTreeMap<String, SocketAddr>>>,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("medium", &self.medium).finish_non_exhaustive()
    }
}

impl Network {
    /// Creates a network without endpoints.
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self { medium: Arc::new(Medium::new(seed, weather)), listeners: Arc::default(), addresses: Arc::default() }
    }

    /// Creates an endpoint with this name. It has an address of its own, or that of an earlier endpoint with the same
    /// name. Must be called within a tokio runtime.
    pub fn endpoint(&self, name: &str, local: LocalInfo, service: Arc<dyn Service>) -> Endpoint {
        self.endpoint_with(name, TransportConfig::default(), local, service)
    }

    /// Like [`endpoint`](Self::endpoint), with these settings. The addresses to listen on and to advertise are the
    /// network's.
    pub fn endpoint_with(
        &self,
        name: &str,
        config: TransportConfig,
        local: LocalInfo,
        service: Arc<dyn Service>,
    ) -> Endpoint {
        let id = MemberId { node: NodeId::from_name(name), incarnation: local.incarnation };
        let addr = self.address(name);
        let config = TransportConfig { listen: addr, advertise: None, ..config };
        let port = SimulatedPort::new(self.medium.clone(), name, id.node, addr);
        let carrier = EndpointCarrier::Simulated(port, self.listeners.clone());
        let shared = EndpointShared::new(carrier, config, local, service, Arc::default(), id, addr);
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.insert(addr, Arc::downgrade(&shared));
        Endpoint::simulated(shared)
    }

    /// The address of the endpoint with this name, which need not exist yet.
    pub fn address(&self, name: &str) -> SocketAddr {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let [high, low] = (addresses.len() as u16 + 1).to_be_bytes();
        let new = SocketAddr::from((Ipv4Addr::new(10, 0, high, low), 7400));
        *addresses.entry(name.to_owned()).or_insert(new)
    }

    /// Cuts the direction from one node to another. Pieces in flight wait.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.medium.change(|state| state.cut.insert((from, to)));
    }

    /// Undoes [`cut`](Self::cut).
    pub fn mend(&self, from: NodeId, to: NodeId) {
        self.medium.change(|state| state.cut.remove(&(from, to)));
    }

    /// Isolates a node in both directions. Pieces in flight wait.
    pub fn set_apart(&self, node: NodeId) {
        self.medium.change(|state| state.apart.insert(node));
    }

    /// Undoes [`set_apart`](Self::set_apart).
    pub fn rejoin(&self, node: NodeId) {
        self.medium.change(|state| state.apart.remove(&node));
    }

    /// Isolates a node in both directions, even after [`heal`](Self::heal).
    pub fn kill(&self, node: NodeId) {
        self.medium.change(|state| state.dead.insert(node));
    }

    /// Undoes [`kill`](Self::kill).
    pub fn revive(&self, node: NodeId) {
        self.medium.change(|state| state.dead.remove(&node));
    }

    /// Undoes all cuts, and reconnects all nodes that were set apart. Killed nodes stay isolated.
    pub fn heal(&self) {
        self.medium.change(|state| {
            state.cut.clear();
            state.apart.clear();
            true
        });
    }

    /// Whether no direction is cut, and no node is set apart. Killed nodes don't count.
    pub fn is_whole(&self) -> bool {
        self.medium.is_whole()
    }

    /// Changes the treatment of pieces sent from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.medium.change(|state| {
            state.weather = weather;
            false
        });
    }

    /// A random number in `[0, 1)`, derived from the network's seed.
    pub fn chance(&self) -> f64 {
        self.medium.chance()
    }
}
