//! The programs as people and scripts run them, for tests: real processes, real sockets, mDNS on loopback.

mod cluster;
mod documented;
mod members;
mod program;
mod running;

use std::time::Duration;

pub use self::{
    cluster::Cluster,
    documented::{assert_documented, documented},
    members::{Members, setting},
    program::{CHAOS, CTL, NODE, QUICKSTART, expect, run, text},
    running::{Lines, Node, resident},
};

/// Far more than anything takes, on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Sixteen hexadecimal digits and more that nobody else has.
pub fn token() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}{:016x}", RandomState::new().hash_one(1), RandomState::new().hash_one(2))
}
