//! What members, nodes and clients say to each other.
//!
//! Everything travels in [frames](artillery_core::internal::frame): a small header, encoded by [`artillery_core::internal::codec`], and a
//! body of raw bytes. Keys and values stand in the body, back to back, and never pass through a serializer; the header
//! says where each of them ends. `docs/wire-1.md` describes every byte.

pub mod chain;
pub mod control;
pub mod formation;
#[doc(hidden)]
pub mod keep;
pub mod message;
mod outline;
mod raw;
pub mod request;
mod snapshot;
pub mod streams;
