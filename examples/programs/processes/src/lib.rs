//! Runs the programs as people and scripts do, for tests; and network namespaces for processes, for tests, benches and
//! `chaos`.

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
    program::{CHAOS, CTL, DEMO, NODE, QUICKSTART, assert_help_and_version, assert_refused, expect, run, text},
    running::{Lines, Node, resident},
};
use tokio::time::{Instant, sleep};

/// The timeout of every wait: far more than anything takes, even on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Repeats `ask` until it returns `Ok`. After [`TEST_TIMEOUT`] it panics with the last error.
pub async fn eventually<T>(mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(why) => assert!(Instant::now() < deadline, "{why}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// A random token of 32 hexadecimal digits.
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
