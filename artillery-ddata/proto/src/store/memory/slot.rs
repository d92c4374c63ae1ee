//! The slot of one key.

use std::sync::PoisonError;

use super::{sync::RwLock, versions::Versions};

/// All versions of one key; empty once the key has left the index.
///
/// A reader holds the lock only to copy a version. The writer excludes readers only to exchange all versions. The
/// writer frees the replaced versions immediately (docs/adr/0035-a-lock-of-each-key.md).
#[derive(Debug)]
pub(super) struct Slot(RwLock<Option<Versions>>);

impl Slot {
    pub(super) fn new(versions: Versions) -> Self {
        Self(RwLock::new(Some(versions)))
    }

    /// Applies `look` to the versions; `None` if the key has left the index.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Versions) -> T) -> Option<T> {
        // An exchange of versions can't panic halfway, so a poisoned lock is used regardless.
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }

    /// Exchanges the versions. Returns the old ones, which the caller drops after the lock is released.
    pub(super) fn replace(&self, versions: Option<Versions>) -> Option<Versions> {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), versions)
    }
}
