//! What comes out of the state machine.

use std::net::SocketAddr;

use bytes::Bytes;

use super::{identity::SwimPeer, wire::WireError};
use crate::MemberId;

/// How a member seems to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// It answers.
    Alive,
    /// Somebody did not hear from it in time; it may still refute that.
    Suspect,
    /// It has not refuted the suspicion in time, or a later life of its node has taken its place.
    Down,
    /// It said that it goes.
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
    /// Grows with every change of its payload in this life; the first is 1.
    pub payload_version: u64,
    /// How it seems to be.
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
    /// A member was seen for the first time in this life; `Up` or `Suspect` follows at once. Said only when its name
    /// and payload are known.
    Joined(SwimMember),
    /// It is alive: for the first time, or again after `Suspect` or `Down`.
    Up(SwimMember),
    /// It was not heard in time.
    Suspect(SwimMember),
    /// It is taken for dead, or a later life of its node has been seen (whose `Joined` follows).
    Down(SwimMember),
    /// It left on its own account. May follow `Down`, when the news of its leaving came late.
    Left(SwimMember),
    /// Its payload changed.
    Payload(SwimMember),
    /// A later life of *this* node is a member: this state machine has stopped for good.
    Superseded {
        /// The later life.
        by: MemberId,
    },
}

/// What the driver has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwimOutput {
    /// Send `bytes` to `to`, as one datagram; it may get lost. When nothing leads there yet, connecting to its address
    /// is the driver's part.
    Packet {
        /// To whom.
        to: SwimPeer,
        /// At most [`SwimSettings::max_packet`](crate::config::SwimSettings::max_packet) bytes.
        bytes: Bytes,
    },
    /// Tell the application.
    Event(SwimEvent),
}

/// Why a packet was refused. Nothing changed, except for [`PacketError::Protocol`], of whose packet the part before
/// the fault may have been taken in.
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
    /// It claims to be from another member than the one whose connection brought it.
    #[error("a membership packet from {from} claims to be from {claimed}")]
    Impostor {
        /// Who sent it.
        from: MemberId,
        /// Whom it names.
        claimed: MemberId,
    },
    /// It came from this node itself.
    #[error("a membership packet from ourselves ({0})")]
    FromOurselves(MemberId),
    /// It is well-formed but makes no sense.
    #[error("membership packet against the rules: {0}")]
    Protocol(String),
}
