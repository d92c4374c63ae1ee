//! The directory of a durable node: how it is opened, and what of it the node's parts use.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use artillery_proto::{
    control::{Bootstrap, message::StoreHolding},
    data_dir::{self, ControlFile, DamagePlace, FoundStore, OpenError, OpenSettings, StoreReport},
    disk::Disk as _,
    guards::Guards,
    journal::JournalError,
    replica::RestoredChain,
};

use super::{loading::Reporter, random};
use crate::{
    ChainId, ClusterId, MemberId, NodeId,
    config::{Config, DataConfig, SyncMode},
    control::embedded::StorePlace,
    disk::{DirectoryError, FileDisk},
    driver::journal::JournalHandle,
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
    /// The system refuses it.
    #[error("{}: {error}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// What it holds isn't as it was written. `node --replace-damaged` moves it aside, and joins as a new store.
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
            DirectoryError::Io(error) => Self::Io { dir: dir.to_owned(), error },
        }
    }

    fn of(dir: &Path, error: &OpenError) -> Self {
        let (dir, why) = (dir.to_owned(), error.to_string());
        match error.damage() {
            Some(place) if !error.is_of_another_release() => Self::Damaged { dir, place, why },
            _ => Self::Unusable { dir, why },
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

/// An opened directory.
pub(crate) struct DataDir {
    dir: PathBuf,
    opened: data_dir::DataDir,
    mode: SyncMode,
}

impl DataDir {
    /// Opens the directory of the node `name` and takes in what it holds, into `store`. Blocks for as long as that takes.
    pub(crate) fn open(
        locked: LockedDir,
        data: &DataConfig,
        config: &Config,
        name: &str,
        store: &Arc<dyn Store>,
        mut reporter: Reporter,
    ) -> Result<Self, DataDirError> {
        let LockedDir { dir, disk, name: kept, .. } = locked;
        let disk = Arc::new(disk);
        let settings = OpenSettings {
            node: NodeId::from_name(name),
            mode: data.sync,
            segment_bytes: SEGMENT_BYTES,
            room: data.room_bytes,
            reserve: data.reserve_bytes,
            most: data.max_disk_bytes.unwrap_or(u64::MAX),
            backlog: config.limits.backlog_bytes,
            guards: Guards::default(),
        };
        let mut tell = |progress| reporter.tell(progress);
        let found = FoundStore::check_with(disk.clone(), settings, random::wide(), &mut tell);
        let found = found.map_err(|error| match error {
            OpenError::OtherNode { .. } => DataDirError::OtherNode { dir: dir.clone(), kept, given: name.to_owned() },
            error => DataDirError::of(&dir, &error),
        })?;
        // Kept before the store counts: each store has a name.
        disk.keep_name(name).map_err(|error| DataDirError::Io { dir: dir.clone(), error })?;
        let opened = found.open_with(store, random::wide(), &mut tell);
        let opened = opened.map_err(|error| DataDirError::of(&dir, &error))?;
        reporter.finish();
        Ok(Self { dir, opened, mode: data.sync })
    }

    /// Checks that the directory holds nothing of a cluster that was given up.
    pub(crate) fn may_follow(&self, lineage: &[ClusterId]) -> Result<(), DataDirError> {
        let founding = self.opened.control.look(|record| record.founding.as_ref().map(|known| known.cluster));
        match founding.filter(|cluster| lineage.contains(cluster)) {
            Some(cluster) => Err(DataDirError::GivenUp { dir: self.dir.clone(), cluster }),
            None => Ok(()),
        }
    }

    pub(crate) fn incarnation(&self) -> artillery_core::Incarnation {
        self.opened.incarnation
    }
}

/// What the parts of a node use of its directory.
pub(crate) struct Durable {
    pub(crate) place: StorePlace,
    pub(crate) control: ControlFile,
    pub(crate) mode: SyncMode,
    pub(crate) journal: JournalHandle,
    /// What the store held of each chain at the start.
    pub(crate) holds: Vec<StoreHolding>,
    restored: Mutex<BTreeMap<ChainId, RestoredChain>>,
}

impl Drop for Durable {
    /// The journal's thread ends, also if the node never started.
    fn drop(&mut self) {
        self.journal.stop();
    }
}

impl Durable {
    /// Starts the journal. `failed` is called if the disk fails.
    pub(crate) fn start(dir: DataDir, failed: impl FnOnce(JournalError) + Send + 'static) -> io::Result<Self> {
        let DataDir { opened, mode, .. } = dir;
        let chains = opened.control.look(|record| record.founding.as_ref().map_or(0, |known| known.settings.chains));
        let holds = (0..chains).map(|chain| opened.holding(ChainId(chain))).collect();
        let data_dir::DataDir { incarnation, control, journal, chains, .. } = opened;
        let me = MemberId { node: control.look(|record| record.node), incarnation };
        let journal = JournalHandle::start(journal, failed)?;
        let place = StorePlace::new(me, control.clone(), journal.synced());
        Ok(Self { place, control, mode, journal, holds, restored: Mutex::new(chains) })
    }

    /// The cluster that the node belongs to since an earlier start.
    pub(crate) fn founding(&self) -> Option<Bootstrap> {
        self.control.look(|record| record.founding.clone())
    }

    /// What the disk held of a chain. It is handed out once.
    pub(crate) fn restored(&self, chain: ChainId) -> Option<RestoredChain> {
        self.restored.lock().unwrap_or_else(PoisonError::into_inner).remove(&chain)
    }
}
