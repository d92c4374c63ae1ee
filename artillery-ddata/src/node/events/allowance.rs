//! Bounds how many events a node reports: a link that breaks again and again must not fill logs.

use std::time::Duration;

use artillery_core::Timestamp;

/// The most events that are reported without a pause.
const BURST: u32 = 6;

/// After this time one more event may be reported.
const REFILL: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Allowance {
    left: u32,
    /// When the last token was added, or the bucket was full.
    filled: Timestamp,
    omitted: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: BURST, filled: Timestamp::ZERO, omitted: 0 }
    }
}

impl Allowance {
    pub(super) fn take(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        let may = self.left > 0;
        if may {
            self.left -= 1;
        }
        may
    }

    /// Counts an event that was not reported.
    pub(super) fn omit(&mut self) {
        self.omitted += 1;
    }

    /// Takes the number of events that were not reported, if there are any and a token is available for it.
    pub(super) fn omitted(&mut self, now: Timestamp) -> Option<u64> {
        self.refill(now);
        (self.omitted > 0 && self.take(now)).then(|| std::mem::take(&mut self.omitted))
    }

    fn refill(&mut self, now: Timestamp) {
        while self.left < BURST && now - self.filled >= REFILL {
            self.left += 1;
            self.filled = self.filled + REFILL;
        }
        if self.left == BURST {
            self.filled = now;
        }
    }
}
