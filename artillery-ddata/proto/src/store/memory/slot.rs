//! The place of one key's versions.

use std::sync::PoisonError;

use super::{sync::RwLock, versions::Versions};

/// All versions of one key; empty once the key has left the index.
///
/// Readers hold the lock while they copy a version, and its writer while it exchanges all versions for others, so neither
/// holds it for long. What was replaced is freed by its writer, and at once (docs/adr/0035-a-lock-of-each-key.md).
#[derive(Debug)]
pub(super) struct Slot(RwLock<Option<Versions>>);

impl Slot {
    pub(super) fn new(versions: Versions) -> Self {
        Self(RwLock::new(Some(versions)))
    }

    /// What `look` makes of the versions, if there are any still.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Versions) -> T) -> Option<T> {
        // Exchanging versions doesn't panic, so a poisoned lock is as good as another.
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }

    /// Gives it other versions; returns those that were here, to be dropped when the lock is free again.
    pub(super) fn replace(&self, versions: Option<Versions>) -> Option<Versions> {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), versions)
    }
}
