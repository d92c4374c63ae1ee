//! The pure half of [Artillery](https://github.com/artillery/artillery): what decides, without a socket, a clock, a task
//! or a thread in it.
//!
//! Time, randomness and what came from others go in as arguments; what is to be sent, stored and answered comes out as
//! values. The network half, `artillery-ddata`, and the simulator drive the same code. Applications use `artillery-ddata`.
//!
//! - [`replica`]: the state machine of one member of one chain (CRAQ);
//! - [`runner`]: the replica of a chain as it is driven, in the simulator as on the network;
//! - [`store`]: versions of every key;
//! - [`control`]: who forms a cluster, which chain stands where, who holds a lease;
//! - [`guards`]: the rules that a test can take out, to see that they are missed;
//! - [`wire`]: what members, nodes and clients say to each other.

#[macro_use]
pub mod guards;

pub mod chain;
pub mod control;
pub mod node;
pub mod replica;
mod request_id;
mod routing;
pub mod runner;
mod session;
pub mod store;
pub mod tries;
pub mod update;
pub mod version;
pub mod wire;

pub use artillery_core::{ClusterId, Incarnation, MemberId, NodeId, Timestamp};
pub use chain::{ChainConfig, ChainId, ChainMember, Mode, Place, Role};
pub use replica::{Computed, Expected, GroupFailure, GroupOutcome, NotLocal, ReadMode, Refusal, StepOutcome, Way};
pub use request_id::{ParseRequestIdError, RequestId};
pub use routing::{NodeAddress, Routing};
pub use session::{Frontier, ParseFrontierError, Session};
pub use version::{Epoch, Sequence, Version};
