//! The name of the cluster that a directory belongs to. A node started under another cluster name would meet no node of
//! that cluster.

use std::io;

use artillery_proto::data_dir::ControlFile;

use super::DataDirError;
use crate::disk::LockedDir;

/// Checks that a directory belongs to the cluster `given`, or isn't known to belong to any. Writes nothing.
pub(super) fn check(disk: &LockedDir, given: &str) -> Result<(), DataDirError> {
    match name(disk).filter(|kept| kept != given) {
        Some(kept) => Err(DataDirError::OtherCluster { dir: disk.path().to_owned(), kept, given: given.to_owned() }),
        None => Ok(()),
    }
}

/// The cluster's name in the control file. If the control file names no cluster, is missing or can't be read: the name
/// in the file CLUSTER.
fn name(disk: &LockedDir) -> Option<String> {
    // Damage of the control file is reported when it is opened.
    let control = ControlFile::find(disk).ok().flatten();
    match control.and_then(|found| found.record.founding) {
        Some(founding) => Some(founding.name),
        None => disk.kept_cluster(),
    }
}

/// Writes the cluster's name into the directory. A full disk is no error: the node must start, so that deletes can free
/// space.
pub(super) fn keep(disk: &LockedDir, name: &str) -> io::Result<()> {
    match disk.keep_cluster(name) {
        Err(error) if is_full(&error) => {
            tracing::warn!(%error, "the file CLUSTER is missing: it is written at a start when there is space");
            Ok(())
        }
        kept => kept,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_reason_to_stop() {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, StorageFull};
        assert_eq!(
            [StorageFull, QuotaExceeded, PermissionDenied].map(|kind| is_full(&kind.into())),
            [true, true, false]
        );
    }
}
