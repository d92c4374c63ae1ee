//! Names and ids of nodes: the one place where a node draws at random.

#[allow(clippy::disallowed_methods, reason = "ids of nodes must differ from all others")]
pub(super) fn random() -> u64 {
    rand::random()
}

/// Twice as long.
pub(super) fn wide() -> u128 {
    (u128::from(random()) << 64) | u128::from(random())
}
