//! The identity that SWIM uses: a member, its address, and its number of renewals.

use std::net::{IpAddr, SocketAddr};

use crate::{MemberId, NodeId};

/// A member and its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwimPeer {
    /// The node and its incarnation.
    pub id: MemberId,
    /// The address that the member advertises.
    pub addr: SocketAddr,
}

/// A member as SWIM identifies it.
///
/// An identity that was declared down never returns. A member that was wrongly declared down therefore needs another
/// identity: `renewals` provides one without changing the [`MemberId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SwimIdentity {
    pub(super) member: MemberId,
    pub(super) addr: SocketAddr,
    /// Wall clock at the start of this incarnation, or a later start that it claims, in milliseconds since 1970. 0 if
    /// unknown.
    pub(super) started_at_ms: u64,
    pub(super) renewals: u32,
}

/// Orders the incarnations of one node. The later one is greater.
pub(super) type IncarnationOrder = (u64, u128, u64);

pub(super) fn incarnation_order(member: &MemberId, started_at_ms: u64) -> IncarnationOrder {
    (started_at_ms, member.incarnation.store, member.incarnation.starts)
}

impl SwimIdentity {
    /// The identity of a peer whose start time is unknown. This suffices to send an announcement to the peer.
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

/// Removes flow label and scope, which mean nothing on other nodes and are not sent, and unmaps IPv4 addresses.
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
