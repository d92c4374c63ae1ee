//! One QUIC endpoint per node: who may speak, long-lived streams of frames, datagrams, and links that are re-dialled.
//!
//! A node dials for what it *sends*: the side that dialled opens streams and sends datagrams, the other one takes them
//! in through its [`Service`] and answers on bidirectional streams, or on a few unidirectional ones of its own. So two nodes that send to each other have two
//! connections, and nobody has to decide which of two is to be kept.

mod accept;
mod connection;
mod counters;
mod dial;
mod endpoint;
mod hello;
mod link;
mod quic;
mod registry;
mod reset;
mod security;
mod service;
#[cfg(feature = "testing")]
pub mod simulated;
mod socket;
mod stream;
mod waiters;

#[cfg(test)]
mod tests;

pub use connection::{CloseCode, Connection, StreamKind};
pub use counters::Counters;
pub use endpoint::{Endpoint, LinkFilter, LocalInfo};
pub use link::{Link, LinkState, LinkWatch};
pub use service::{IncomingStream, PeerInfo, PeerKind, Service};
pub use stream::{FrameBatch, FrameReader, FrameWriter};

use crate::error::VersionRange;

/// Protocol versions that this library can talk.
pub const PROTOCOL_VERSIONS: VersionRange = VersionRange { min: 1, max: 1 };

/// Doors for the fuzz targets, which stand outside this crate.
#[cfg(fuzzing)]
#[doc(hidden)]
#[allow(missing_docs)]
pub mod fuzzing {
    pub fn hello(bytes: &[u8]) {
        super::hello::fuzz(bytes);
    }
}
