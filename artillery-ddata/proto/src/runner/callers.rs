//! The callers that wait for a reply.

use std::hash::{Hash, Hasher};

use slab::Slab;

use crate::{ClusterId, replica::Token};

/// The callers, each with the history to which its request is restricted, if any.
#[derive(Clone, Debug)]
pub(super) struct Callers<C>(Slab<(C, Option<ClusterId>)>);

impl<C: Hash> Hash for Callers<C> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|caller| caller.hash(state));
    }
}

impl<C> Callers<C> {
    pub(super) fn new() -> Self {
        Self(Slab::new())
    }

    pub(super) fn add(&mut self, caller: C, history: Option<ClusterId>) -> Token {
        Token(self.0.insert((caller, history)) as u64)
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<(C, Option<ClusterId>)> {
        self.0.try_remove(token.0 as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &C> {
        self.0.iter().map(|(_, (caller, _))| caller)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
