//! The lock of a [`Slot`](super::slot::Slot). `tests/slot.rs` replaces it by that of loom.

pub(super) use std::sync::RwLock;
