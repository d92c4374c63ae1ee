//! Why a node's directory can't be used.

use std::{
    io,
    path::{Path, PathBuf},
};

use artillery_proto::{
    data_dir::{ControlFileError, DamagePlace, OpenError},
    disk::DiskError,
    journal::JournalError,
};

use crate::{ClusterId, disk::DirectoryError, driver::phase::NeverReady};

/// A node's directory can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// Another process, or another node of this process, uses the directory.
    #[error("{}: another node uses it", .0.display())]
    InUse(PathBuf),
    /// The directory holds files, but none of a node. Nothing was written there.
    #[error("{} isn't empty and isn't a node's directory: it holds {file}", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// One of the files.
        file: String,
    },
    /// The system failed an operation on the directory, or to start a thread for it.
    #[error("{}: {error}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The contents aren't as they were written, or the system can no longer read them (the `kind` of `place` is
    /// `unreadable`). `node --replace-damaged` moves the directory aside, and joins as a new store.
    #[error("{} is damaged: {why}", dir.display())]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// The first damaged place.
        place: DamagePlace,
        /// The damage in words.
        why: String,
    },
    /// The directory belongs to a node of another name. A directory can't change its node.
    #[error("{}: it belongs to {}, and this node is {given}", dir.display(), kept.as_deref().unwrap_or("another node"))]
    OtherNode {
        /// The directory.
        dir: PathBuf,
        /// The name stored in the directory, if it can be read.
        kept: Option<String>,
        /// The name of the node that was started.
        given: String,
    },
    /// The directory belongs to a cluster of another name, and can't change its cluster. Nothing was written there.
    /// Start the node with that cluster name, or with another directory.
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
    /// The directory holds data of an abandoned cluster, which the lineage of
    /// [`NodeBuilder::create_after`](crate::NodeBuilder::create_after) or
    /// [`NodeBuilder::join_after`](crate::NodeBuilder::join_after) names. To keep the data, move the directory aside,
    /// and start with an empty one.
    #[error("{} holds data of cluster {cluster}, which was retired: start with an empty directory", dir.display())]
    GivenUp {
        /// The directory.
        dir: PathBuf,
        /// The cluster.
        cluster: ClusterId,
    },
    /// The disk is full, the system failed an operation on a file of the directory, or another release wrote the
    /// directory.
    #[error("{}: {why}", dir.display())]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// Why.
        why: String,
    },
}

impl DataDirError {
    pub(in crate::node) fn of_directory(dir: &Path, error: DirectoryError) -> Self {
        match error {
            DirectoryError::InUse => Self::InUse(dir.to_owned()),
            DirectoryError::Foreign { file } => Self::Foreign { dir: dir.to_owned(), file },
            DirectoryError::Io(error) => Self::Io { dir: dir.to_owned(), error },
        }
    }

    pub(in crate::node) fn of(dir: &Path, error: &OpenError) -> Self {
        let (dir, why) = (dir.to_owned(), error.to_string());
        match error.damage().or_else(|| unreadable(error)) {
            Some(place) if !error.is_of_another_release() => Self::Damaged { dir, place, why },
            _ => Self::Unusable { dir, why },
        }
    }
}

/// The place that the system couldn't read, if this is why the directory can't be opened.
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
