//! The I/O-free half of [Artillery](https://github.com/artillery/artillery): protocol decisions without sockets,
//! clocks, tasks or threads.
//!
//! Time, randomness and messages are arguments; messages to send, records to store and replies are return values. The
//! network half, `artillery-ddata`, and the simulator drive the same code. Applications use `artillery-ddata`.
//!
//! - [`types`]: chains, versions, updates and sessions;
//! - [`api`]: reads, writes and their replies;
//! - [`message`]: the messages between members, nodes and clients;
//! - [`wire`]: the bytes of these messages;
//! - [`replica`]: the state machine of one member of one chain (CRAQ);
//! - [`runner`]: drives the replica of a chain, in the simulator and on the network;
//! - [`store`]: versions of every key;
//! - [`disk`]: the file-system operations that the journal needs, and a simulated disk that loses unsynced data in a
//!   power cut;
//! - [`journal`]: the on-disk record of a node's chains;
//! - [`data_dir`]: the journal and the control file of a durable node, and how they are reopened;
//! - [`control`]: forming a cluster, placing its chains, granting leases;
//! - [`node`]: a node's control state: its log, its lease and the orders to its chains;
//! - [`backup`]: copies of all data in a file;
//! - [`follower`]: follows the data below a prefix, and keeps a copy of it;
//! - [`recipes`]: locks, elections and registrations;
//! - [`guards`]: the safety rules that a test can disable to show that their absence is detected.

//!
//! An implementation detail of `artillery-ddata`, which pins its exact version and documents the types that applications
//! use: anything here may change in any release.

// No page of its own in searches and in the documentation of dependents.
#![doc(hidden)]
#![allow(missing_docs)]

#[macro_use]
pub mod guards;

pub mod api;
pub mod backup;
pub mod control;
pub mod data_dir;
pub mod disk;
#[cfg(test)]
mod fixtures;
pub mod follower;
pub mod journal;
pub mod message;
pub mod node;
pub mod recipes;
pub mod replica;
pub mod runner;
pub mod store;
pub mod types;
pub mod wire;

pub use api::{
    Computed, Expected, ExpireIf, GroupFailure, GroupOutcome, NodeAddress, ReadMode, ReadPath, Refusal, Routing,
    StepOutcome,
};
pub use artillery_core::{ClusterId, Incarnation, MemberId, NodeId, Timestamp, error::ParseIdError};
pub use replica::NotLocal;
pub use types::{
    ChainConfig, ChainId, ChainMember, Epoch, Expiry, Frontier, Mode, Place, RequestId, Role, Sequence, Session,
    Version,
};
