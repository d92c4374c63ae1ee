//! The pure half of [Artillery](https://github.com/artillery/artillery): it decides, and has no socket, clock, task or thread.
//!
//! Time, randomness and messages go in as arguments; what is to be sent, stored and answered comes out as values. The
//! network half, `artillery-ddata`, and the simulator drive the same code. Applications use `artillery-ddata`.
//!
//! - [`types`]: chains, versions, updates and sessions;
//! - [`api`]: reads, writes and their replies;
//! - [`message`]: the messages between members, nodes and clients;
//! - [`wire`]: the bytes of these messages;
//! - [`replica`]: the state machine of one member of one chain (CRAQ);
//! - [`runner`]: the replica of a chain as it is driven, in the simulator as on the network;
//! - [`store`]: versions of every key;
//! - [`disk`]: what the journal asks of a file system, and a disk that loses what a power cut loses;
//! - [`journal`]: what a node keeps on its disk;
//! - [`data_dir`]: the journal and the control file of a durable node, and how they are opened again;
//! - [`control`]: forming a cluster, placing its chains, granting leases;
//! - [`node`]: a node's control state: its log, its lease and the orders to its chains;
//! - [`guards`]: the rules that a test can take out, to show that their absence is caught.

#[macro_use]
pub mod guards;

pub mod api;
pub mod control;
pub mod data_dir;
pub mod disk;
#[cfg(test)]
mod fixtures;
pub mod journal;
pub mod message;
pub mod node;
pub mod replica;
pub mod runner;
pub mod store;
pub mod types;
pub mod wire;

pub use api::{
    Computed, Expected, GroupFailure, GroupOutcome, NodeAddress, ReadMode, ReadPath, Refusal, Routing, StepOutcome,
};
pub use artillery_core::{ClusterId, Incarnation, MemberId, NodeId, Timestamp};
pub use replica::NotLocal;
pub use types::{
    ChainConfig, ChainId, ChainMember, Epoch, Frontier, Mode, ParseIdError, Place, RequestId, Role, Sequence, Session,
    Version,
};
