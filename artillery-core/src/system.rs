//! What depends on the operating system: the clock.
//!
//! Linux is tested. The monotonic clock of macOS counts suspended time, too. On other systems it may stop while a node is
//! suspended, and the node may use a lease that has expired. Windows would need `QueryInterruptTimePrecise`. Sockets
//! depend on the system only inside quinn and socket2.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment before this process began.
pub(crate) fn nanos() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = ClockId::Monotonic;
    let time = clock_gettime(id);
    // Neither part is negative: both clocks start at zero when the system boots.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
