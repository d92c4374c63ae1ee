//! The interface of the journal to a file system.
//!
//! The journal is pure over [`Disk`]. The network half implements it by the files of one directory; `simulated` keeps the bytes that
//! survive a power cut. [`conformance`] is the suite that each implementation must pass.
//!
//! Three things are made durable separately, as on a file system that promises only POSIX:
//! the bytes of a file, its length, and its name.

pub mod conformance;
#[cfg(any(test, feature = "testing"))]
pub mod simulated;

use std::fmt;

/// The files of one directory, which one process uses.
pub trait Disk: fmt::Debug + Send + Sync {
    /// The names of all files, in order.
    ///
    /// # Errors
    /// [`DiskError::Failed`].
    fn names(&self) -> Result<Vec<String>, DiskError>;

    /// Makes an empty file. Its name is durable once [`sync_names`](Self::sync_names) has returned.
    ///
    /// # Errors
    /// [`DiskError::Exists`], [`DiskError::Full`] or [`DiskError::Failed`].
    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError>;

    /// Opens a file to read and write it.
    ///
    /// # Errors
    /// [`DiskError::Missing`] or [`DiskError::Failed`].
    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError>;

    /// Gives a file another name, in one step. A file that had the new name loses it. Files that are open stay so.
    ///
    /// # Errors
    /// [`DiskError::Missing`] or [`DiskError::Failed`].
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Takes a file's name away. Its bytes go with the last handle that is open.
    ///
    /// # Errors
    /// [`DiskError::Missing`] or [`DiskError::Failed`].
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Makes all names durable as they are now.
    ///
    /// # Errors
    /// [`DiskError::Failed`]. Never try it again: see [`DiskFile::sync`].
    fn sync_names(&self) -> Result<(), DiskError>;

    /// Bytes that can still be written.
    ///
    /// # Errors
    /// [`DiskError::Failed`].
    fn free(&self) -> Result<u64, DiskError>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send {
    /// The length in bytes.
    ///
    /// # Errors
    /// [`DiskError::Failed`].
    fn length(&self) -> Result<u64, DiskError>;

    /// Reads at `at`, in bytes from the file's beginning, until `into` is full or the file ends. Returns the number of bytes.
    ///
    /// # Errors
    /// [`DiskError::Failed`].
    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<usize, DiskError>;

    /// Writes all of `bytes` at `at`. Bytes between the old end and `at` are zero.
    ///
    /// # Errors
    /// [`DiskError::Full`] or [`DiskError::Failed`]. A part of `bytes` may have been written.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Makes all bytes durable that were written before this call, and the length that they need.
    ///
    /// # Errors
    /// [`DiskError::Failed`]. Never try it again: the kernel may have dropped the bytes, shows them to readers all the
    /// same, and reports the next sync as done.
    fn sync(&mut self) -> Result<(), DiskError>;
}

/// Removes a file, if there is one with this name.
pub(crate) fn remove_if_there(disk: &dyn Disk, name: &str) -> Result<(), DiskError> {
    match disk.remove(name) {
        Err(DiskError::Missing(_)) => Ok(()),
        removed => removed,
    }
}

/// The error of a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The disk is full. Space may become free.
    #[error("the disk is full")]
    Full,
    /// No file has this name.
    #[error("there is no file {0}")]
    Missing(String),
    /// A file has this name already.
    #[error("there is a file {0} already")]
    Exists(String),
    /// The bytes of a file can no longer be read: the medium or the file system has lost them.
    #[error("{file} can't be read at byte {at}: {why}")]
    Unreadable {
        /// The file's name.
        file: String,
        /// Where in it, in bytes from its beginning.
        at: u64,
        /// The system's words.
        why: String,
    },
    /// The system reports a failure.
    #[error("{file}: {why}")]
    Failed {
        /// The file's name; empty if the directory is meant.
        file: String,
        /// The system's words.
        why: String,
    },
}
