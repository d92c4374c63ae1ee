//! The positions of keys in hash order.

use siphasher::sip::SipHasher24;

/// The position of `key` in hash order: SipHash-2-4 with a key of sixteen zero bytes. It is never 0: a hash of 0
/// becomes 1.
///
/// Cursors contain positions, so the function never changes and is the same at every node. It has no secret, so clients
/// can choose keys with similar positions. Finding another key of the *same* position takes about 2⁶⁴ attempts.
pub fn position(key: &[u8]) -> u64 {
    SipHasher24::new().hash(key).max(1)
}

#[cfg(test)]
mod tests {
    use super::position;

    #[test]
    fn published_values() {
        assert_eq!(position(b""), 0x1e92_4b9d_7377_00d7);
        assert_eq!(position(b"artillery"), position(b"artillery"));
        assert_ne!(position(b"a"), position(b"b"));
    }
}
