//! Strongly consistent data on a chain of nodes: CRAQ (Terrace & Freedman, USENIX ATC 2009), embeddable.
//!
//! Without default features only the pure state machines remain, which a driver of your own may run.

pub mod chain;
pub mod control;
#[cfg(feature = "net")]
mod driver;
pub mod replica;
mod routing;
pub mod store;
pub mod update;
pub mod version;
pub mod wire;

pub use artillery_core as core;
pub use artillery_core::{ClusterId, Incarnation, MemberId, NodeId, Timestamp};
pub use chain::{ChainConfig, ChainId, ChainMember, Mode, Role};
pub use version::{Epoch, Sequence, Version};
