//! The state machine.

use std::net::SocketAddr;

use bytes::Bytes;

use super::{Member, Output, PacketError, Peer, SettingsError, SwimSettings};
use crate::{MemberId, Timestamp};

/// The longest name of a node, in bytes.
pub const MAX_NAME: usize = 128;

/// The largest payload of a member, in bytes.
pub const MAX_PAYLOAD: usize = 512;

/// Who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// This node, in this life.
    pub id: MemberId,
    /// Its stable name.
    pub name: String,
    /// Where the others reach it.
    pub addr: SocketAddr,
    /// What it says of itself: at most [`MAX_PAYLOAD`] bytes.
    pub payload: Bytes,
    /// Wall clock at the start of this life, in milliseconds since 1970: tells the later of two lives of one node.
    pub started_at_ms: u64,
}

/// A name or payload that can't be told to others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwimError {
    /// The name is too long.
    #[error("a node name of {0} bytes, at most {MAX_NAME} are allowed")]
    NameTooLong(usize),
    /// The payload is too large.
    #[error("a payload of {0} bytes, at most {MAX_PAYLOAD} are allowed")]
    PayloadTooLarge(usize),
    /// The settings make no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// SWIM as a state machine; see the [module](super).
pub struct Swim {
    local: Local,
}

impl Swim {
    /// A member that knows nobody. `seed` decides all its random choices.
    ///
    /// # Errors
    /// [`SwimError`]: too long a name, too large a payload, or settings that make no sense.
    pub fn new(local: Local, settings: SwimSettings, seed: u64) -> Result<Self, SwimError> {
        let _ = (settings.validate()?, seed);
        Ok(Self { local })
    }

    /// Who we are.
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// Takes in a packet. `from` is who sent it by the transport's word.
    ///
    /// # Errors
    /// [`PacketError`]: drop the packet; nothing else is to be done.
    pub fn handle_packet(&mut self, now: Timestamp, from: MemberId, packet: &[u8]) -> Result<(), PacketError> {
        let _ = (now, from, packet);
        Ok(())
    }

    /// Tells `peer` of us and asks for whom it knows. May be said again at any time, for instance when discovery found
    /// it again or a connection to it came up.
    pub fn announce_to(&mut self, now: Timestamp, peer: Peer) {
        let _ = (now, peer);
    }

    /// Lets time pass: call it at [`Swim::next_timer`], or at any other time.
    pub fn tick(&mut self, now: Timestamp) {
        let _ = now;
    }

    /// When [`Swim::tick`] has something to do next; asked again after each call of anything.
    pub fn next_timer(&self) -> Option<Timestamp> {
        None
    }

    /// Changes our payload, for all members to see.
    ///
    /// # Errors
    /// [`SwimError::PayloadTooLarge`]: the former one stays.
    pub fn set_payload(&mut self, now: Timestamp, payload: Bytes) -> Result<(), SwimError> {
        let _ = (now, payload);
        Ok(())
    }

    /// Says farewell. Send what comes out; after that it does nothing any more.
    pub fn leave(&mut self, now: Timestamp) {
        let _ = now;
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }

    /// All members known, without us, by node; also those that are down or have left, until they are forgotten.
    pub fn members(&self) -> Vec<Member> {
        Vec::new()
    }

    /// Whether it has left or was superseded, and does nothing any more.
    pub fn is_stopped(&self) -> bool {
        false
    }
}
