//! The encoding of all messages between members, nodes and clients.
//!
//! Every message travels in a [frame](Frame): a small header, and a body of raw bytes.
//! [`artillery_core::internal::codec`] encodes the header. Keys and values stand in the body, back to back, and never
//! pass through a serializer; the header gives their lengths. `docs/wire-1.md` describes every byte.

pub mod chain;
pub mod control;
pub mod formation;
pub mod request;
pub mod streams;

pub use artillery_core::{Frame, internal::frame::FrameDecoder};
