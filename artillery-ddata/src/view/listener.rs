//! The callbacks of views.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::ViewChange;

pub(super) type OnChange = Box<dyn FnMut(&ViewChange) + Send>;

/// A callback. The tasks of several chains call it, one at a time.
pub(super) struct Listener {
    /// `None`: it has panicked.
    on_change: Mutex<Option<OnChange>>,
    /// The number of chains that have shown it all their entries.
    complete: AtomicUsize,
}

impl Listener {
    pub(super) fn new(on_change: OnChange) -> Self {
        Self { on_change: Mutex::new(Some(on_change)), complete: AtomicUsize::new(0) }
    }

    pub(super) fn call(&self, changes: &[ViewChange]) {
        let mut on_change = self.on_change.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(call) = &mut *on_change else { return };
        // A panic must not end the copy, which other views share.
        let called = catch_unwind(AssertUnwindSafe(|| changes.iter().for_each(call)));
        if called.is_err() {
            *on_change = None;
            tracing::error!("the callback of a view has panicked, and isn't called again");
        }
    }

    pub(super) fn complete_one(&self) {
        self.complete.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of chains that have shown it all their entries.
    pub(super) fn complete(&self) -> usize {
        self.complete.load(Ordering::Acquire)
    }
}
