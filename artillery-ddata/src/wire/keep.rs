//! Keys and values taken out of received frames, to be kept for long.

use std::ops::Range;

use bytes::Bytes;

/// Received values below this many bytes are always copied out of their frame, and so are larger ones that make up less
/// than half of its body: what is kept of a frame must not keep much more than itself in memory.
pub(super) const COPY_BELOW: usize = 16 << 10;

/// The key and the value behind it that stand at `at` in a body whose length has been checked; the value begins at
/// `value_at`. A copy of both is one allocation.
pub(super) fn keep(body: &Bytes, at: Range<usize>, value_at: usize) -> (Bytes, Bytes) {
    let value = at.end - value_at;
    if value >= COPY_BELOW && value * 2 >= body.len() {
        return (Bytes::copy_from_slice(&body[at.start..value_at]), body.slice(value_at..at.end));
    }
    let mut key = Bytes::copy_from_slice(&body[at.clone()]);
    let value = key.split_off(value_at - at.start);
    (key, value)
}
