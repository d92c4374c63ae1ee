//! What comes out of the state machine.

use std::net::SocketAddr;

use bytes::Bytes;

use super::{identity::SwimPeer, wire::WireError};
use crate::MemberId;

/// The state of a member, as it seems from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// It answers.
    Alive,
    /// A member got no answer from it in time. It may still refute that.
    Suspect,
    /// It has not refuted the suspicion in time, or a later incarnation of its node has taken its place.
    Down,
    /// It said farewell.
    Left,
}

/// What is known of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwimMember {
    /// Which member: a node in one of its incarnations.
    pub id: MemberId,
    /// The stable name of its node.
    pub name: String,
    /// Where to reach it.
    pub addr: SocketAddr,
    /// What it says of itself.
    pub payload: Bytes,
    /// Grows with every change of its payload in this incarnation. The first is 1.
    pub payload_version: u64,
    /// Its state.
    pub state: MemberState,
}

impl SwimMember {
    /// Its id and address.
    pub fn peer(&self) -> SwimPeer {
        SwimPeer { id: self.id, addr: self.addr }
    }
}

/// A change in what is known of the members.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwimEvent {
    /// A member was seen for the first time in this incarnation, and its name and payload are known. `Up` or `Suspect`
    /// follows at once.
    Joined(SwimMember),
    /// It is alive: for the first time, or again after `Suspect` or `Down`.
    Up(SwimMember),
    /// It did not answer in time.
    Suspect(SwimMember),
    /// It is taken for dead, or a later incarnation of its node was seen (whose `Joined` follows).
    Down(SwimMember),
    /// It said farewell. May follow `Down` if the news of the farewell came late.
    Left(SwimMember),
    /// Its payload changed.
    Payload(SwimMember),
    /// A later incarnation of *this* node is a member. This state machine has stopped for good.
    Superseded {
        /// The later incarnation.
        by: MemberId,
    },
}

/// What the driver has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwimOutput {
    /// Send `bytes` to `to` as one datagram, which may get lost. If there is no connection yet, the driver makes one.
    Packet {
        /// The receiver.
        to: SwimPeer,
        /// At most [`SwimSettings::max_packet`](crate::config::SwimSettings::max_packet) bytes.
        bytes: Bytes,
    },
    /// Tell the application.
    Event(SwimEvent),
}

/// Why a packet was refused. Nothing changed, except after [`PacketError::Protocol`]: the part of the packet before the
/// fault may have been applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// More bytes than any member sends.
    #[error("a membership packet of {len} bytes, at most {max} are allowed")]
    TooLarge {
        /// Its bytes.
        len: usize,
        /// The most that is allowed.
        max: usize,
    },
    /// The bytes are no packet.
    #[error("malformed membership packet: {0}")]
    Malformed(#[from] WireError),
    /// The packet claims to be from another member than the one whose connection brought it.
    #[error("a membership packet from {from} claims to be from {claimed}")]
    Impostor {
        /// The member that sent it.
        from: MemberId,
        /// The member that it names.
        claimed: MemberId,
    },
    /// It came from this node itself.
    #[error("a membership packet from ourselves ({0})")]
    FromOurselves(MemberId),
    /// It is well-formed but makes no sense.
    #[error("membership packet against the rules: {0}")]
    Protocol(String),
}
