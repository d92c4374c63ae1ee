//! Random numbers for a node's names, ids and seeds.

#[allow(clippy::disallowed_methods, reason = "ids of nodes must differ from all others")]
pub(super) fn random() -> u64 {
    rand::random()
}

/// A random number of 128 bits.
pub(super) fn wide() -> u128 {
    (u128::from(random()) << 64) | u128::from(random())
}
