//! Bounded steps of a joiner, so that its task can do other work between them, and its node can serve other chains.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    Sequence,
    replica::log::{Log, Ops},
    store::{StoreError, StoreOp},
    types::update::Update,
};

/// A step ends with the update that reaches this number of applied bytes.
const APPLY_BYTES: usize = 256 << 10;
/// A step ends with the key or update that reaches this number of freed bytes.
const CLEAR_BYTES: usize = 8 << 20;

pub(super) struct Step {
    updates: usize,
    bytes: usize,
}

impl Step {
    pub(super) fn of(updates: usize) -> Self {
        Self { updates: updates.max(1), bytes: APPLY_BYTES }
    }

    pub(super) fn count(&mut self, update: &Update) {
        self.updates -= 1;
        self.bytes = self.bytes.saturating_sub(update.cost());
    }

    pub(super) fn is_over(&self) -> bool {
        self.updates == 0 || self.bytes == 0
    }
}

/// Clears keys of the store from `from` on. Returns the next key to clear; `None`: no key is left.
pub(super) fn clear_from(log: &Log, from: &[u8], most: usize) -> Result<Option<Bytes>, StoreError> {
    let (mut ops, mut bytes, mut rest) = (Ops::new(), 0, None);
    for record in log.store().scan(from, Sequence::MAX) {
        let record = record?;
        if ops.len() >= most || bytes >= CLEAR_BYTES {
            rest = Some(record.key);
            break;
        }
        bytes += record.held.value.as_ref().map_or(0, Bytes::len);
        ops.push(StoreOp::DropAbove { key: record.key, last: Sequence::ZERO });
    }
    log.store().apply(Sequence::ZERO, ops)?;
    Ok(rest)
}

pub(super) fn free(updates: &mut VecDeque<Update>, most: usize) {
    let mut bytes = 0;
    for _ in 0..most {
        let Some(update) = updates.pop_front() else { break };
        bytes += update.cost();
        if bytes >= CLEAR_BYTES {
            break;
        }
    }
    if updates.is_empty() {
        // An empty queue would keep its capacity.
        *updates = VecDeque::new();
    }
}
