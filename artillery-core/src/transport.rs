//! The QUIC endpoint of a node: admission of peers, long-lived streams of frames, datagrams, and links that redial.
//!
//! A node dials the peers to which it *sends*. The side that dialled opens streams and sends datagrams. The other side
//! receives them through its [`Service`], and answers on bidirectional streams or on a few unidirectional streams of
//! its own. So two nodes that send to each other have two connections, and never need to agree on which of them to
//! keep.

mod accept;
mod answered;
mod codes;
mod connection;
mod counters;
mod dial;
mod endpoint;
mod hello;
mod link;
#[cfg(feature = "testing")]
mod medium;
mod namesake;
mod peer;
mod quic;
pub(crate) mod reach;
mod redial;
mod registry;
mod reset;
mod security;
mod service;
mod shared;
#[cfg(feature = "testing")]
pub(crate) mod simulated;
pub(crate) mod socket;
pub(crate) mod staggered;
mod stream;
mod twins;
mod waiters;
pub(crate) mod zones;

#[cfg(test)]
mod tests;

pub use codes::{CloseCode, StreamKind};
pub use connection::Connection;
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use link::{Link, LinkState, LinkWatch};
pub use peer::{ForeignPeer, LocalInfo, PROTOCOL_VERSIONS, PeerInfo, PeerKind};
pub use service::{IncomingStream, Service};
pub use stream::{FrameBatch, FrameReader, FrameWriter};

/// Entry points for the fuzz targets, which are outside this crate.
#[cfg(fuzzing)]
#[allow(missing_docs)]
pub(crate) mod fuzzing {
    pub fn hello(bytes: &[u8]) {
        super::hello::fuzz(bytes);
    }
}
