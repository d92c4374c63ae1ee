//! The lock of a [`Slot`](super::slot::Slot). `tests/slot.rs` puts loom's in its place.

pub(super) use std::sync::RwLock;
