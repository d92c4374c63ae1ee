//! The one place that reads a clock for leases and timers.

use crate::time::Timestamp;

/// The time on this node's own clock, which counts suspended time where the system offers such a clock (Linux).
///
/// Elsewhere it is the monotonic clock: a node that was suspended may then believe in a lease that is out.
pub fn now() -> Timestamp {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    // Neither part is negative: both clocks start at zero when the system boots.
    Timestamp::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
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
