//! The place of one key's versions.

use std::sync::PoisonError;

use super::{sync::RwLock, versions::Versions};

/// All versions of one key; empty once the key has left the index.
///
/// A reader holds the lock while it copies a version, and the writer while it exchanges all versions, so neither holds
/// it for long. The writer frees the replaced versions at once (docs/adr/0035-a-lock-of-each-key.md).
#[derive(Debug)]
pub(super) struct Slot(RwLock<Option<Versions>>);

impl Slot {
    pub(super) fn new(versions: Versions) -> Self {
        Self(RwLock::new(Some(versions)))
    }

    /// The result of `look` on the versions; `None`: the key has left the index.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Versions) -> T) -> Option<T> {
        // An exchange of versions never panics half-way, so a poisoned lock is used all the same.
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }

    /// Exchanges the versions. Returns the old ones, which the caller drops after the lock is released.
    pub(super) fn replace(&self, versions: Option<Versions>) -> Option<Versions> {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), versions)
    }
}
