//! The connections of an endpoint, and the formation on which their peers must agree.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Connection, PeerInfo, answered::Answered, connection::WeakConnection, hello, reach};
use crate::{
    error::Refusal,
    id::{ClusterId, MemberId, NodeId},
};

/// One lock guards connections and formation, so that a formation that becomes known during a hello is checked either
/// by the hello or by `set_cluster_id`.
#[derive(Debug)]
pub(super) struct Registry {
    state: Mutex<RegistryState>,
}

#[derive(Debug, Default)]
struct RegistryState {
    cluster_id: Option<ClusterId>,
    succeeds: Vec<ClusterId>,
    gave_way: Vec<ClusterId>,
    holds_data: bool,
    is_led: bool,
    next: u64,
    accepted: BTreeMap<u64, AcceptedConnection>,
    dialled: Vec<WeakConnection>,
    answered: Answered,
    /// Connections on a simulated network, dialled by either side.
    #[cfg(feature = "testing")]
    simulated: Vec<WeakConnection>,
}

#[derive(Debug)]
struct AcceptedConnection {
    connection: Connection,
    /// The peer's formation, from its hello or a later message.
    cluster_id: Option<ClusterId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

#[derive(Debug)]
pub(super) enum NotAdded {
    Refused(Refusal),
    /// Connections to other incarnations of the peer's node. Probe whether their processes are running, and close the
    /// connections to ended processes, before the next attempt.
    Namesakes(Vec<Connection>),
}

impl From<Refusal> for NotAdded {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

#[derive(Debug)]
pub(super) struct Consequences {
    pub(super) foreign: Vec<(Connection, Refusal)>,
    /// Connections dialled by this node. Their acceptors must be notified of the formation.
    pub(super) to_tell: Vec<Connection>,
}

impl Registry {
    pub(super) fn new(cluster_id: Option<ClusterId>) -> Self {
        Self { state: Mutex::new(RegistryState { cluster_id, ..RegistryState::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        // A poisoned lock is still consistent: no code that holds it can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cluster_id(&self) -> Option<ClusterId> {
        self.lock().cluster_id
    }

    pub(super) fn formation(&self) -> hello::Formation {
        let state = self.lock();
        hello::Formation {
            succeeds: state.succeeds.clone(),
            gave_way: state.gave_way.clone(),
            holds_data: state.holds_data,
            is_led: state.is_led,
        }
    }

    pub(super) fn set_gave_way(&self, line: Vec<ClusterId>) {
        self.lock().gave_way = line;
    }

    pub(super) fn set_led(&self, is_led: bool) {
        self.lock().is_led = is_led;
    }

    pub(super) fn set_holds_data(&self) {
        self.lock().holds_data = true;
    }

    pub(super) fn set_predecessors(&self, line: Vec<ClusterId>) {
        self.lock().succeeds = line;
    }

    pub(super) fn set_cluster_id(&self, id: ClusterId) -> Consequences {
        let mut state = self.lock();
        state.cluster_id = Some(id);
        let mut consequences = Consequences { foreign: Vec::new(), to_tell: Vec::new() };
        for accepted in state.accepted.values() {
            if let Err(refusal) = hello::check_cluster_id(Some(id), accepted.cluster_id) {
                consequences.foreign.push((accepted.connection.clone(), refusal));
            }
        }
        for connection in state.dialled.iter().filter_map(WeakConnection::upgrade) {
            match hello::check_cluster_id(Some(id), connection.peer().cluster_id) {
                Ok(()) => consequences.to_tell.push(connection),
                Err(refusal) => consequences.foreign.push((connection, refusal)),
            }
        }
        consequences
    }

    /// Adds a connection dialled by a peer, unless the formations differ, the peer's node already has `per_peer` such
    /// connections, or another incarnation of the node is connected.
    pub(super) fn add_accepted(&self, connection: &Connection, per_peer: u32) -> Result<Ticket, NotAdded> {
        let peer = connection.peer();
        let mut state = self.lock();
        hello::check_cluster_id(state.cluster_id, peer.cluster_id)?;
        let others = state.accepted.values().filter(|other| other.connection.peer().id.node == peer.id.node).count();
        if others >= per_peer as usize {
            return Err(Refusal::Busy.into());
        }
        state.check_namesakes(peer)?;
        let ticket = state.next;
        state.next += 1;
        state
            .accepted
            .insert(ticket, AcceptedConnection { connection: connection.clone(), cluster_id: peer.cluster_id });
        Ok(Ticket(ticket))
    }

    pub(super) fn remove(&self, ticket: Ticket) {
        self.lock().accepted.remove(&ticket.0);
    }

    pub(super) fn peer_joined(&self, ticket: Ticket, id: ClusterId) -> Result<(), Refusal> {
        let mut state = self.lock();
        hello::check_cluster_id(state.cluster_id, Some(id))?;
        if let Some(accepted) = state.accepted.get_mut(&ticket.0) {
            accepted.cluster_id = Some(id);
        }
        Ok(())
    }

    /// Adds a connection dialled by this node, unless the formations differ or another incarnation of the peer's node
    /// is connected. Returns this node's current formation.
    pub(super) fn add_dialled(&self, connection: &Connection) -> Result<Option<ClusterId>, NotAdded> {
        let mut state = self.lock();
        hello::check_cluster_id(state.cluster_id, connection.peer().cluster_id)?;
        state.check_namesakes(connection.peer())?;
        state.dialled.retain(|weak| weak.upgrade().is_some());
        state.dialled.push(connection.downgrade());
        state.answered.note(connection.peer().id.node, connection.peer().remote);
        Ok(state.cluster_id)
    }

    /// All open connections, dialled by either side.
    pub(super) fn all(&self) -> Vec<Connection> {
        self.lock().all().collect()
    }

    #[cfg(feature = "testing")]
    pub(super) fn add_simulated(&self, connection: &Connection) {
        let mut state = self.lock();
        state.simulated.retain(|weak| weak.upgrade().is_some());
        state.simulated.push(connection.downgrade());
    }

    /// `Err` if there are connections to another incarnation of this peer.
    #[cfg(feature = "testing")]
    pub(super) fn check_namesakes(&self, peer: &PeerInfo) -> Result<(), NotAdded> {
        self.lock().check_namesakes(peer)
    }

    pub(super) fn oldest_with_node(&self) -> Option<Duration> {
        let state = self.lock();
        let living = state.all().filter(|connection| connection.peer().kind.is_node());
        living.filter(|connection| connection.close_reason().is_none()).map(|connection| connection.age()).max()
    }

    /// The descriptions of `node` in the hellos of the connections that it dialled.
    pub(super) fn accepted_from(&self, node: NodeId) -> Vec<std::sync::Arc<PeerInfo>> {
        let state = self.lock();
        let peers = state.accepted.values().map(|accepted| accepted.connection.peer());
        peers.filter(|peer| peer.id.node == node).cloned().collect()
    }

    /// The addresses at which `node` can be dialled according to its connections to this node, latest first.
    pub(super) fn stated_addrs(&self, node: NodeId) -> Vec<SocketAddr> {
        let state = self.lock();
        let accepted = state.accepted.values().rev().map(|accepted| &accepted.connection);
        let of_node = accepted.filter(|one| one.peer().id.node == node && one.peer().kind.is_node());
        let mut addrs = Vec::new();
        for addr in of_node.flat_map(|one| peer_addrs(one.peer(), one.remote())) {
            if !addrs.contains(&addr) {
                addrs.push(addr);
            }
        }
        addrs
    }

    /// The addresses at which `node` has answered this one, latest first.
    pub(super) fn answered_addrs(&self, node: NodeId) -> Vec<SocketAddr> {
        self.lock().answered.of(node)
    }

    /// Whether `peer` has moved away from `addr`: one of its connections to this node was established from that IP, and
    /// now uses another.
    pub(super) fn has_moved(&self, peer: MemberId, addr: SocketAddr) -> bool {
        let state = self.lock();
        let mut of_peer = state.accepted.values().map(|one| &one.connection).filter(|one| one.peer().id == peer);
        of_peer.any(|one| {
            let (began, now) = (one.peer().remote.ip().to_canonical(), one.remote().ip().to_canonical());
            began == addr.ip().to_canonical() && now != began
        })
    }
}

impl RegistryState {
    fn all(&self) -> impl Iterator<Item = Connection> {
        let accepted = self.accepted.values().map(|accepted| accepted.connection.clone());
        let all = accepted.chain(self.dialled.iter().filter_map(WeakConnection::upgrade));
        #[cfg(feature = "testing")]
        let all = all.chain(self.simulated.iter().filter_map(WeakConnection::upgrade));
        all
    }

    /// `Err` if there are connections to another incarnation of the peer's node. Clients may share a name.
    fn check_namesakes(&self, peer: &PeerInfo) -> Result<(), NotAdded> {
        let is_other = |other: MemberId| other.node == peer.id.node && other != peer.id;
        let namesakes = self.all().filter(|connection| {
            let known = connection.peer();
            is_other(known.id) && known.kind.is_node() && connection.close_reason().is_none()
        });
        let namesakes: Vec<_> = if peer.kind.is_node() { namesakes.collect() } else { Vec::new() };
        if namesakes.is_empty() { Ok(()) } else { Err(NotAdded::Namesakes(namesakes)) }
    }
}

/// The addresses at which a peer can be dialled: the one that it stated, and the current source IP of its packets. The
/// latter is listed first if it has changed since the hello.
fn peer_addrs(peer: &PeerInfo, remote: SocketAddr) -> [SocketAddr; 2] {
    let present = hello::at_port(reach::canonical(remote), peer.addr.port());
    if remote.ip() == peer.remote.ip() { [peer.addr, present] } else { [present, peer.addr] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Incarnation, transport::PeerKind};

    #[test]
    fn the_present_ip_of_a_peer_that_has_moved_comes_first() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let peer = PeerInfo {
            name: "a".into(),
            id: MemberId { node: NodeId::from_name("a"), incarnation: Incarnation { store: 1, starts: 1 } },
            kind: PeerKind::Node,
            addr: addr("10.0.0.1:7400"),
            remote: addr("10.0.0.9:50000"),
            cluster_id: None,
            version: 1,
        };
        let stays = peer_addrs(&peer, addr("10.0.0.9:50001"));
        assert_eq!(stays, [addr("10.0.0.1:7400"), addr("10.0.0.9:7400")]);
        let moved = peer_addrs(&peer, addr("[::ffff:10.0.0.2]:50000"));
        assert_eq!(moved, [addr("10.0.0.2:7400"), addr("10.0.0.1:7400")]);
    }
}
