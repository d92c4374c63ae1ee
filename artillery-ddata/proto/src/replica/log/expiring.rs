//! The keys of a copy that expire, and the effect of renewals.

use bytes::Bytes;

use super::WriteBehindStore;
use crate::{
    Expiry, Sequence, Version,
    store::{Held, StoreError},
    types::update::KeyChange,
};

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

    pub(super) fn known(self) -> Option<Expiry> {
        if let Self::Known(first) = self { first } else { None }
    }
}

/// The expiring keys of a log, by their newest versions, pending ones included.
pub(in crate::replica) struct ExpiringKeys<'a> {
    pub(super) soonest: &'a mut Soonest,
    pub(super) store: &'a WriteBehindStore,
}

impl ExpiringKeys<'_> {
    /// A time at or before the first expiry of any key. `None`: no key expires.
    pub(in crate::replica) fn next(&mut self) -> Result<Option<Expiry>, StoreError> {
        if let Soonest::Known(first) = *self.soonest {
            return Ok(first);
        }
        self.measure()
    }

    /// The first expiry of any key.
    pub(in crate::replica) fn measure(&mut self) -> Result<Option<Expiry>, StoreError> {
        let first = self.store.next_expiry()?;
        *self.soonest = Soonest::Known(first);
        Ok(first)
    }

    fn is_any_due(&mut self, chain_time: u64) -> Result<bool, StoreError> {
        Ok(self.next()?.is_some_and(|first| first.is_due(chain_time)))
    }

    /// The keys that are due at this chain time: the first ones, at most `most`.
    pub(in crate::replica) fn due(&mut self, chain_time: u64, most: usize) -> Result<Vec<Bytes>, StoreError> {
        if !self.is_any_due(chain_time)? {
            return Ok(Vec::new());
        }
        let due = self.store.due(chain_time, most)?;
        if due.is_empty() {
            // The key of the bound was renewed or removed.
            self.measure()?;
        }
        Ok(due)
    }

    /// Which of these keys are due at this chain time.
    pub(in crate::replica) fn due_among<'a>(
        &mut self,
        chain_time: u64,
        keys: impl Iterator<Item = &'a Bytes>,
    ) -> Result<Vec<Bytes>, StoreError> {
        let mut due = Vec::new();
        if !self.is_any_due(chain_time)? {
            return Ok(due);
        }
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
}

/// The version of a key after a change by the update with this version. A renewal takes the value that `newest`
/// returns. `None`: the change renews an absent key, which stays absent (trap 103).
pub(crate) fn held_after(
    change: &KeyChange,
    version: Version,
    newest: impl FnOnce(&[u8]) -> Result<Option<Held>, StoreError>,
) -> Result<Option<Held>, StoreError> {
    let value = if change.renews {
        match newest(&change.key)?.and_then(|held| held.value) {
            None => return Ok(None),
            value => value,
        }
    } else {
        change.value.clone()
    };
    Ok(Some(Held { version, value, expires: change.expires }))
}
