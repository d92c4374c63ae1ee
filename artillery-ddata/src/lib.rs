//! Strongly consistent data on a chain of nodes: CRAQ (Terrace & Freedman, USENIX ATC 2009), embeddable.
//!
//! Without default features only the pure state machines remain, which a driver of your own may run.

pub mod chain;
#[cfg(feature = "net")]
pub mod client;
pub mod control;
#[cfg(feature = "net")]
mod driver;
#[cfg(feature = "net")]
pub mod config;
#[cfg(feature = "net")]
pub mod error;
#[cfg(feature = "net")]
pub mod kv;
#[cfg(feature = "net")]
pub mod node;
pub mod replica;
mod routing;
#[cfg(feature = "net")]
pub mod status;
pub mod store;
pub mod update;
pub mod version;
pub mod wire;

pub use artillery_core as core;
pub use artillery_core::{ClusterId, Incarnation, MemberId, NodeId, Timestamp};
pub use chain::{ChainConfig, ChainId, ChainMember, Mode, Place, Role};
#[cfg(feature = "net")]
pub use client::{Client, ClientBuilder, ClientError};
#[cfg(feature = "net")]
pub use error::Error;
#[cfg(feature = "net")]
pub use kv::{Committed, Conflict, Kv, Read, ReadState, Served, Versioned};
#[cfg(feature = "net")]
pub use node::{Node, NodeBuilder};
pub use replica::{NotLocal, ReadMode, Refusal, Way};
pub use routing::{NodeAddress, Routing};
pub use version::{Epoch, Sequence, Version};
