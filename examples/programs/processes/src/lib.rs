//! The programs as people and scripts run them, for tests: real processes, real sockets, mDNS on loopback.

mod cluster;
mod documented;
mod members;
#[cfg(target_os = "linux")]
pub mod namespaces;
mod program;
mod running;

use std::time::Duration;

pub use self::{
    cluster::Cluster,
    documented::{assert_documented, documented},
    members::{Members, setting},
    program::{CHAOS, CTL, NODE, QUICKSTART, assert_help_and_version, assert_refused, expect, run, text},
    running::{Lines, Node, resident},
};

/// The limit for every wait: far more than anything takes, even on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A unique word of 32 hexadecimal digits.
pub fn token() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}{:016x}", RandomState::new().hash_one(1), RandomState::new().hash_one(2))
}

#[cfg(test)]
mod tests {
    #[test]
    fn tokens_differ() {
        assert_ne!(super::token(), super::token());
        assert_eq!(super::token().len(), 32);
    }
}
