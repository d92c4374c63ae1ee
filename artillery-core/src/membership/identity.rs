//! What SWIM takes for an identity: a member, its address, and how often it had to come back.

use std::net::{IpAddr, SocketAddr};

use crate::{MemberId, NodeId};

/// A member, and where to reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwimPeer {
    /// Which member: a node in one of its incarnations.
    pub id: MemberId,
    /// The address that it told the others.
    pub addr: SocketAddr,
}

/// A member as SWIM sees it.
///
/// An identity that is declared down never comes back. So a member that was declared down wrongly needs another
/// identity: `renewals` gives it one without another [`MemberId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SwimIdentity {
    pub(super) member: MemberId,
    pub(super) addr: SocketAddr,
    /// Wall clock at the start of this incarnation, in milliseconds. 0 if it is not known.
    pub(super) started_at_ms: u64,
    pub(super) renewals: u32,
}

/// Orders the incarnations of one node: the later is the greater.
pub(super) type IncarnationOrder = (u64, u128, u64);

pub(super) fn incarnation_order(member: &MemberId, started_at_ms: u64) -> IncarnationOrder {
    (started_at_ms, member.incarnation.store, member.incarnation.starts)
}

impl SwimIdentity {
    /// The identity of a peer of which only id and address are known. That is enough to send it an announcement.
    pub(super) fn of_peer(peer: SwimPeer) -> Self {
        Self { member: peer.id, addr: canonical(peer.addr), started_at_ms: 0, renewals: 0 }
    }

    pub(super) fn peer(&self) -> SwimPeer {
        SwimPeer { id: self.member, addr: self.addr }
    }

    pub(super) fn incarnation_order(&self) -> IncarnationOrder {
        incarnation_order(&self.member, self.started_at_ms)
    }
}

/// `addr` without flow label and scope: they mean nothing to other nodes and are not sent.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(
        match addr.ip() {
            IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
            ip => ip,
        },
        addr.port(),
    )
}

impl foca::Identity for SwimIdentity {
    type Addr = NodeId;

    fn renew(&self) -> Option<Self> {
        Some(Self { renewals: self.renewals.checked_add(1)?, ..*self })
    }

    fn addr(&self) -> NodeId {
        self.member.node
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        // A total order, so that all members decide alike.
        (self.incarnation_order(), self.renewals, self.addr)
            > (adversary.incarnation_order(), adversary.renewals, adversary.addr)
    }
}
