//! Tokio's `watch` channel, with an order: receivers are woken in the order in which they began to wait. Tokio wakes them
//! in random order, but a run on virtual time must be repeatable.

use std::{pin::pin, sync::Arc};

pub use tokio::sync::watch::{Ref, error::RecvError};
use tokio::sync::{Notify, watch};

/// Creates a channel with this initial value.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

/// Sets the value. Clones share the channel.
#[derive(Debug)]
pub struct Sender<T> {
    inner: watch::Sender<T>,
    // Dropped after `inner`, so that receivers see the closed channel.
    waiters: WakeAtDrop,
}

/// Reads the value, and waits for changes.
#[derive(Debug)]
pub struct Receiver<T> {
    inner: watch::Receiver<T>,
    waiters: Arc<Notify>,
}

#[derive(Debug)]
struct WakeAtDrop(Arc<Notify>);

impl Drop for WakeAtDrop {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), waiters: WakeAtDrop(self.waiters.0.clone()) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), waiters: self.waiters.clone() }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Sender<T> {
    /// Creates a channel without receivers.
    pub fn new(value: T) -> Self {
        Self { inner: watch::Sender::new(value), waiters: WakeAtDrop(Arc::default()) }
    }

    /// A new receiver, which has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { inner: self.inner.subscribe(), waiters: self.waiters.0.clone() }
    }

    /// The present value.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.inner.borrow()
    }

    /// Waits until all receivers are dropped.
    pub async fn closed(&self) {
        self.inner.closed().await;
    }

    /// Replaces the value, and returns the former one.
    pub fn send_replace(&self, value: T) -> T {
        let former = self.inner.send_replace(value);
        self.waiters.0.notify_waiters();
        former
    }

    /// Changes the value.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.inner.send_modify(change);
        self.waiters.0.notify_waiters();
    }

    /// Changes the value. If `change` returns `true`, receivers are notified.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = self.inner.send_if_modified(change);
        if modified {
            self.waiters.0.notify_waiters();
        }
        modified
    }
}

impl<T> Receiver<T> {
    /// The present value.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.inner.borrow()
    }

    /// The present value, which is then marked as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.inner.borrow_and_update()
    }

    /// Whether the value has changed since it was last seen.
    ///
    /// # Errors
    /// All senders were dropped.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        self.inner.has_changed()
    }

    /// Marks the present value as not seen.
    pub fn mark_changed(&mut self) {
        self.inner.mark_changed();
    }

    /// Waits for a value that was not seen yet.
    ///
    /// # Errors
    /// All senders were dropped, and the last value was seen.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        let Self { inner, waiters } = self;
        loop {
            let mut woken = pin!(waiters.notified());
            // From here on no change is missed.
            woken.as_mut().enable();
            let open = inner.has_changed();
            if inner.borrow().has_changed() {
                inner.mark_unchanged();
                return Ok(());
            }
            open?;
            woken.await;
        }
    }

    /// Waits until the value satisfies `wanted`, marks it as seen, and returns it.
    ///
    /// # Errors
    /// All senders were dropped, and the last value doesn't satisfy `wanted`.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
        while !wanted(&self.inner.borrow_and_update()) && self.changed().await.is_ok() {}
        // Does not wait, unless another thread has changed the value since.
        self.inner.wait_for(wanted).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn receivers_are_woken_in_order() {
        let (sender, receiver) = channel(0);
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                let (mut receiver, order) = (receiver.clone(), order.clone());
                tokio::spawn(async move {
                    receiver.changed().await.unwrap();
                    order.lock().unwrap().push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        sender.send_replace(1);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn the_last_value_is_seen_after_the_sender_is_gone() {
        let (sender, mut receiver) = channel(0);
        let mut waiting = receiver.clone();
        let waits = tokio::spawn(async move { waiting.wait_for(|&value| value == 2).await.is_err() });
        tokio::task::yield_now().await;
        sender.send_replace(1);
        drop(sender);
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow(), 1);
        assert!(receiver.changed().await.is_err());
        assert!(waits.await.unwrap());
    }
}
