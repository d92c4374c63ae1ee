//! Tests of the clusters that tests use.

mod applications;
mod mutants;
mod network;
