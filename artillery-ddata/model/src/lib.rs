//! Exhaustive exploration of small chains: every order of message deliveries, node failures, clock steps and client
//! calls. It runs the replicas, lease clients and the coordinator of real nodes (docs/adr/0019-model-checking.md).
//!
//! [`bounds`] limits the exploration, [`world`] defines the state and its steps, [`model`] the properties. [`explore`]
//! runs the checker; [`same`] verifies that worlds of equal fingerprint are equivalent. The defaults: three nodes, two
//! writes, one read, one node that crashes or is cut off, one change of the configuration, six steps of the clock of a
//! quarter of a lease each, one frame in flight on each ordered link, renewals that are never late, clocks of one rate,
//! no elections, no joiners, no retries.

pub mod bounds;
pub mod explore;
pub mod history;
pub mod model;
pub mod same;
pub mod world;
