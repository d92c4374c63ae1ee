//! The directory of a durable node: how it is opened, loaded and released.
//!
//! ```text
//! LockedDir       this process alone uses the directory
//! FoundStore      all of it was read and checked; nothing is written yet
//! BegunStore      this start is on the disk, so other nodes may learn of it
//! LoadedStore     the chains are in memory
//! RunningJournal  a thread writes the chains' batches
//! ```
//!
//! A node loads its directory before it looks for its cluster; with failover, a node that already belongs to a cluster
//! loads it later. [`NodeDir`] exists from `BegunStore` on.

mod belonging;
mod disk;
mod error;

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock, atomic::AtomicU64},
};

use artillery_core::internal::random;
use artillery_proto::{
    control::{Bootstrap, message::StoreHolding},
    data_dir::{BegunStore, FoundStore, OpenError, OpenSettings, StoreReport},
    journal::JournalError,
};

pub(super) use self::disk::NodeDisk;
pub use self::error::DataDirError;
use super::{
    loading::{Loading, Reporter},
    machine::Machine,
};
use crate::{
    ChainId, ClusterId, MemberId, NodeId,
    config::{Config, DataConfig, SyncMode},
    control::embedded::StorePlace,
    disk::LockedDir,
    driver::journal::RunningJournal,
    store::Store,
};

/// Reads the whole directory of a node that isn't running, and loads its chains as the node would. Writes nothing.
/// Blocks, and needs as much memory as the node does. `None`: the directory holds no store. During this call no node
/// can use the directory, unless the file `LOCK` is missing, as in a backup: then the directory is read without a lock.
///
/// # Errors
/// [`DataDirError::InUse`]: a node uses the directory. [`DataDirError::Io`]: it can't be opened, for example because it
/// doesn't exist. [`DataDirError::Damaged`] names the first damaged place. [`DataDirError::Unusable`]: another release
/// wrote it, or the system failed an operation on one of its files.
pub fn check_directory(dir: impl AsRef<Path>) -> Result<Option<StoreReport>, DataDirError> {
    let dir = dir.as_ref();
    let disk = LockedDir::read_only(dir).map_err(|error| DataDirError::of_directory(dir, error))?;
    StoreReport::check(Arc::new(disk)).map_err(|error| DataDirError::of(dir, &error))
}

/// A node's directory, once the present start is recorded in it.
pub(crate) struct NodeDir {
    pub(crate) place: StorePlace,
    pub(crate) mode: SyncMode,
    disk: NodeDisk,
    synced: Arc<AtomicU64>,
    reporter: Reporter,
    stage: RwLock<DirStage>,
}

/// Whether the chains of a directory are loaded.
enum DirStage {
    Begun,
    Running {
        journal: RunningJournal,
        /// The position of each chain in the store at the start.
        holds: Vec<StoreHolding>,
    },
}

impl Drop for NodeDir {
    /// Ends the journal's thread, even if the node was never started.
    fn drop(&mut self) {
        self.stop();
    }
}

impl NodeDir {
    /// Checks the directory for the node `name`, and records this start in it. Blocks until the directory is read.
    pub(crate) fn open(
        disk: NodeDisk,
        machine: &Machine,
        data: &DataConfig,
        config: &Config,
        name: &str,
        reporter: Reporter,
    ) -> Result<(Self, BegunStore), DataDirError> {
        disk.check_cluster(&config.cluster)?;
        let failed = |error| DataDirError::Io { dir: disk.path().to_owned(), error };
        let most = data.max_disk_bytes.unwrap_or(u64::MAX);
        let size = disk.size().map_err(failed)?;
        let reserve = data.reserve_bytes.unwrap_or_else(|| DataConfig::default_reserve(size.min(most)));
        let settings = OpenSettings {
            node: NodeId::from_name(name),
            mode: data.sync,
            segment_bytes: disk.segment_bytes(),
            room: data.room_bytes,
            reserve,
            most,
            backlog: machine.backlog(config),
            guards: machine.guards,
        };
        let found = FoundStore::check_with(disk.files(), settings, random::wide(), &mut |read| reporter.tell(read));
        let found = found.map_err(|error| match error {
            OpenError::OtherNode { .. } => {
                let (dir, kept) = (disk.path().to_owned(), disk.name().map(str::to_owned));
                DataDirError::OtherNode { dir, kept, given: name.to_owned() }
            }
            error => DataDirError::of(disk.path(), &error),
        })?;
        // Keep both names before the start is recorded.
        disk.keep_names(name, &config.cluster).map_err(failed)?;
        let begun = found.begin(random::wide()).map_err(|error| DataDirError::of(disk.path(), &error))?;
        let control = begun.control().clone();
        let me = MemberId { node: control.look(|record| record.node), incarnation: begun.incarnation() };
        let synced = Arc::new(AtomicU64::new(begun.synced().0));
        let place = StorePlace::new(me, control, synced.clone());
        let stage = RwLock::new(DirStage::Begun);
        Ok((Self { place, mode: data.sync, disk, synced, reporter, stage }, begun))
    }

    /// Checks that the directory belongs to none of these abandoned clusters.
    pub(crate) fn may_follow(&self, lineage: &[ClusterId]) -> Result<(), DataDirError> {
        match self.founding().map(|known| known.cluster).filter(|cluster| lineage.contains(cluster)) {
            Some(cluster) => Err(DataDirError::GivenUp { dir: self.disk.path().to_owned(), cluster }),
            None => Ok(()),
        }
    }

    /// Loads the chains into `store`, and starts the journal. Blocks until the journal runs. `failed` is called later,
    /// if an error other than a full disk ends the journal's thread, or if the thread panics.
    pub(crate) fn load(
        &self,
        begun: BegunStore,
        store: &Arc<dyn Store>,
        failed: impl FnOnce(JournalError) + Send + 'static,
    ) -> Result<(), DataDirError> {
        let dir = self.disk.path();
        let loaded = begun.load(store, &mut |progress| self.reporter.tell(progress));
        let loaded = loaded.map_err(|error| {
            self.reporter.end();
            DataDirError::of(dir, &error)
        })?;
        self.reporter.finish();
        let chains = self.founding().map_or(0, |known| known.settings.chains);
        let holds = (0..chains).map(|chain| loaded.holding(ChainId(chain))).collect();
        let (writer, chains, synced) = (loaded.journal, loaded.chains, self.synced.clone());
        let journal = match &self.disk {
            NodeDisk::Directory(_) => RunningJournal::start(writer, chains, synced, failed),
            #[cfg(feature = "testing")]
            NodeDisk::Simulated(_) => Ok(RunningJournal::simulated(writer, chains, synced, failed)),
        };
        let journal = journal.map_err(|error| DataDirError::Io { dir: dir.to_owned(), error })?;
        *self.stage.write().unwrap_or_else(PoisonError::into_inner) = DirStage::Running { journal, holds };
        Ok(())
    }

    /// The cluster that the node belongs to, as recorded in the directory; `None`: it belongs to none yet.
    pub(crate) fn founding(&self) -> Option<Bootstrap> {
        self.place.control.look(|record| record.founding.clone())
    }

    /// The progress of the load; `None`: the directory is loaded.
    pub(crate) fn loading(&self) -> Option<Loading> {
        self.journal().is_none().then(|| self.reporter.last())
    }

    fn running<T>(&self, part: impl FnOnce(&RunningJournal, &[StoreHolding]) -> T) -> Option<T> {
        match &*self.stage.read().unwrap_or_else(PoisonError::into_inner) {
            DirStage::Begun => None,
            DirStage::Running { journal, holds } => Some(part(journal, holds)),
        }
    }

    /// The position of each chain in the store at the start; `None`: the directory is not loaded yet.
    pub(crate) fn holds(&self) -> Option<Vec<StoreHolding>> {
        self.running(|_, holds| holds.to_vec())
    }

    /// The running journal; `None`: the directory is not loaded yet.
    pub(crate) fn journal(&self) -> Option<RunningJournal> {
        self.running(|journal, _| journal.clone())
    }

    /// Ends the journal's thread once no batch is waiting.
    pub(crate) fn stop(&self) {
        if let Some(journal) = self.journal() {
            journal.stop();
        }
    }

    /// Releases the directory once the journal's thread has ended. Call it after [`stop`](Self::stop).
    pub(crate) async fn release(&self) {
        self.disk.release(self.journal()).await;
    }

    pub(crate) fn is_released(&self) -> bool {
        self.disk.is_released()
    }
}
