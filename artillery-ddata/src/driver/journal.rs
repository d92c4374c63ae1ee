//! The thread that writes a node's journal. Chains pass batches to it, and it reports which batches are durable.
//!
//! While the thread syncs one group, chains fill the next one. So groups grow with the load, and the thread never
//! delays a batch to collect more of them.

#[cfg(feature = "testing")]
mod simulated;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use artillery_core::internal::{clock, watch};
use artillery_proto::{
    data_dir::{DurableBatch, JournalWriter},
    disk::DiskError,
    journal::{JournalEntry, JournalError},
    message::{ChainMessage, SnapshotContent},
    replica::{JournalBatch, RestoredChain},
};
use tokio::sync::Notify;

use crate::ChainId;

/// A batch accepts no further record once it has about this many bytes.
pub(crate) const BATCH_BYTES: usize = 1 << 20;
/// A group accepts no further batch once it has this many bytes.
const GROUP_BYTES: usize = 128 << 20;
/// After this time without a batch, the thread writes one empty group, if batches are synced and the last group isn't
/// proven yet. The empty group proves that the earlier ones were synced: without it, damage to the last one would look
/// like a torn end.
const IDLE: Duration = Duration::from_millis(200);
/// The period at which the control file records how much was synced.
const NOTED: Duration = Duration::from_secs(10);
/// The pause between two attempts to write to a full disk.
const FULL_PAUSE: Duration = Duration::from_millis(50);

/// The messages between the chains and the thread.
#[derive(Default)]
struct Exchange {
    chains: BTreeMap<ChainId, ChainSide>,
    /// The chains that the store held at the start, until their tasks begin.
    restored: BTreeMap<ChainId, RestoredChain>,
    /// Whether the disk is considered full.
    full: bool,
    stops: bool,
}

struct ChainSide {
    /// The next batch to write.
    batch: Option<JournalBatch>,
    durable: Option<u64>,
    checkpoint: bool,
    wake: Arc<Notify>,
}

struct Shared {
    exchange: Mutex<Exchange>,
    /// The thread waits for batches here.
    filled: Condvar,
    /// In tests, the task that replaces the thread waits for batches here.
    filled_for_task: Notify,
    /// The number of synced groups in the store's journal, including those of earlier starts.
    synced: Arc<AtomicU64>,
}

impl Shared {
    fn new(restored: BTreeMap<ChainId, RestoredChain>, synced: Arc<AtomicU64>) -> Self {
        Self {
            exchange: Mutex::new(Exchange { restored, ..Exchange::default() }),
            filled: Condvar::new(),
            filled_for_task: Notify::new(),
            synced,
        }
    }

    fn wake(&self) {
        self.filled.notify_one();
        self.filled_for_task.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The journal of a node, for its chains. Clones share it.
#[derive(Clone)]
pub(crate) struct RunningJournal {
    shared: Arc<Shared>,
    /// Closed when the thread has ended and all its files are closed.
    ended: watch::Receiver<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct JournalNews {
    /// The number of the chain's last durable batch; `None` if it hasn't changed since the last call.
    pub(crate) durable: Option<u64>,
    pub(crate) checkpoint: bool,
    /// Whether the disk is considered full.
    pub(crate) full: bool,
}

impl RunningJournal {
    /// Starts the thread. After each sync the thread stores in `synced` how many groups of the journal are synced,
    /// including those of earlier starts. It calls `failed` if an error other than a full disk ends it, or if it
    /// panics.
    pub(crate) fn start(
        writer: JournalWriter,
        restored: BTreeMap<ChainId, RestoredChain>,
        synced: Arc<AtomicU64>,
        failed: impl FnOnce(JournalError) + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(restored, synced));
        let of_thread = shared.clone();
        let (running, ended) = watch::channel(());
        let thread = thread::Builder::new().name("artillery-journal".to_owned());
        thread.spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| run(writer, &of_thread)));
            let why = "its thread panicked".to_owned();
            let panicked = || Err(JournalError::Failed(DiskError::Failed { file: String::new(), why }));
            if let Err(error) = ended.unwrap_or_else(|_| panicked()) {
                failed(error);
            }
            drop(running);
        })?;
        Ok(Self { shared, ended })
    }

    /// Adds a chain, whose task is woken when the journal has news. Returns the chain's state in the store at the
    /// start; `None` if the store held none, or it was returned before.
    pub(crate) fn add(&self, chain: ChainId, wake: Arc<Notify>) -> Option<RestoredChain> {
        let side = ChainSide { batch: None, durable: None, checkpoint: false, wake };
        let mut exchange = self.shared.lock();
        exchange.chains.insert(chain, side);
        exchange.restored.remove(&chain)
    }

    /// Ends the thread once no batch is waiting; on a full disk, batches may be lost.
    pub(crate) fn stop(&self) {
        self.shared.lock().stops = true;
        self.shared.wake();
    }

    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// Passes the next batch of a chain to the thread, unless one is still waiting.
    pub(crate) fn put(&self, chain: ChainId, next: impl FnOnce() -> Option<JournalBatch>) {
        let has_room = |exchange: &Exchange| exchange.chains.get(&chain).is_some_and(|side| side.batch.is_none());
        // Only this chain's own task puts batches here, so there is still none after the call.
        if has_room(&self.shared.lock())
            && let Some(batch) = next()
            && let Some(side) = self.shared.lock().chains.get_mut(&chain)
        {
            side.batch = Some(batch);
            self.shared.wake();
        }
    }

    /// The news for a chain since the last call.
    pub(crate) fn news(&self, chain: ChainId) -> JournalNews {
        let mut exchange = self.shared.lock();
        let Some(side) = exchange.chains.get_mut(&chain) else { return JournalNews::default() };
        let (durable, checkpoint) = (side.durable.take(), std::mem::take(&mut side.checkpoint));
        JournalNews { durable, checkpoint, full: exchange.full }
    }
}

/// Writes until the journal must stop.
fn run(mut writer: JournalWriter, shared: &Shared) -> Result<(), JournalError> {
    let mut noted = clock::now();
    loop {
        let (batches, stops) = next(shared);
        if batches.is_empty() {
            full_is_fine(writer.close())?;
            tidy(&mut writer, shared)?;
        } else {
            write(&mut writer, shared, &batches)?;
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

fn full_is_fine(result: Result<(), JournalError>) -> Result<(), JournalError> {
    if result == Err(JournalError::Full) { Ok(()) } else { result }
}

/// Writes and syncs one group, and notifies its chains. Retries while the disk is full. If the journal must stop, a
/// full disk ends the attempt: the group isn't reported as durable.
fn write(writer: &mut JournalWriter, shared: &Shared, batches: &[(ChainId, JournalBatch)]) -> Result<(), JournalError> {
    let mut full = false;
    let mut until_room = |result: Result<(), JournalError>| match result {
        Err(JournalError::Full) => {
            if !full {
                tracing::error!("the disk is full: nothing is committed in this node's chains until it has space");
                tell_full(shared, true);
            }
            full = true;
            let paused = shared.filled.wait_timeout_while(shared.lock(), FULL_PAUSE, |exchange| !exchange.stops);
            Ok(paused.unwrap_or_else(PoisonError::into_inner).0.stops)
        }
        result => result.map(|()| true),
    };
    while !until_room(writer.write(batches))? {}
    log_checkpoints(batches);
    let mut durable = Vec::new();
    while !until_room(writer.sync().map(|synced| durable = synced))? {}
    shared.synced.store(writer.synced().0, Ordering::Release);
    tell(shared, &durable, &[]);
    tidy(writer, shared)
}

/// Logs when a checkpoint begins and ends: writes take longer in between.
fn log_checkpoints(batches: &[(ChainId, JournalBatch)]) {
    for (chain, entry) in batches.iter().flat_map(|(chain, batch)| batch.entries.iter().map(|entry| (chain.0, entry))) {
        let JournalEntry::Sent(frame) = entry else { continue };
        let ChainMessage::Snapshot(part) = &frame.message else { continue };
        match part.content {
            SnapshotContent::Begin(_) => tracing::info!(chain, "a checkpoint begins"),
            SnapshotContent::End => tracing::info!(chain, "a checkpoint has ended"),
            _ => {}
        }
    }
}

/// Frees and removes old segments, requests checkpoints, and checks the free space.
fn tidy(writer: &mut JournalWriter, shared: &Shared) -> Result<(), JournalError> {
    match writer.tidy() {
        Ok(wanted) => tell(shared, &[], &wanted),
        Err(JournalError::Full) => {}
        Err(error) => return Err(error),
    }
    tell_full(shared, writer.is_full());
    Ok(())
}

fn tell_full(shared: &Shared, full: bool) {
    let mut exchange = shared.lock();
    if std::mem::replace(&mut exchange.full, full) != full {
        if full {
            tracing::error!("the disk is treated as full: this node's chains accept only deletes until it has space");
        } else {
            tracing::info!("the disk has space again");
        }
        exchange.chains.values().for_each(|side| side.wake.notify_one());
    }
}

fn tell(shared: &Shared, durable: &[DurableBatch], checkpoints: &[ChainId]) {
    let mut exchange = shared.lock();
    for &DurableBatch { chain, upto } in durable {
        if let Some(side) = exchange.chains.get_mut(&chain) {
            side.durable = side.durable.max(Some(upto));
            side.wake.notify_one();
        }
    }
    for chain in checkpoints {
        if let Some(side) = exchange.chains.get_mut(chain) {
            side.checkpoint = true;
            side.wake.notify_one();
        }
    }
}

/// Waits for batches, at most for [`IDLE`]. Returns the batches of the next group, which may be none, and whether the
/// journal must stop.
fn next(shared: &Shared) -> (Vec<(ChainId, JournalBatch)>, bool) {
    let mut exchange = shared.lock();
    let is_idle =
        |exchange: &mut Exchange| !exchange.stops && exchange.chains.values().all(|side| side.batch.is_none());
    if is_idle(&mut exchange) {
        let waited = shared.filled.wait_timeout_while(exchange, IDLE, is_idle);
        exchange = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    take(&mut exchange)
}

fn take(exchange: &mut Exchange) -> (Vec<(ChainId, JournalBatch)>, bool) {
    let stops = exchange.stops;
    let (mut batches, mut bytes) = (Vec::new(), 0);
    for (&chain, side) in &mut exchange.chains {
        if let Some(batch) = side.batch.take_if(|_| bytes < GROUP_BYTES) {
            bytes += batch.bytes;
            batches.push((chain, batch));
            // The chain may hand over its next batch.
            side.wake.notify_one();
        }
    }
    (batches, stops)
}
