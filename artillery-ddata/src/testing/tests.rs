//! Clusters of tests, tested.

mod applications;
#[cfg(feature = "mutants")]
mod mutants;
mod network;
