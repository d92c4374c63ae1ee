//! The only file that reads a clock for leases and timers.

use std::time::SystemTime;

use crate::time::Timestamp;

/// The time on this node's own clock, which includes suspended time where the system has such a clock.
pub fn now() -> Timestamp {
    #[cfg(feature = "testing")]
    if let Some(now) = followed::now() {
        return now;
    }
    Timestamp::from_nanos(crate::system::nanos())
}

/// Milliseconds since 1970 by the wall clock, which may jump.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall() -> u64 {
    #[cfg(feature = "testing")]
    if let Some(now) = followed::now() {
        return followed::EPOCH_MS + now.as_nanos() / 1_000_000;
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(feature = "testing")]
pub use followed::Followed;

/// Clocks that follow a runtime's clock, for tests.
#[cfg(feature = "testing")]
mod followed {
    use std::{cell::Cell, time::Duration};

    use tokio::time::Instant;

    use crate::time::Timestamp;

    /// The wall clock when a followed clock begins: the first moment of 2026.
    pub(super) const EPOCH_MS: u64 = 1_767_225_600_000;

    thread_local! {
        /// When the clock began, and how many followers it has.
        static ORIGIN: Cell<Option<(Instant, usize)>> = const { Cell::new(None) };
    }

    /// While it lives, the clocks of this thread follow tokio's: they pause where a runtime's clock is paused, and keep
    /// step with its timers. They begin at one second, so that a run does not depend on when it is made.
    #[derive(Debug)]
    pub struct Followed(());

    impl Followed {
        /// Begins to follow the runtime in which it is called.
        #[allow(clippy::new_without_default, reason = "it changes the thread's clock")]
        pub fn new() -> Self {
            ORIGIN.with(|origin| {
                let (since, followers) = origin.get().unwrap_or((Instant::now(), 0));
                origin.set(Some((since, followers + 1)));
            });
            Self(())
        }
    }

    impl Drop for Followed {
        fn drop(&mut self) {
            // If the thread-local is gone, the thread has ended, and no follower is left.
            let _ = ORIGIN.try_with(|origin| {
                let left = origin.get().filter(|(_, followers)| *followers > 1);
                origin.set(left.map(|(since, followers)| (since, followers - 1)));
            });
        }
    }

    pub(super) fn now() -> Option<Timestamp> {
        let (since, _) = ORIGIN.try_with(Cell::get).ok()??;
        Some(Timestamp::ZERO + Duration::from_secs(1) + since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_never_goes_back() {
        let mut last = super::now();
        for _ in 0..1000 {
            let next = super::now();
            assert!(next >= last);
            last = next;
        }
        assert!(last > crate::Timestamp::ZERO);
    }
}
