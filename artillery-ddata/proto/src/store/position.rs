//! The positions of keys in hash order.

use siphasher::sip::SipHasher24;

/// The position of `key` in hash order: SipHash-2-4 under the key of sixteen zero bytes. It is never 0: a hash of 0
/// becomes 1.
///
/// The function never changes and is the same at every node, since cursors hold positions. The hash is public, so
/// clients can choose keys of similar positions. To find a further key of the *same* position takes work of the order
/// of 2⁶⁴.
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
