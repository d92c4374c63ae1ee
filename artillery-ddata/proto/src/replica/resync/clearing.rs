//! A joiner clears its old data in bounded steps: its task has other work between them, and its node other chains.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use super::super::Replica;
use crate::{
    Sequence,
    store::{StoreBatch, StoreError, StoreOp},
    types::update::Update,
};

/// A step ends with the key, or the update, by which it has freed this many bytes.
const STEP_BYTES: usize = 8 << 20;

impl Replica {
    pub(in super::super) fn is_clearing(&self) -> bool {
        !self.past.is_empty() || self.filling.as_ref().is_some_and(|filling| filling.clearing.is_some())
    }

    /// Enqueues updates to be freed in steps.
    pub(in super::super) fn free_later(&mut self, mut updates: VecDeque<Update>) {
        if updates.len() > self.past.len() {
            std::mem::swap(&mut self.past, &mut updates);
        }
        self.past.append(&mut updates);
    }

    /// Does one step. When the store is cleared, the joiner asks for the parts of the snapshot.
    pub(in super::super) fn clear_some(&mut self) {
        let most = self.settings.clear_keys.max(1);
        free(&mut self.past, most);
        let Some(from) = self.filling.as_ref().and_then(|filling| filling.clearing.clone()) else { return };
        let rest = match self.clear_from(&from, most) {
            Ok(rest) => rest,
            Err(error) => return self.halt(error.into()),
        };
        let Some(filling) = &mut self.filling else { return };
        filling.again = rest.is_none() && filling.id != 0;
        filling.clearing = rest;
        if filling.again {
            self.due_for(self.place.predecessor);
        }
    }

    /// Clears keys from `from` on. Returns the key at which to go on; `None`: no key is left.
    fn clear_from(&self, from: &[u8], most: usize) -> Result<Option<Bytes>, StoreError> {
        let (mut ops, mut bytes, mut rest) = (SmallVec::new(), 0, None);
        for record in self.store.scan(self.chain, from, Sequence::MAX) {
            let record = record?;
            if ops.len() >= most || bytes >= STEP_BYTES {
                rest = Some(record.key);
                break;
            }
            bytes += record.held.value.as_ref().map_or(0, Bytes::len);
            ops.push(StoreOp::DropAbove { key: record.key, last: Sequence::ZERO });
        }
        self.store.apply(&StoreBatch { chain: self.chain, keep_from: Sequence::ZERO, ops })?;
        Ok(rest)
    }
}

fn free(updates: &mut VecDeque<Update>, most: usize) {
    let mut bytes = 0;
    for _ in 0..most {
        let Some(update) = updates.pop_front() else { break };
        bytes += update.cost();
        if bytes >= STEP_BYTES {
            break;
        }
    }
    if updates.is_empty() {
        // An empty queue would keep its capacity.
        *updates = VecDeque::new();
    }
}
