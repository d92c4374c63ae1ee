//! The time that a chain may use before the thread's other tasks run.

use std::time::Duration;

use crate::Timestamp;

/// A slice of a thread's time, which several short turns may share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Slice {
    length: Duration,
    ends: Timestamp,
}

impl Slice {
    /// Slices of this length. None has begun.
    pub(super) fn of(length: Duration) -> Self {
        Self { length, ends: Timestamp::ZERO }
    }

    /// Begins a new slice if the last one is over: the driver has let other tasks run after it.
    pub(super) fn begin(&mut self, now: Timestamp) {
        if self.is_over(now) {
            self.ends = now + self.length;
        }
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.ends
    }
}
