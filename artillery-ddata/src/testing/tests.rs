//! Tests of the clusters that tests use.

mod applications;
mod disks;
mod mutants;
mod network;
