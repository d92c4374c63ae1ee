//! Waiting with a time limit.

use std::time::Duration;

/// Panics with the caller's location instead of hanging.
#[track_caller]
pub(crate) fn within<T>(task: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(Duration::from_secs(30), task).await {
            Ok(done) => done,
            Err(_) => panic!("still waiting at {place}"),
        }
    }
}
