//! Whole nodes on loopback: a chain forms, writes commit, reads are served everywhere.

mod reads;
mod serving;
mod sessions;
mod threads;
mod timing;
mod together;

use std::time::Duration;

use crate::support::within;

const SHORT: Duration = Duration::from_millis(300);

/// Waits until no messages of the chain are in flight: two readings of the counter, several heartbeats apart, are
/// equal.
async fn settled(node: &artillery_ddata::Node) {
    let mut before = u64::MAX;
    within(async {
        while node.traffic().frames_sent != before {
            before = node.traffic().frames_sent;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
    .await;
}
