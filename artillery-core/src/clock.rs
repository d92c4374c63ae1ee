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

/// Whether this thread's time is virtual. Then other threads must not work for it: the time would not wait for them.
pub fn is_virtual() -> bool {
    #[cfg(feature = "testing")]
    return followed::now().is_some();
    #[cfg(not(feature = "testing"))]
    false
}

/// Milliseconds since 1970 by the system's clock, which may be set back; of a virtual clock, since its start.
#[allow(clippy::disallowed_methods, reason = "taken once at a start, then handed to pure code")]
pub(crate) fn unix_ms() -> u64 {
    if is_virtual() {
        return now().as_nanos() / 1_000_000;
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

/// The clock of one node, by which it counts leases and the age of keys. In tests it may run faster or slower than
/// tokio's. Without the feature `testing`, all nodes of a process have the same clock.
#[derive(Debug, Clone, Default)]
pub struct NodeClock {
    #[cfg(feature = "testing")]
    own: Option<std::sync::Arc<own::OwnClock>>,
}

impl NodeClock {
    /// The time now.
    pub fn now(&self) -> Timestamp {
        #[cfg(feature = "testing")]
        if let Some(own) = &self.own {
            return own.at(now());
        }
        now()
    }
}

#[cfg(feature = "testing")]
impl NodeClock {
    /// A clock of its own, which shows `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { own: Some(std::sync::Arc::new(own::OwnClock::new(now(), start))) }
    }

    /// From now on the clock gains this many parts per million (or loses them, if negative). Has no effect on the clock of
    /// the process.
    pub fn drift(&self, ppm: i32) {
        if let Some(own) = &self.own {
            own.drift(now(), ppm);
        }
    }
}

/// The clock of a node in tests.
#[cfg(feature = "testing")]
mod own {
    use std::{
        sync::{Mutex, PoisonError},
        time::Duration,
    };

    use crate::time::Timestamp;

    #[derive(Debug)]
    pub(super) struct OwnClock(Mutex<Rate>);

    #[derive(Debug)]
    struct Rate {
        /// The true time at which the rate began, and the time that the clock showed then.
        since: Timestamp,
        shown: Timestamp,
        ppm: i32,
    }

    impl Rate {
        fn at(&self, now: Timestamp) -> Timestamp {
            let rate = 1.0 + f64::from(self.ppm) / 1e6;
            self.shown + Duration::from_nanos((now.saturating_since(self.since).as_nanos() as f64 * rate) as u64)
        }
    }

    impl OwnClock {
        pub(super) fn new(now: Timestamp, shown: Timestamp) -> Self {
            Self(Mutex::new(Rate { since: now, shown, ppm: 0 }))
        }

        pub(super) fn at(&self, now: Timestamp) -> Timestamp {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).at(now)
        }

        pub(super) fn drift(&self, now: Timestamp, ppm: i32) {
            let mut rate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *rate = Rate { since: now, shown: rate.at(now), ppm: ppm.max(-999_999) };
        }
    }
}

#[cfg(feature = "testing")]
pub use followed::Followed;

/// A clock that follows a runtime's clock, for tests.
#[cfg(feature = "testing")]
mod followed {
    use std::{cell::Cell, time::Duration};

    use tokio::{
        runtime::{Handle, Id},
        time::Instant,
    };

    use crate::time::Timestamp;

    thread_local! {
        /// Where the followed clock starts, its runtime, and the number of [`Followed`] values.
        static ORIGIN: Cell<Option<(Instant, Id, usize)>> = const { Cell::new(None) };
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
                // A value that outlives its runtime must not set the clock of the next one.
                let (now, runtime) = (Instant::now(), Handle::current().id());
                let (since, followers) = match origin.get() {
                    Some((since, of, followers)) if of == runtime => (since, followers),
                    Some((_, _, followers)) => (now, followers),
                    None => (now, 0),
                };
                origin.set(Some((since, runtime, followers + 1)));
            });
            Self(())
        }
    }

    impl Drop for Followed {
        fn drop(&mut self) {
            // Ignore errors: while a thread ends, its thread-local may already be destroyed.
            let _ = ORIGIN.try_with(|origin| {
                let left = origin.get().filter(|(_, _, followers)| *followers > 1);
                origin.set(left.map(|(since, runtime, followers)| (since, runtime, followers - 1)));
            });
        }
    }

    pub(super) fn now() -> Option<Timestamp> {
        let (since, ..) = ORIGIN.try_with(Cell::get).ok()??;
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
