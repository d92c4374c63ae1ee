//! The platform-dependent part: the clock.
//!
//! Linux is tested. On macOS too, the monotonic clock includes suspended time. On other systems it may stop while a
//! node is suspended, and the node may then use an expired lease. Windows would need `QueryInterruptTimePrecise`.
//! Sockets depend on the platform only inside quinn and socket2.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since an arbitrary origin before the start of this process.
pub(crate) fn nanos() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = ClockId::Monotonic;
    let time = clock_gettime(id);
    // Neither part is negative: both clocks start at zero at boot.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
