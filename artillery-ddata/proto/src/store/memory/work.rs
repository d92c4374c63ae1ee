//! Counts comparisons of keys: a measure of cost that doesn't depend on the machine's load.

use std::cell::Cell;

thread_local! {
    static COMPARISONS: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn count() {
    COMPARISONS.set(COMPARISONS.get() + 1);
}

/// The number of comparisons in a call, on this thread.
pub(crate) fn of<T>(call: impl FnOnce() -> T) -> u64 {
    let before = COMPARISONS.get();
    drop(call());
    COMPARISONS.get() - before
}
