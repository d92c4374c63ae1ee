//! Who waits for an answer, and who was first: the asker who gives up or the writer who sends.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Outcome;
use crate::{budget::Share, error::Unknown, wire::request::Response};

/// Settles between the asker, who may give up, and the writer, who may send, which of them was first.
#[derive(Default)]
pub(super) struct Ticket(AtomicU8);

impl Ticket {
    const SENT: u8 = 1;
    const GIVEN_UP: u8 = 2;

    fn settle(&self, state: u8) -> Result<u8, u8> {
        self.0.compare_exchange(0, state, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Whether it may be sent: afterwards it counts as sent.
    pub(super) fn send(&self) -> bool {
        self.settle(Self::SENT).is_ok()
    }

    /// Gives it up; whether it was sent before.
    fn give_up(&self) -> bool {
        self.settle(Self::GIVEN_UP) == Err(Self::SENT)
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
        // Whoever gave up doesn't hear it.
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

/// Notes that an asker goes away.
pub(super) struct Asking {
    pub(super) ticket: Arc<Ticket>,
}

impl Asking {
    /// Whether it had been sent. Then its place stays taken until the node has answered, or the connection is lost: who
    /// gives up again and again gets no more of it than others.
    pub(super) fn give_up(&self) -> bool {
        self.ticket.give_up()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.give_up();
    }
}
