//! The one place that reads a clock for leases and timers.

use std::time::SystemTime;

use crate::time::Timestamp;

/// The time on this node's own clock, which counts suspended time where the system offers such a clock (Linux).
///
/// Elsewhere it is the monotonic clock: a node that was suspended may then believe in a lease that is out.
pub fn now() -> Timestamp {
    #[cfg(feature = "testing")]
    if let Some(now) = followed::now() {
        return now;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    // Neither part is negative: both clocks start at zero when the system boots.
    Timestamp::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
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

/// Clocks that follow a runtime, for tests.
#[cfg(feature = "testing")]
mod followed {
    use std::{cell::Cell, time::Duration};

    use tokio::time::Instant;

    use crate::time::Timestamp;

    /// The wall clock when a followed clock begins: the first moment of 2026.
    pub(super) const EPOCH_MS: u64 = 1_767_225_600_000;

    thread_local! {
        /// When the clock began, and for how many followers.
        static ORIGIN: Cell<Option<(Instant, usize)>> = const { Cell::new(None) };
    }

    /// While it lives, the clocks of this thread follow tokio's: paused where a runtime's clock is paused, and in step with
    /// its timers. They begin at one second, so that a run shows nothing of when it is made.
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
            // Gone with its thread, nobody follows any more.
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
    fn never_goes_back() {
        let mut last = super::now();
        for _ in 0..1000 {
            let next = super::now();
            assert!(next >= last);
            last = next;
        }
        assert!(last > crate::Timestamp::ZERO);
    }
}
