//! Who waits for an answer, and who was first: the asker who gives up or the writer who sends.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Outcome;
use crate::{budget::Share, error::Unknown, wire::request::Response};

/// Settles between the asker, who may give up, and the writer, who may send, which of them was first.
#[derive(Default)]
pub(super) struct Ticket(AtomicU64);

impl Ticket {
    const GIVEN_UP: u64 = u64::MAX;

    fn settle(&self, state: u64) -> Result<u64, u64> {
        self.0.compare_exchange(0, state, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Whether it may be sent under `number` (above 0): afterwards it counts as sent.
    pub(super) fn send(&self, number: u64) -> bool {
        self.settle(number).is_ok()
    }

    /// Gives it up; the number, if it was sent before.
    pub(super) fn give_up(&self) -> Option<u64> {
        self.settle(Self::GIVEN_UP).err().filter(|&state| state != Self::GIVEN_UP)
    }
}

/// Who waits for which response.
#[derive(Default)]
pub(super) struct Pending(Mutex<BTreeMap<u64, Waiting>>);

pub(super) struct Waiting {
    pub(super) answer: oneshot::Sender<Outcome>,
    /// Its place among those that may be outstanding.
    pub(super) _permit: Option<OwnedSemaphorePermit>,
    /// And among their bytes.
    pub(super) _share: Share,
}

impl Pending {
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<u64, Waiting>) -> T) -> T {
        // Nothing is left half done in there by a panic.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Enters who waits; dropped, the entry is gone.
    pub(super) fn enter(&self, number: u64, waiting: Waiting) -> Entry<'_> {
        self.with(|all| all.insert(number, waiting));
        Entry { number, pending: self }
    }

    pub(super) fn take(&self, number: u64) -> Option<Waiting> {
        self.with(|all| all.remove(&number))
    }

    pub(super) fn answer(&self, response: Response) {
        // Whoever gave up has taken its entry along.
        if let Some(waiting) = self.take(response.number) {
            drop(waiting.answer.send(Outcome::Answered(response)));
        }
    }

    pub(super) fn fail_all(&self, reason: &Unknown) {
        for waiting in self.with(std::mem::take).into_values() {
            drop(waiting.answer.send(Outcome::Unanswered(reason.clone())));
        }
    }
}

/// One who waits.
pub(super) struct Entry<'a> {
    number: u64,
    pending: &'a Pending,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.pending.take(self.number);
    }
}

/// Takes back what an asker that goes away has left.
pub(super) struct Asking<'a> {
    pub(super) ticket: Arc<Ticket>,
    pub(super) pending: &'a Pending,
}

impl Asking<'_> {
    /// Whether it had been sent.
    pub(super) fn give_up(&self) -> bool {
        let Some(number) = self.ticket.give_up() else { return false };
        self.pending.with(|all| all.remove(&number));
        true
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}
