//! The interface of the journal to a file system.
//!
//! The journal performs I/O only through [`Disk`]. The network half implements it with the files of one directory;
//! `simulated` models which bytes survive a power cut. [`conformance`] is the suite that each implementation must pass.
//!
//! The bytes of a file, its length, and its name are made durable separately: POSIX guarantees no more.

pub mod conformance;
#[cfg(any(test, feature = "testing"))]
pub mod simulated;

use std::fmt;

/// The files of one directory, used by one process.
pub trait Disk: fmt::Debug + Send + Sync {
    /// The names of all files, in order.
    ///
    /// # Errors
    /// [`DiskError::Failed`].
    fn names(&self) -> Result<Vec<String>, DiskError>;

    /// Creates an empty file. Its name is durable once [`sync_names`](Self::sync_names) has succeeded.
    ///
    /// # Errors
    /// [`DiskError::Exists`], [`DiskError::Full`] or [`DiskError::Failed`].
    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// [`DiskError::Missing`], [`DiskError::Unreadable`] or [`DiskError::Failed`].
    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError>;

    /// Renames a file atomically. A file that had the new name loses it. Open handles stay valid.
    ///
    /// # Errors
    /// [`DiskError::Missing`] or [`DiskError::Failed`].
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file's name. Its bytes are freed with the last open handle.
    ///
    /// # Errors
    /// [`DiskError::Missing`] or [`DiskError::Failed`].
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Makes all present names durable.
    ///
    /// # Errors
    /// [`DiskError::Failed`] or [`DiskError::Full`]. Never retry: see [`DiskFile::sync`].
    fn sync_names(&self) -> Result<(), DiskError>;

    /// Bytes of free space.
    ///
    /// # Errors
    /// [`DiskError::Failed`].
    fn free(&self) -> Result<u64, DiskError>;
}

pub trait DiskFile: fmt::Debug + Send {
    /// The length in bytes.
    ///
    /// # Errors
    /// [`DiskError::Failed`].
    fn length(&self) -> Result<u64, DiskError>;

    /// Reads from `at`, in bytes from the file's beginning, until `into` is full or the file ends. Returns the number
    /// of bytes.
    ///
    /// # Errors
    /// [`DiskError::Unreadable`] or [`DiskError::Failed`].
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<usize, DiskError>;

    /// Writes all of `bytes` at `at`. Bytes between the old end and `at` are zero.
    ///
    /// # Errors
    /// [`DiskError::Full`] or [`DiskError::Failed`]. A part of `bytes` may have been written.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Makes all bytes durable that were written before this call, and the length that they require.
    ///
    /// # Errors
    /// [`DiskError::Failed`] or [`DiskError::Full`]. Never retry after either: the kernel may have dropped the bytes,
    /// still show them to readers, and report success for the next sync.
    fn sync(&mut self) -> Result<(), DiskError>;
}

/// Removes the file with this name, if it exists.
pub(crate) fn remove_if_there(disk: &dyn Disk, name: &str) -> Result<(), DiskError> {
    match disk.remove(name) {
        Err(DiskError::Missing(_)) => Ok(()),
        removed => removed,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The disk is full. Space may become free later.
    #[error("the disk is full")]
    Full,
    #[error("the file {0} does not exist")]
    Missing(String),
    #[error("the file {0} already exists")]
    Exists(String),
    /// Bytes of a file can no longer be read: the medium or the file system has lost them.
    #[error("{file} can't be read at byte {at}: {why}")]
    Unreadable {
        file: String,
        /// The offset in the file, in bytes.
        at: u64,
        why: String,
    },
    #[error("{file}: {why}")]
    Failed {
        /// The file's name; empty for the directory itself.
        file: String,
        why: String,
    },
}
