use std::net::SocketAddr;

use bytes::Bytes;

use super::{identity::SwimPeer, wire::WireError};
use crate::MemberId;

/// The state of a member as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// The member answers probes, or is new and not suspected.
    Alive,
    /// The member did not answer a probe in time. It may still refute the suspicion.
    Suspect,
    /// The member did not refute the suspicion in time, or a later incarnation of its node replaced it.
    Down,
    /// The member announced its departure.
    Left,
}

/// A member as this node knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwimMember {
    /// The node and its incarnation.
    pub id: MemberId,
    /// The stable name of its node.
    pub name: String,
    /// The address at which the member can be dialled, as of its start.
    pub addr: SocketAddr,
    /// The payload that the member publishes about itself.
    pub payload: Bytes,
    /// Starts at 1 in each incarnation. Increases when the payload changes, when the member claims a later start, and
    /// when it leaves.
    pub payload_version: u64,
    /// The state when this value was created.
    pub state: MemberState,
}

impl SwimMember {
    /// The member's id and address.
    pub fn peer(&self) -> SwimPeer {
        SwimPeer { id: self.id, addr: self.addr }
    }
}

/// A change in the known members.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwimEvent {
    /// A member was seen for the first time in this incarnation, or again after it was forgotten, and its name and
    /// payload are known. `Up` or `Suspect` follows at once.
    Joined(SwimMember),
    /// The member is alive: for the first time, or again after `Suspect` or `Down`.
    Up(SwimMember),
    /// The member did not answer in time.
    Suspect(SwimMember),
    /// The member is considered dead, or a later incarnation of its node was seen (whose `Joined` follows).
    Down(SwimMember),
    /// The member announced its departure. May follow `Down` if the farewell arrived late.
    Left(SwimMember),
    /// The member's payload changed.
    Payload(SwimMember),
    /// A later incarnation of *this* node is a member. This state machine has stopped permanently.
    Superseded {
        /// The later incarnation.
        by: MemberId,
    },
}

/// An action for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwimOutput {
    /// Send `bytes` to `to` as one datagram, which may get lost. The driver establishes a connection if necessary.
    Packet {
        /// The member, with its address as known to SWIM. The driver may know a newer address.
        to: SwimPeer,
        /// At most [`SwimSettings::max_packet`](crate::config::SwimSettings::max_packet) bytes.
        bytes: Bytes,
    },
    /// Report the event to the application.
    Event(SwimEvent),
}

/// Why a packet was rejected. Nothing changed, except after [`PacketError::Protocol`]: the part of the packet before
/// the fault may have been applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The packet is larger than [`SwimSettings::max_packet`](crate::config::SwimSettings::max_packet) of this node.
    #[error("a membership packet of {len} bytes exceeds the limit of {max}")]
    TooLarge {
        /// The size of the packet in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The bytes are not a membership packet.
    #[error("malformed membership packet: {0}")]
    Malformed(#[from] WireError),
    /// The packet names another sender than the member whose connection carried it.
    #[error("a membership packet from {from} claims to be from {claimed}")]
    Impostor {
        /// The member whose connection carried it.
        from: MemberId,
        /// The sender named in the packet.
        claimed: MemberId,
    },
    /// The sender is this node, in any incarnation.
    #[error("a membership packet from this node itself ({0})")]
    FromOurselves(MemberId),
    /// The SWIM part of the packet violates the protocol, or is malformed after its header.
    #[error("a membership packet violates the protocol: {0}")]
    Protocol(String),
}
