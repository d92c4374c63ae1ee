//! The journal of a node in tests: a task on virtual time replaces the thread.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use artillery_core::internal::{clock, random, watch};
use artillery_proto::{
    ChainId,
    data_dir::JournalWriter,
    journal::JournalError,
    replica::{JournalBatch, RestoredChain},
};
use tokio::time::{sleep, timeout};

use super::{
    FULL_PAUSE, IDLE, NOTED, RunningJournal, Shared, full_is_fine, log_checkpoints, take, tell, tell_full, tidy,
};

const USUAL_SYNC: Duration = Duration::from_millis(2);
/// The longest delay of one in ten syncs: an update passes the chain in less time.
const SLOW_SYNC: Duration = Duration::from_millis(60);

impl RunningJournal {
    /// Starts the task in this runtime. Like [`start`](Self::start) otherwise; each sync takes a random time.
    pub(crate) fn simulated(
        writer: JournalWriter,
        restored: BTreeMap<ChainId, RestoredChain>,
        synced: Arc<AtomicU64>,
        failed: impl FnOnce(JournalError) + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::new(restored, synced));
        let (running, ended) = watch::channel(());
        let turns = run(writer, shared.clone());
        tokio::spawn(async move {
            if let Err(error) = turns.await {
                failed(error);
            }
            drop(running);
        });
        Self { shared, ended }
    }
}

async fn run(mut writer: JournalWriter, shared: Arc<Shared>) -> Result<(), JournalError> {
    let mut noted = clock::now();
    loop {
        let (batches, stops) = next(&shared).await;
        if batches.is_empty() {
            full_is_fine(writer.close())?;
            tidy(&mut writer, &shared)?;
        } else {
            write(&mut writer, &shared, &batches).await?;
        }
        if clock::now() - noted >= NOTED || stops {
            full_is_fine(writer.note_synced())?;
            noted = clock::now();
        }
        if stops && batches.is_empty() {
            return full_is_fine(writer.remove_freed(usize::MAX));
        }
    }
}

async fn next(shared: &Shared) -> (Vec<(ChainId, JournalBatch)>, bool) {
    let (batches, stops) = take(&mut shared.lock());
    if !batches.is_empty() || stops {
        return (batches, stops);
    }
    // An error only means that the time has passed.
    drop(timeout(IDLE, shared.filled_for_task.notified()).await);
    take(&mut shared.lock())
}

async fn write(
    writer: &mut JournalWriter,
    shared: &Shared,
    batches: &[(ChainId, JournalBatch)],
) -> Result<(), JournalError> {
    while !has_space(writer.write(batches), shared).await? {}
    log_checkpoints(batches);
    let longest = if random::fraction() < 0.1 { SLOW_SYNC } else { USUAL_SYNC };
    sleep(longest.mul_f64(random::fraction())).await;
    let mut durable = Vec::new();
    while !has_space(writer.sync().map(|synced| durable = synced), shared).await? {}
    shared.synced.store(writer.synced().0, Ordering::Release);
    tell(shared, &durable, &[]);
    tidy(writer, shared)
}

/// Whether an operation succeeded. If the disk is full, waits before the next attempt. If the journal must stop too, the
/// operation is abandoned: the group isn't reported as durable.
async fn has_space(result: Result<(), JournalError>, shared: &Shared) -> Result<bool, JournalError> {
    if result != Err(JournalError::Full) {
        return result.map(|()| true);
    }
    tell_full(shared, true);
    drop(timeout(FULL_PAUSE, shared.filled_for_task.notified()).await);
    Ok(shared.lock().stops)
}
