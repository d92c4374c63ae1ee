//! Exhaustive exploration of small chains: every order in which messages arrive, nodes stop or are cut off, clocks advance
//! and clients ask. It runs the replicas, lease clients and the coordinator of real nodes (docs/adr/0019-model-checking.md).
//!
//! [`bounds`] says how far the exploration goes, [`world`] what exists and can happen, [`model`] what must be true.
//! [`explore`] runs the checker; [`same`] verifies that worlds of equal fingerprint are alike. By default: three nodes, two
//! writes, one read, one node that stops or is cut off, one change of the configuration, six steps of the clock of a quarter
//! of a lease each, one frame under way on each ordered link, renewals that are never late, clocks of one rate, no
//! elections, no joiners, no retries.

pub mod bounds;
pub mod explore;
pub mod history;
pub mod model;
pub mod same;
pub mod world;
