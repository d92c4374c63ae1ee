//! Operating system dependencies: positioned file access, locks, free space, permissions, and the meaning of errors.
//!
//! Linux is tested. macOS has the same calls, and syncs to the medium (`File::sync_data` uses `F_FULLFSYNC`). Windows
//! would need `seek_read` and `seek_write`, `LockFileEx`, `GetDiskFreeSpaceEx`, access control lists instead of modes,
//! syncing of directory entries, and the meanings of its error codes.

use std::{
    fs::{DirBuilder, File, Metadata, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
};

use rustix::{fs::FlockOperation, io::Errno};

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
const OTHERS: u32 = 0o077;

pub(crate) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    file.read_at(into, at)
}

pub(crate) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    file.write_all_at(bytes, at)
}

/// Locks an open file exclusively, until it is closed. `false`: the file is locked through another open file, of this
/// process or of another one.
pub(crate) fn lock(file: &File) -> io::Result<bool> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Like [`lock`], but shared with other open files that are locked by this function.
pub(crate) fn lock_shared(file: &File) -> io::Result<bool> {
    flock(file, FlockOperation::NonBlockingLockShared)
}

fn flock(file: &File, how: FlockOperation) -> io::Result<bool> {
    match rustix::fs::flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) all: u64,
    /// Available to a process without privileges.
    pub(crate) free: u64,
}

pub(crate) fn space(of: &File) -> io::Result<Space> {
    let found = rustix::fs::fstatvfs(of)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(Space { all: bytes(found.f_blocks), free: bytes(found.f_bavail) })
}

pub(crate) fn private_directories() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIRECTORY);
    builder
}

pub(crate) fn private_files() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE);
    options
}

/// The permissions of a file without those of other users. `None`: other users have none, or this process doesn't own
/// the file.
pub(crate) fn without_others(found: &Metadata) -> Option<Permissions> {
    let mode = found.mode() & 0o7777;
    let is_owner = found.uid() == rustix::process::geteuid().as_raw();
    (is_owner && mode & OTHERS != 0).then(|| Permissions::from_mode(mode & !OTHERS))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Interrupted,
    /// The system is out of file descriptors or memory, perhaps temporarily. The disk has not failed.
    Lacking,
    Failed,
}

pub(crate) fn refused(error: &io::Error) -> Refused {
    match Errno::from_io_error(error) {
        Some(Errno::INTR) => Refused::Interrupted,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Refused::Lacking,
        _ => Refused::Failed,
    }
}

/// Whether an error on opening or reading a file means that the medium or the file system has lost data.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        Some(Errno::IO | Errno::BADMSG | Errno::NODATA) => true,
        #[cfg(target_os = "linux")]
        Some(Errno::UCLEAN) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_the_medium_has_lost_are_told_from_other_failures() {
        #[cfg(target_os = "linux")]
        assert!(is_damage(&Errno::UCLEAN.into()));
        assert!([Errno::IO, Errno::BADMSG, Errno::NODATA].iter().all(|&error| is_damage(&error.into())));
        assert!([Errno::ACCESS, Errno::NOENT, Errno::NOSPC].iter().all(|&error| !is_damage(&error.into())));
    }
}
