//! Work that blocks.

use artillery_core::internal::clock;
use tokio::task::{JoinError, JoinSet, spawn_blocking};

/// Runs work that blocks on a thread for such work. On virtual time, which would not wait for that thread, runs it here.
///
/// # Errors
/// The work panicked, or the runtime has ended.
pub(crate) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    if clock::is_virtual() { Ok(work()) } else { spawn_blocking(work).await }
}

/// Like [`offload`], as a task of `tasks`.
pub(crate) fn offload_in<T: Send + 'static>(tasks: &mut JoinSet<T>, work: impl FnOnce() -> T + Send + 'static) {
    if clock::is_virtual() {
        tasks.spawn(async { work() });
    } else {
        tasks.spawn_blocking(work);
    }
}
