//! Which members seem to be there: SWIM as a state machine without clock, socket or task.
//!
//! [`Swim`] is driven from outside. Give it the packets that came in ([`Swim::handle_packet`]), the time
//! ([`Swim::tick`], at the latest at [`Swim::next_timer`]) and requests ([`Swim::announce_to`], [`Swim::set_payload`],
//! [`Swim::leave`]). After each call take all outputs with [`Swim::poll_output`]: packets to be sent, and events. The
//! same inputs with the same seed give the same outputs.
//!
//! Its outputs are suggestions, never decisions: a member that is `Down` here may be alive elsewhere.
//!
//! [foca](https://docs.rs/foca) does the probing, suspecting and gossiping. This room adds what foca leaves to its
//! users: names and payloads of members (spread by versions that travel with every packet, see `profile`), the
//! difference between leaving and dying, incarnations of one node (a restart is another member), and finding each other
//! again after a partition in which all members lost all others.

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
