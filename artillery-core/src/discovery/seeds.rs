use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::Stream;

use super::{Candidate, Candidates, Discovery, Seed};

/// A fixed list of seeds. Each stream reports each seed once, and none is withdrawn. The caller decides how often to
/// dial a seed. A host name is resolved at every [`Candidate::resolve`].
#[derive(Debug, Clone, Default)]
pub struct SeedDiscovery {
    seeds: Vec<Seed>,
}

impl SeedDiscovery {
    /// Yields these seeds.
    pub fn new(seeds: impl IntoIterator<Item = Seed>) -> Self {
        Self { seeds: seeds.into_iter().collect() }
    }
}

impl Discovery for SeedDiscovery {
    fn candidates(&self) -> Candidates {
        Box::pin(ListedCandidates(self.seeds.iter().map(Seed::candidate).collect()))
    }
}

struct ListedCandidates(VecDeque<Candidate>);

impl Stream for ListedCandidates {
    type Item = Candidate;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Candidate>> {
        Poll::Ready(self.0.pop_front())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}
