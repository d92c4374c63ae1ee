//! Reads the node's clock.

use crate::time::Timestamp;

/// The node's monotonic clock. It includes suspended time on Linux, Android and macOS.
pub fn now() -> Timestamp {
    #[cfg(feature = "testing")]
    if let Some(now) = followed::now() {
        return now;
    }
    Timestamp::from_nanos(crate::system::nanos())
}

#[cfg(feature = "testing")]
pub use followed::Followed;

/// A clock that follows a runtime's clock, for tests.
#[cfg(feature = "testing")]
mod followed {
    use std::{cell::Cell, time::Duration};

    use tokio::time::Instant;

    use crate::time::Timestamp;

    thread_local! {
        /// Where the followed clock starts, and the number of [`Followed`] values.
        static ORIGIN: Cell<Option<(Instant, usize)>> = const { Cell::new(None) };
    }

    /// While a value exists, this thread's clock follows tokio's: it pauses when the runtime's clock is paused, and agrees
    /// with its timers. It starts at one second.
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
