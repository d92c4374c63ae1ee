//! The encoding of all messages between members, nodes and clients.
//!
//! Every message travels in a [frame](Frame): a small header, encoded by [`artillery_core::internal::codec`], and a
//! body of raw bytes. The body holds keys and values back to back, without serialization; the header states their
//! lengths. `docs/wire-1.md` describes every byte.

pub mod chain;
pub mod control;
pub mod formation;
pub mod request;
pub mod streams;

pub use artillery_core::{Frame, internal::frame::FrameDecoder};
