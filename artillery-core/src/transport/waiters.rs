use std::pin::pin;

use tokio::sync::Notify;

/// Wakes waiting tasks in the order in which they started to wait. `watch` wakes in random order, but a run in virtual
/// time must be repeatable.
#[derive(Debug, Default)]
pub(super) struct Waiters(Notify);

impl Waiters {
    /// Wakes all waiting tasks. Must be called after each change.
    pub(super) fn wake(&self) {
        self.0.notify_waiters();
    }

    /// Waits until `look` returns `Some`.
    pub(super) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let mut woken = pin!(self.0.notified());
            // From here on no wake-up is missed.
            woken.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            woken.await;
        }
    }
}
