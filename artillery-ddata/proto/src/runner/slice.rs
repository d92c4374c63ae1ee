//! The time that a chain has before the other tasks of its thread run.

use std::time::Duration;

use crate::Timestamp;

/// A slice of a thread's time. Several short turns may share one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slice {
    length: Duration,
    ends: Timestamp,
}

impl Slice {
    /// Slices of this length, of which none has begun.
    pub(super) fn of(length: Duration) -> Self {
        Self { length, ends: Timestamp::ZERO }
    }

    /// A turn begins now. Once a slice is over the other tasks have run, or had nothing to do, so the next one begins.
    pub(super) fn begin(&mut self, now: Timestamp) {
        if self.is_over(now) {
            self.ends = now + self.length;
        }
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.ends
    }
}
