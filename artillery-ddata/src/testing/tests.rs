//! Tests of the clusters that tests use.

mod applications;
#[cfg(feature = "mutants")]
mod mutants;
mod network;
