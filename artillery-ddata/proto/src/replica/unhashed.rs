use std::{
    hash::{Hash, Hasher},
    ops::{Deref, DerefMut},
};

/// Excludes a field from the hash by which the model checker recognizes equivalent members
/// (docs/adr/0019-model-checking.md). Only for constants, derived state, state that affects only times, reports or
/// precedence, and state whose effects the model excludes: resends, and the promotion of a joiner.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unhashed<T>(pub(crate) T);

impl<T> Hash for Unhashed<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl<T> Deref for Unhashed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Unhashed<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
