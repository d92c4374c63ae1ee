//! Releases the directory of a node that ends.

use std::{io, sync::Arc, thread, time::Duration};

use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use crate::{disk::LockedDir, driver::journal::RunningJournal};

/// How long a node that ends waits for its disk.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// Releases a directory once its journal has ended. Returns whether it is free. Within a runtime, logs an error and
/// returns after `limit`, since a disk operation may never end; the directory is then released when the operation ends.
pub(super) async fn release(journal: Option<RunningJournal>, disk: Arc<LockedDir>, limit: Duration) -> bool {
    let released = released(journal, disk);
    let released = match Handle::try_current() {
        Ok(runtime) => timeout(limit, runtime.spawn(released))
            .await
            .map(|ended| ended.map_err(io::Error::other).and_then(|released| released)),
        // There are no timers outside of a runtime.
        Err(_) => Ok(released.await),
    };
    match &released {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the directory of this node isn't free"),
        Err(_) => tracing::error!(
            seconds = limit.as_secs(),
            "the disk takes too long: this node ends, and its directory is in use until the disk's last operation has ended"
        ),
    }
    matches!(released, Ok(Ok(())))
}

async fn released(journal: Option<RunningJournal>, disk: Arc<LockedDir>) -> io::Result<()> {
    if let Some(journal) = journal {
        journal.ended().await;
    }
    let (done, released) = oneshot::channel();
    // Use a thread outside of the runtime: the runtime would wait for its own threads when it shuts down.
    thread::Builder::new().name("artillery-release".to_owned()).spawn(move || {
        disk.release();
        // The node may have stopped waiting.
        let _ = done.send(());
    })?;
    released.await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use artillery_proto::disk::Disk as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_does_not_wait_for_ever_for_a_stuck_disk() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(LockedDir::open(dir.path()).unwrap());
        let stuck = disk.operation();
        assert!(!release(None, disk.clone(), LIMIT).await);
        assert!(LockedDir::open(dir.path()).is_err());
        while !disk.is_released() {
            tokio::task::yield_now().await;
        }
        // Other operations don't wait for the stuck one.
        assert!(disk.create("late").is_err());
        drop(stuck);
        while LockedDir::open(dir.path()).is_err() {
            tokio::task::yield_now().await;
        }
    }
}
