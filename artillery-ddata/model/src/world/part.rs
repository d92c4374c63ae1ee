//! Parts of a world. Most steps change one or two of them; the others, with their fingerprints, are shared with the
//! previous world.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use artillery_proto::node::NodeMachine;

/// A component of a world. A clone is equal to the original and shares no mutable state with it.
pub(crate) trait Piece: Clone {
    /// Writes everything on which the later steps of the piece depend.
    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result;
}

impl Piece for NodeMachine {
    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.describe(out)
    }
}

/// A piece with copy on write.
#[derive(Debug)]
pub(crate) struct Part<T> {
    piece: Arc<T>,
    fingerprint: OnceLock<u64>,
}

impl<T: Piece> Part<T> {
    pub(crate) fn new(piece: T) -> Self {
        Self { piece: Arc::new(piece), fingerprint: OnceLock::new() }
    }

    /// 64 bits of the piece's description.
    pub(crate) fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| fingerprint(|out| self.piece.describe(out)))
    }
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self { piece: self.piece.clone(), fingerprint: self.fingerprint.clone() }
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.piece
    }
}

impl<T: Piece> DerefMut for Part<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.fingerprint = OnceLock::new();
        Arc::make_mut(&mut self.piece)
    }
}

/// 64 bits of a piece that leaves out of its hash whatever doesn't affect its later steps.
pub(crate) fn hash_of(piece: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    piece.hash(&mut hasher);
    hasher.finish()
}

/// 64 bits of a description.
pub(crate) fn fingerprint(describe: impl FnOnce(&mut String) -> fmt::Result) -> u64 {
    let mut out = String::with_capacity(1 << 12);
    // Writing to a string never fails.
    let _ = describe(&mut out);
    let mut hasher = DefaultHasher::new();
    hasher.write(out.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug)]
    struct Number(u64);

    impl Piece for Number {
        fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
            write!(out, "{}", self.0)
        }
    }

    #[test]
    fn changed_part_is_copied_and_gets_another_fingerprint() {
        let mut one = Part::new(Number(1));
        let before = one.fingerprint();
        let other = one.clone();
        one.0 = 2;
        assert_eq!((one.0, other.0), (2, 1));
        assert_ne!(one.fingerprint(), before);
        assert_eq!(other.fingerprint(), before);
        one.0 = 1;
        assert_eq!(one.fingerprint(), before, "equal pieces have equal fingerprints");
    }
}
