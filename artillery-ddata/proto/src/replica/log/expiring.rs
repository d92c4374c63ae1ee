//! The keys of this copy that are due.

use bytes::Bytes;

use super::Log;
use crate::{Expiry, Sequence, Timestamp, store::StoreError};

/// A lower bound of the first expiry in the store, so that writes don't wait for the store while no key is due.
#[derive(Clone, Copy, Default, Debug)]
pub(super) enum Soonest {
    #[default]
    Unknown,
    /// `None`: no key expires.
    Known(Option<Expiry>),
}

impl Soonest {
    pub(super) fn note(&mut self, expiry: Expiry) {
        if let Self::Known(first) = self {
            *first = Some(first.map_or(expiry, |first| first.min(expiry)));
        }
    }

    /// The store may hold other versions now.
    pub(super) fn forget(&mut self) {
        *self = Self::Unknown;
    }
}

impl Log {
    /// A time at or before the first expiry of any key, pending versions included. `None`: no key expires.
    pub(in crate::replica) fn next_expiry(&mut self) -> Result<Option<Expiry>, StoreError> {
        if let Soonest::Known(first) = *self.soonest {
            return Ok(first);
        }
        let first = self.store.next_expiry()?;
        *self.soonest = Soonest::Known(first);
        Ok(first)
    }

    /// The keys that were due are removed.
    pub(in crate::replica) fn removed(&mut self) -> Result<(), StoreError> {
        *self.soonest = Soonest::Known(self.store.next_expiry()?);
        Ok(())
    }

    /// As [`next_expiry`](Self::next_expiry), if it is known.
    pub(in crate::replica) fn known_expiry(&self) -> Option<Expiry> {
        if let Soonest::Known(first) = *self.soonest { first } else { None }
    }

    /// The keys that are due at this chain time by their newest version, pending versions included: the first ones, at
    /// most `most`.
    pub(in crate::replica) fn due(&mut self, chain_time: u64, most: usize) -> Result<Vec<Bytes>, StoreError> {
        if self.next_expiry()?.is_none_or(|first| !first.is_due(chain_time)) {
            return Ok(Vec::new());
        }
        let due = self.store.due(chain_time, most)?;
        if due.is_empty() {
            // The key of the bound was renewed or removed.
            *self.soonest = Soonest::Known(self.store.next_expiry()?);
        }
        Ok(due)
    }

    /// Which of these keys are due at this chain time.
    pub(in crate::replica) fn due_among<'a>(
        &mut self,
        chain_time: u64,
        keys: impl Iterator<Item = &'a Bytes>,
    ) -> Result<Vec<Bytes>, StoreError> {
        if self.next_expiry()?.is_none_or(|first| !first.is_due(chain_time)) {
            return Ok(Vec::new());
        }
        let mut due = Vec::new();
        for key in keys {
            let held = self.store.read(key, Sequence::MAX)?;
            if held.and_then(|held| held.expiry()).is_some_and(|expiry| expiry.is_due(chain_time)) {
                due.push(key.clone());
            }
        }
        due.sort_unstable();
        due.dedup();
        Ok(due)
    }

    /// The stamp of the newest update.
    pub(in crate::replica) fn newest_stamp(&self) -> u64 {
        let newest = self.history.updates().back();
        newest.map_or(self.chain_time.committed(), |update| update.chain_time)
    }

    /// When this member's clock reaches this chain time, if it receives nothing before.
    pub(in crate::replica) fn reaches(&self, chain_time: u64) -> Option<Timestamp> {
        self.chain_time.reaches(chain_time)
    }
}
