//! The disk of a durable node: a directory, or in tests a simulated disk.

use std::{fmt, io, path::Path, sync::Arc};

use artillery_proto::disk::Disk;
#[cfg(feature = "testing")]
use artillery_proto::disk::simulated::SimulatedDisk;

use super::{DataDirError, belonging};
use crate::{disk::LockedDir, driver::journal::RunningJournal, node::releasing};

/// The disk of a durable node.
#[derive(Clone)]
pub(crate) enum NodeDisk {
    Directory(Arc<LockedDir>),
    #[cfg(feature = "testing")]
    Simulated(SimulatedDisk),
}

impl fmt::Debug for NodeDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeDisk").field(&self.path()).finish()
    }
}

impl NodeDisk {
    /// The files.
    pub(in crate::node) fn files(&self) -> Arc<dyn Disk> {
        match self {
            Self::Directory(dir) => dir.clone(),
            #[cfg(feature = "testing")]
            Self::Simulated(disk) => Arc::new(disk.clone()),
        }
    }

    pub(in crate::node) fn path(&self) -> &Path {
        match self {
            Self::Directory(dir) => dir.path(),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => Path::new("(simulated)"),
        }
    }

    /// The node's name in the directory when it was opened.
    pub(in crate::node) fn name(&self) -> Option<&str> {
        match self {
            Self::Directory(dir) => dir.name(),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => None,
        }
    }

    /// Whether the directory had a store when it was opened, and no name of its node.
    pub(in crate::node) fn lacks_name(&self) -> bool {
        match self {
            Self::Directory(dir) => dir.had_store() && dir.name().is_none(),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => false,
        }
    }

    /// The size of the whole disk in bytes.
    pub(in crate::node) fn size(&self) -> io::Result<u64> {
        match self {
            Self::Directory(dir) => dir.size(),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => Ok(u64::MAX),
        }
    }

    /// The length of a segment of the journal, in bytes. A longer group has a segment of its own.
    pub(in crate::node) fn segment_bytes(&self) -> u64 {
        match self {
            Self::Directory(_) => 64 << 20,
            // So small that tests reach checkpoints.
            #[cfg(feature = "testing")]
            Self::Simulated(_) => 64 << 10,
        }
    }

    /// Checks that the disk belongs to this cluster, or isn't known to belong to any. Writes nothing.
    pub(in crate::node) fn check_cluster(&self, cluster: &str) -> Result<(), DataDirError> {
        match self {
            Self::Directory(dir) => belonging::check(dir, cluster),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => Ok(()),
        }
    }

    /// Records the names of the node and of its cluster.
    pub(in crate::node) fn keep_names(&self, node: &str, cluster: &str) -> io::Result<()> {
        match self {
            Self::Directory(dir) => dir.keep_name(node).and_then(|()| belonging::keep(dir, cluster)),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => Ok(()),
        }
    }

    /// Releases the disk once its journal has ended.
    pub(in crate::node) async fn release(&self, journal: Option<RunningJournal>) {
        match self {
            Self::Directory(dir) => drop(releasing::release(journal, dir.clone(), releasing::LIMIT).await),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => {
                if let Some(journal) = journal {
                    journal.ended().await;
                }
            }
        }
    }

    pub(in crate::node) fn is_released(&self) -> bool {
        match self {
            Self::Directory(dir) => dir.is_released(),
            #[cfg(feature = "testing")]
            Self::Simulated(_) => false,
        }
    }
}
