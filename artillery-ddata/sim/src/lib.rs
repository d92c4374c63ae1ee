//! Deterministic simulator of Artillery chains, and the checker of the histories that its clients record.
//!
//! One seed drives a whole cluster in one thread on virtual time: nodes that run the production replicas and stores; a
//! network that loses, duplicates, delays and reorders frames; connections that break and recover; members that slow
//! down or crash; and clients that number their requests and retry them through any node. The invariants of chain
//! replication are checked after every step ([`oracle`]). At the end, the clients' history is checked ([`checker`]),
//! and all members must have converged. The same seed reproduces the same run byte for byte.
//!
//! ```
//! use artillery_sim::{runner, scenario::Scenario};
//!
//! let outcome = runner::run(Scenario::Calm, 7, None, false);
//! assert_eq!(outcome.failure, None);
//! assert!(outcome.counts.operations >= 2_000);
//! ```

pub mod client;
pub mod disk;
pub mod every_write;
pub mod faults;
pub mod hunt;
pub mod mutants;
pub mod network;
pub mod node;
pub mod oracle;
pub mod queue;
pub mod report;
pub mod rng;
pub mod runner;
pub mod scenario;
pub mod shrink;
pub mod store;
pub mod trace;
pub mod wire;
pub mod world;

pub use artillery_checker::{self as checker, history};
