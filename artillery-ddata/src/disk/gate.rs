//! The end of a directory's use: an operation under way ends first, and none follows.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use artillery_proto::disk::DiskError;

/// Whether a directory is still used.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_closed: RwLock<bool>,
}

impl Gate {
    /// Begins an operation. The gate isn't closed before the result is dropped.
    pub(super) fn pass(&self, file: &str) -> Result<RwLockReadGuard<'_, bool>, DiskError> {
        let is_closed = self.is_closed.read().unwrap_or_else(PoisonError::into_inner);
        if *is_closed {
            let why = "the node has stopped and given the directory back".to_owned();
            return Err(DiskError::Failed { file: file.to_owned(), why });
        }
        Ok(is_closed)
    }

    /// Waits until all operations under way have ended; later ones fail.
    pub(super) fn close(&self) {
        *self.is_closed.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}
