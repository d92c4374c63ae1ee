//! Where keys stand in hash order.

use siphasher::sip::SipHasher24;

/// The position of `key` in hash order, never 0: SipHash-2-4 under the key of sixteen zero bytes, of which 0 counts as 1.
///
/// Fixed for good, and the same at every node: cursors are made of it. As the hash is a known one, nobody is kept from
/// choosing keys of similar positions; to find many of the *same* one takes work of the order of 2⁶⁴ for each.
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
