//! Reads the monotonic clock and the wall clock.

use std::time::SystemTime;

use crate::time::Timestamp;

/// The node's monotonic clock. It includes suspended time on Linux, Android and macOS.
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

    /// The wall clock at zero of a followed clock: 2026-01-01 00:00 UTC.
    pub(super) const EPOCH_MS: u64 = 1_767_225_600_000;

    thread_local! {
        /// Where the followed clock starts, and the number of [`Followed`] values.
        static ORIGIN: Cell<Option<(Instant, usize)>> = const { Cell::new(None) };
    }

    /// While a value exists, this thread's clocks follow tokio's: they pause when the runtime's clock is paused, and
    /// agree with its timers. The monotonic clock starts at one second and the wall clock at a fixed date, so that a
    /// run does not depend on the date.
    #[derive(Debug)]
    pub struct Followed(());

    impl Followed {
        /// Starts following the clock of the current runtime.
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
            // Ignore errors: while a thread ends, its thread-local may already be destroyed.
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
