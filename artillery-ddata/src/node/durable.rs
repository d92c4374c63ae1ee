//! The directory of a durable node: how it is opened, and what of it the node's parts use.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicU64},
};

use artillery_proto::{
    control::{Bootstrap, message::StoreHolding},
    data_dir::{
        self, BegunStore, ControlFile, ControlFileError, DamagePlace, FoundStore, OpenError, OpenSettings, StoreReport,
    },
    disk::{Disk as _, DiskError},
    guards::Guards,
    journal::JournalError,
    replica::RestoredChain,
};

use super::{
    belonging,
    loading::{Loading, Reporter, SharedLoading},
    random, releasing,
};
use crate::{
    ChainId, ClusterId, MemberId, NodeId,
    config::{Config, DataConfig, SyncMode},
    control::embedded::StorePlace,
    disk::{DirectoryError, FileDisk},
    driver::{journal::JournalHandle, phase::NeverReady},
    store::Store,
};

/// Segments of the journal are about so long, in bytes.
const SEGMENT_BYTES: u64 = 64 << 20;

/// A node's directory can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// Another process, or another node of this one, uses it.
    #[error("{}: another node uses it", .0.display())]
    InUse(PathBuf),
    /// It holds files, and none of a node's. Nothing was written there.
    #[error("{} isn't empty and isn't a node's directory: it holds {found}", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// One of the files.
        found: String,
    },
    /// The system refuses it.
    #[error("{}: {error}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its contents aren't as they were written, or the system can no longer read them (`unreadable` in `place`). `node
    /// --replace-damaged` moves the directory aside, and joins as a new store.
    #[error("{} is damaged: {why}", dir.display())]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// The first place that is damaged.
        place: DamagePlace,
        /// The same in words.
        why: String,
    },
    /// It belongs to another node: a directory has one name for good.
    #[error("{}: it belongs to {}, and this node is {given}", dir.display(), kept.as_deref().unwrap_or("another node"))]
    OtherNode {
        /// The directory.
        dir: PathBuf,
        /// The name that it keeps, if it can be read.
        kept: Option<String>,
        /// The name of the node that was started.
        given: String,
    },
    /// It belongs to a cluster of another name, which it keeps permanently. Nothing was written there. Start the node with
    /// that name, or with another directory.
    #[error(
        "{}: it belongs to cluster {kept:?}, and this node was started for cluster {given:?}: give that name (`--cluster`), or \
         another directory", dir.display()
    )]
    OtherCluster {
        /// The directory.
        dir: PathBuf,
        /// The name of its cluster.
        kept: String,
        /// The name that was given.
        given: String,
    },
    /// It holds data of a cluster that was given up. Moved aside, it is kept, and the node begins with an empty one.
    #[error("{} holds data of cluster {cluster}, which was given up: start with an empty directory", dir.display())]
    GivenUp {
        /// The directory.
        dir: PathBuf,
        /// The cluster.
        cluster: ClusterId,
    },
    /// The disk is full or has failed, or another release wrote it.
    #[error("{}: {why}", dir.display())]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// Why.
        why: String,
    },
}

impl DataDirError {
    fn of_directory(dir: &Path, error: DirectoryError) -> Self {
        match error {
            DirectoryError::InUse => Self::InUse(dir.to_owned()),
            DirectoryError::Foreign { found } => Self::Foreign { dir: dir.to_owned(), found },
            DirectoryError::Io(error) => Self::Io { dir: dir.to_owned(), error },
        }
    }

    fn of(dir: &Path, error: &OpenError) -> Self {
        let (dir, why) = (dir.to_owned(), error.to_string());
        match error.damage().or_else(|| unreadable(error)) {
            Some(place) if !error.is_of_another_release() => Self::Damaged { dir, place, why },
            _ => Self::Unusable { dir, why },
        }
    }
}

/// Where the system couldn't read a directory's contents, if that is why it can't be opened.
fn unreadable(error: &OpenError) -> Option<DamagePlace> {
    match error {
        OpenError::Control(ControlFileError::Failed(DiskError::Unreadable { file, at, .. }))
        | OpenError::Journal(JournalError::Failed(DiskError::Unreadable { file, at, .. })) => {
            Some(DamagePlace { file: file.clone(), offset: *at, kind: "unreadable" })
        }
        _ => None,
    }
}

impl From<DataDirError> for NeverReady {
    fn from(error: DataDirError) -> Self {
        let why = error.to_string();
        let is_damaged = matches!(error, DataDirError::Damaged { .. });
        match error {
            DataDirError::InUse(dir)
            | DataDirError::Foreign { dir, .. }
            | DataDirError::Io { dir, .. }
            | DataDirError::Damaged { dir, .. }
            | DataDirError::OtherNode { dir, .. }
            | DataDirError::OtherCluster { dir, .. }
            | DataDirError::GivenUp { dir, .. }
            | DataDirError::Unusable { dir, .. } => Self::NotLoaded { dir, is_damaged, why },
        }
    }
}

/// A directory that this process uses, and that isn't read yet.
pub(crate) struct LockedDir {
    dir: PathBuf,
    disk: FileDisk,
    /// The name of the node that the directory belongs to, as far as it is known.
    pub(crate) name: Option<String>,
    /// Whether it holds no store.
    pub(crate) is_new: bool,
}

impl LockedDir {
    /// Blocks for a moment.
    pub(crate) fn open(dir: &Path) -> Result<Self, DataDirError> {
        let failed = |error| DataDirError::Io { dir: dir.to_owned(), error };
        let disk = FileDisk::open(dir).map_err(|error| DataDirError::of_directory(dir, error))?;
        let name = disk.kept_name().map_err(failed)?;
        let names = disk.names().map_err(|error| failed(io::Error::other(error)))?;
        let is_new = !names.iter().any(|name| name.starts_with("control-"));
        Ok(Self { dir: dir.to_owned(), disk, name, is_new })
    }
}

/// Reads the whole directory of a node that isn't running, and takes its chains in as a start would. Writes nothing. Blocks, and
/// wants as much memory as the node does. `None`: the directory holds no store.
///
/// # Errors
/// [`DataDirError::InUse`]: a node uses it. [`DataDirError::Damaged`] names the first place that is damaged.
/// [`DataDirError::Unusable`]: another release wrote it, or the disk has failed.
pub fn check_directory(dir: impl AsRef<Path>) -> Result<Option<StoreReport>, DataDirError> {
    let dir = dir.as_ref();
    let disk = FileDisk::read_only(dir).map_err(|error| DataDirError::of_directory(dir, error))?;
    StoreReport::check(Arc::new(disk)).map_err(|error| DataDirError::of(dir, &error))
}

/// A directory in a new start of its store, whose chains are still to be taken in.
pub(crate) struct DataDir {
    dir: PathBuf,
    disk: Arc<FileDisk>,
    begun: BegunStore,
    mode: SyncMode,
    reporter: Reporter,
}

impl DataDir {
    /// Checks the directory of the node `name`, and begins a start. Blocks for as long as that takes.
    pub(crate) fn open(
        locked: LockedDir,
        data: &DataConfig,
        config: &Config,
        name: &str,
        mut reporter: Reporter,
    ) -> Result<Self, DataDirError> {
        let LockedDir { dir, disk, name: kept, .. } = locked;
        belonging::check(&dir, &disk, &config.cluster)?;
        let disk = Arc::new(disk);
        let most = data.max_disk_bytes.unwrap_or(u64::MAX);
        let size = disk.size().map_err(|error| DataDirError::Io { dir: dir.clone(), error })?;
        let reserve = data.reserve_bytes.unwrap_or_else(|| DataConfig::default_reserve(size.min(most)));
        let settings = OpenSettings {
            node: NodeId::from_name(name),
            mode: data.sync,
            segment_bytes: SEGMENT_BYTES,
            room: data.room_bytes,
            reserve,
            most,
            backlog: config.limits.backlog_bytes,
            guards: Guards::default(),
        };
        let mut tell = |progress| reporter.tell(progress);
        let found = FoundStore::check_with(disk.clone(), settings, random::wide(), &mut tell);
        let found = found.map_err(|error| match error {
            OpenError::OtherNode { .. } => DataDirError::OtherNode { dir: dir.clone(), kept, given: name.to_owned() },
            error => DataDirError::of(&dir, &error),
        })?;
        // Kept before the store counts: each store has a name, and a cluster.
        let kept = disk.keep_name(name).and_then(|()| belonging::keep(&disk, &config.cluster));
        kept.map_err(|error| DataDirError::Io { dir: dir.clone(), error })?;
        let begun = found.begin(random::wide()).map_err(|error| DataDirError::of(&dir, &error))?;
        Ok(Self { dir, disk, begun, mode: data.sync, reporter })
    }

    /// Checks that the directory holds nothing of a cluster that was given up.
    pub(crate) fn may_follow(&self, lineage: &[ClusterId]) -> Result<(), DataDirError> {
        let founding = self.begun.control().look(|record| record.founding.as_ref().map(|known| known.cluster));
        match founding.filter(|cluster| lineage.contains(cluster)) {
            Some(cluster) => Err(DataDirError::GivenUp { dir: self.dir.clone(), cluster }),
            None => Ok(()),
        }
    }

    pub(crate) fn incarnation(&self) -> artillery_core::Incarnation {
        self.begun.incarnation()
    }
}

/// What the parts of a node use of its directory.
pub(crate) struct Durable {
    pub(crate) place: StorePlace,
    pub(crate) control: ControlFile,
    pub(crate) mode: SyncMode,
    disk: Arc<FileDisk>,
    synced: Arc<AtomicU64>,
    loading: SharedLoading,
    loaded: OnceLock<Loaded>,
}

/// What a directory holds, once it is loaded.
struct Loaded {
    journal: JournalHandle,
    /// What the store held of each chain at the start.
    holds: Vec<StoreHolding>,
    restored: Mutex<BTreeMap<ChainId, RestoredChain>>,
}

impl Drop for Durable {
    /// The journal's thread ends, also if the node never started.
    fn drop(&mut self) {
        self.stop();
    }
}

impl Durable {
    pub(crate) fn new(dir: &DataDir) -> Self {
        let DataDir { disk, begun, mode, reporter, .. } = dir;
        let control = begun.control().clone();
        let me = MemberId { node: control.look(|record| record.node), incarnation: begun.incarnation() };
        let synced = Arc::new(AtomicU64::new(begun.synced().0));
        let place = StorePlace::new(me, control.clone(), synced.clone());
        let (disk, loading) = (disk.clone(), reporter.shared());
        Self { place, control, mode: *mode, disk, synced, loading, loaded: OnceLock::new() }
    }

    /// Takes the chains in, into `store`, and starts the journal. `failed` is called if the disk fails. Blocks for as long as it
    /// takes.
    pub(crate) fn load(
        &self,
        dir: DataDir,
        store: &Arc<dyn Store>,
        failed: impl FnOnce(JournalError) + Send + 'static,
    ) -> Result<(), DataDirError> {
        let DataDir { dir, begun, mut reporter, .. } = dir;
        let opened = begun.load(store, &mut |progress| reporter.tell(progress));
        let opened = opened.map_err(|error| DataDirError::of(&dir, &error))?;
        reporter.finish();
        let chains = self.founding().map_or(0, |known| known.settings.chains);
        let holds = (0..chains).map(|chain| opened.holding(ChainId(chain))).collect();
        let data_dir::DataDir { journal, chains, .. } = opened;
        let journal = JournalHandle::start(journal, self.synced.clone(), failed);
        let journal = journal.map_err(|error| DataDirError::Io { dir, error })?;
        // Set once, here.
        let _ = self.loaded.set(Loaded { journal, holds, restored: Mutex::new(chains) });
        Ok(())
    }

    /// The cluster that the node belongs to since an earlier start.
    pub(crate) fn founding(&self) -> Option<Bootstrap> {
        self.control.look(|record| record.founding.clone())
    }

    /// How far the directory is loaded; `None`: it is loaded.
    pub(crate) fn loading(&self) -> Option<Loading> {
        if self.loaded.get().is_some() { None } else { self.loading.get() }
    }

    /// What the store held of each chain at the start; `None`: that is still being loaded.
    pub(crate) fn holds(&self) -> Option<&[StoreHolding]> {
        self.loaded.get().map(|loaded| &*loaded.holds)
    }

    /// The journal, and what the disk held of a chain, which is handed out once; `None`: it is still being loaded.
    pub(crate) fn chain(&self, chain: ChainId) -> Option<(JournalHandle, Option<RestoredChain>)> {
        let loaded = self.loaded.get()?;
        let restored = loaded.restored.lock().unwrap_or_else(PoisonError::into_inner).remove(&chain);
        Some((loaded.journal.clone(), restored))
    }

    /// Ends the journal's thread once it has written what it was handed.
    pub(crate) fn stop(&self) {
        if let Some(loaded) = self.loaded.get() {
            loaded.journal.stop();
        }
    }

    /// Gives the directory back once the journal has written all pending batches. To be called after [`stop`](Self::stop).
    pub(crate) async fn release(&self) {
        let journal = self.loaded.get().map(|loaded| loaded.journal.clone());
        releasing::release(journal, self.disk.clone(), releasing::LIMIT).await;
    }

    /// Whether the directory was given back.
    pub(crate) fn is_released(&self) -> bool {
        self.disk.is_released()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_counts_as_damaged() {
        let lost = || DiskError::Unreadable { file: "control-1".into(), at: 7, why: "Input/output error".into() };
        let failed = DiskError::Failed { file: "control-1".into(), why: "no permission".into() };
        let dir = Path::new("d");
        for error in [OpenError::Control(lost().into()), OpenError::Journal(lost().into())] {
            let DataDirError::Damaged { place, why, .. } = DataDirError::of(dir, &error) else { panic!("{error}") };
            assert_eq!(place, DamagePlace { file: "control-1".into(), offset: 7, kind: "unreadable" });
            assert!(why.contains("Input/output error"), "{why}");
        }
        let unusable = DataDirError::of(dir, &OpenError::Control(failed.into()));
        assert!(matches!(unusable, DataDirError::Unusable { .. }), "{unusable}");
    }
}
