//! The journal of a node in tests: a task on virtual time replaces the thread.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use artillery_proto::{ChainId, data_dir::JournalWriter, journal::JournalError, replica::RestoredChain};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{IDLE, RunningJournal, Shared, take, tell};

impl RunningJournal {
    /// Starts the task in this runtime. Each sync takes the time that `pause` returns. The task ends when the journal
    /// is stopped or the disk fails, for example because the power is cut or the node's process ends.
    pub(crate) fn simulated(
        writer: JournalWriter,
        restored: BTreeMap<ChainId, RestoredChain>,
        pause: impl FnMut() -> Duration + Send + 'static,
    ) -> Self {
        let synced = Arc::new(AtomicU64::new(writer.synced().0));
        let shared = Arc::new(Shared::new(restored, synced));
        let (running, ended) = watch::channel(());
        let turns = run(writer, shared.clone(), pause);
        tokio::spawn(async move {
            turns.await;
            drop(running);
        });
        Self { shared, ended }
    }
}

async fn run(mut writer: JournalWriter, shared: Arc<Shared>, mut pause: impl FnMut() -> Duration) {
    while let Ok(true) = turn(&mut writer, &shared, &mut pause).await {}
}

/// Writes one group, or an empty one after [`IDLE`] without batches. Returns whether the journal continues.
async fn turn(
    writer: &mut JournalWriter,
    shared: &Shared,
    pause: &mut impl FnMut() -> Duration,
) -> Result<bool, JournalError> {
    let (mut batches, mut stops) = take(&mut shared.lock());
    if batches.is_empty() && !stops {
        // An error only means that the time has passed.
        drop(timeout(IDLE, shared.filled_for_task.notified()).await);
        (batches, stops) = take(&mut shared.lock());
    }
    if batches.is_empty() {
        writer.close()?;
        return Ok(!stops);
    }
    writer.write(&batches)?;
    sleep(pause()).await;
    let durable = writer.sync()?;
    shared.synced.store(writer.synced().0, Ordering::Release);
    tell(shared, &durable, &[]);
    tell(shared, &[], &writer.tidy()?);
    Ok(true)
}
