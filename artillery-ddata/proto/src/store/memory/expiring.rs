//! The keys of a chain that expire, by the time at which they are due.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::key::KeyBytes;
use crate::Expiry;

/// One entry for each key whose newest version expires, so that a new head needs no scan to find the keys that are due.
#[derive(Debug, Default)]
pub(super) struct Expiring(BTreeSet<(Expiry, KeyBytes)>);

impl Expiring {
    pub(super) fn change(&mut self, key: &[u8], old: Option<Expiry>, new: Option<Expiry>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.0.remove(&(old, key.into()));
        }
        if let Some(new) = new {
            self.0.insert((new, key.into()));
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn first(&self) -> Option<Expiry> {
        self.0.first().map(|&(expiry, _)| expiry)
    }

    pub(super) fn due(&self, chain_time: u64, most: usize) -> Vec<Bytes> {
        let due = self.0.iter().take_while(|(expiry, _)| expiry.is_due(chain_time));
        due.take(most).map(|(_, key)| key.to_bytes()).collect()
    }
}
