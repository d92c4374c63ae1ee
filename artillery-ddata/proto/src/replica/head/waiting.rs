//! The callers that wait for the commit of their writes.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};

use super::{Waiter, resolve::WriteResult};
use crate::{
    Sequence, Timestamp,
    api::Reply,
    replica::{Outbox, ends::Ends as _},
};

#[derive(Clone, Hash, Debug, Default)]
pub(super) struct WaitingWrites {
    /// In the order of their updates' sequences.
    updates: VecDeque<WaitingUpdate>,
    /// Bytes of the results that are kept for these writes.
    result_bytes: usize,
}

#[derive(Clone, Hash, Debug)]
pub(super) struct WaitingUpdate {
    pub(super) sequence: Sequence,
    pub(super) seen: WriteResult,
    pub(super) waiters: SmallVec<[Waiter; 1]>,
}

impl WaitingWrites {
    pub(super) fn len(&self) -> usize {
        self.updates.iter().map(|update| update.waiters.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    pub(super) fn result_bytes(&self) -> usize {
        self.result_bytes
    }

    pub(super) fn push(&mut self, sequence: Sequence, seen: WriteResult, waiter: Waiter) {
        match self.updates.binary_search_by_key(&sequence, |update| update.sequence) {
            Ok(at) => self.updates[at].waiters.push(waiter),
            Err(at) => {
                self.result_bytes += seen.results();
                self.updates.insert(at, WaitingUpdate { sequence, seen, waiters: smallvec![waiter] });
            }
        }
    }

    /// Removes the first update, if it is at or below `watermark`.
    pub(super) fn pop_committed(&mut self, watermark: Sequence) -> Option<WaitingUpdate> {
        let done = self.updates.take_front_if(|update| update.sequence <= watermark)?;
        self.result_bytes -= done.seen.results();
        Some(done)
    }

    /// Answers the callers of the updates above `keep` as expired.
    pub(super) fn cut(&mut self, keep: Sequence, out: &mut Outbox) {
        while let Some(cut) = self.updates.take_back_if(|update| update.sequence > keep) {
            self.result_bytes -= cut.seen.results();
            cut.waiters.iter().for_each(|waiter| out.reply(waiter.token, Reply::Expired));
        }
    }

    /// Answers the callers whose deadline has passed as expired.
    pub(super) fn expire(&mut self, now: Timestamp, out: &mut Outbox) {
        for update in &mut self.updates {
            update.waiters.retain(|waiter| {
                let is_late = waiter.deadline <= now;
                if is_late {
                    out.reply(waiter.token, Reply::Expired);
                }
                !is_late
            });
        }
    }
}
