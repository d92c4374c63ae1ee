//! Keys and values that outlive the frame in which they were received.

use std::ops::Range;

use bytes::Bytes;

/// Received values below this length, in bytes, are always copied out of their frame. Larger ones are copied if they
/// make up less than half of the frame's body: kept data must not hold much more memory than its own length.
pub(crate) const COPY_BELOW: usize = 16 << 10;

/// The longest copy with an inline reference count, in bytes.
pub const SHORT: usize = 127;

/// The key and value at `at` in a body whose length has been checked; the value begins at `value_at`. If both are
/// copied, they share one allocation.
pub(crate) fn keep(body: &Bytes, at: Range<usize>, value_at: usize) -> (Bytes, Bytes) {
    let value = at.end - value_at;
    if value >= COPY_BELOW && value * 2 >= body.len() {
        return (Bytes::copy_from_slice(&body[at.start..value_at]), body.slice(value_at..at.end));
    }
    let mut key = copied(&body[at.clone()]);
    let value = key.split_off(value_at - at.start);
    (key, value)
}

/// A copy that will soon be shared. A short one is stored next to its reference count; [`Bytes`] alone would allocate
/// that count separately at the first clone.
pub fn copied(bytes: &[u8]) -> Bytes {
    match bytes.len() {
        0 => Bytes::new(),
        1..=31 => Short::<31>::copied(bytes),
        32..=63 => Short::<63>::copied(bytes),
        64..=SHORT => Short::<SHORT>::copied(bytes),
        _ => Bytes::copy_from_slice(bytes),
    }
}

struct Short<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Short<N> {
    fn copied(from: &[u8]) -> Bytes {
        let mut bytes = [0; N];
        bytes[..from.len()].copy_from_slice(from);
        Bytes::from_owner(Self { len: from.len() as u8, bytes })
    }
}

impl<const N: usize> AsRef<[u8]> for Short<N> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_of_any_length_are_what_they_were() {
        let body = Bytes::from_iter(0..=255);
        for (len, key) in (0..=255).flat_map(|len| [0, len / 3, len].map(|key| (len, key))) {
            let from = 255 - len;
            assert_eq!(keep(&body, from..255, from + key), (body.slice(from..from + key), body.slice(from + key..255)));
        }
    }
}
