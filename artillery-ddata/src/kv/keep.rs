//! Copies the keys and values of a call.

use bytes::Bytes;

use crate::types::keep::{SHORT, copied};

pub(super) fn copy(key: impl AsRef<[u8]>) -> Bytes {
    copied(key.as_ref())
}

/// A copy of a key, and its value. If both together are short, the value is copied too: they then share one allocation
/// while the chain keeps them, and don't keep the value's original buffer alive.
pub(super) fn pair(key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> (Bytes, Bytes) {
    let (key, value) = (key.as_ref(), value.into());
    let mut both = [0; SHORT];
    let Some(place) = both.get_mut(..key.len() + value.len()) else { return (copied(key), value) };
    let (key_place, value_place) = place.split_at_mut(key.len());
    key_place.copy_from_slice(key);
    value_place.copy_from_slice(&value);
    let mut copy = copied(place);
    let value = copy.split_off(key.len());
    (copy, value)
}
