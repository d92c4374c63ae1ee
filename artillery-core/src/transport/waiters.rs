//! Tasks that wait for something to become so.

use std::pin::pin;

use tokio::sync::Notify;

/// Wakes who waits, in the order in which they began to. The order of `watch` is random, and a run in virtual time is to be
/// made again.
#[derive(Debug, Default)]
pub(super) struct Waiters(Notify);

impl Waiters {
    /// To be called after each change.
    pub(super) fn wake(&self) {
        self.0.notify_waiters();
    }

    /// Waits until `look` finds something.
    pub(super) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let mut woken = pin!(self.0.notified());
            // From here on nothing is missed.
            woken.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            woken.await;
        }
    }
}
