//! SWIM membership as a state machine without clock, socket or task.
//!
//! The caller drives [`Swim`] with received packets ([`Swim::handle_packet`]), the time ([`Swim::tick`], at the latest
//! at [`Swim::next_timer`]) and requests ([`Swim::announce_to`], [`Swim::set_payload`], [`Swim::leave`]). After each
//! call, drain all outputs with [`Swim::poll_output`]: packets to send, and events. The same inputs with the same seed
//! yield the same outputs.
//!
//! Outputs are hints, never decisions: a member that is `Down` here may be alive elsewhere.
//!
//! [foca](https://docs.rs/foca) implements probing, suspicion and gossip. This module adds what foca leaves to its
//! users: names and payloads of members (see `profile`), the distinction between leaving and dying, incarnations of a
//! node (a restarted node is another member), and recovery from a partition in which all members lost all others.

mod effects;
mod event;
mod identity;
mod profile;
mod settings;
mod swim;
mod view;
mod wire;

#[cfg(test)]
mod tests;

pub use event::{MemberState, PacketError, SwimEvent, SwimMember, SwimOutput};
pub use identity::SwimPeer;
pub use profile::{MAX_MEMBER_NAME_BYTES, MAX_MEMBER_PAYLOAD_BYTES};
pub use swim::{LocalMember, Swim, SwimError};
pub use wire::WireError;
