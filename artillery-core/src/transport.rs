//! One QUIC endpoint per node: who may speak, long-lived streams of frames, datagrams, and links that are re-dialled.
//!
//! A node dials for what it *sends*: the side that dialled opens streams and sends datagrams, the other one takes them
//! in through its [`Service`] and answers on bidirectional streams. So two nodes that send to each other have two
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
mod service;
mod socket;
mod stream;

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

/// Reads a hello's header as it came from somebody: for fuzzing.
#[doc(hidden)]
pub fn fuzz_hello(header: &[u8]) {
    let frame = crate::frame::Frame { header: bytes::Bytes::copy_from_slice(header), body: bytes::Bytes::new() };
    let _ = hello::decode::<hello::Hello>(PROTOCOL_VERSIONS, &frame);
    let _ = hello::decode::<hello::Answer>(PROTOCOL_VERSIONS, &frame);
    let _ = hello::refusal_from(header);
}
