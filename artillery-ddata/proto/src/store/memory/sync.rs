//! The lock of a [`Slot`](super::slot::Slot). `tests/slot.rs` replaces it with loom's.

pub(super) use std::sync::RwLock;
