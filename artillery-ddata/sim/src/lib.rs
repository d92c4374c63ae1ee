//! Deterministic simulator of Artillery chains, and the checker of the histories that its clients record.
//!
//! One seed drives a whole cluster in one thread on virtual time: nodes with the replicas and stores that applications
//! run, a network that loses, doubles, delays and reorders, connections that break and come back, slow members and
//! members that stop for good, and clients that read and write meanwhile, number their requests, and repeat them through any
//! node. After every step the invariants of chain replication are checked ([`oracle`]), at the end what clients saw
//! ([`checker`]) and whether all members converged. The same seed makes the same run, to the byte.
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
