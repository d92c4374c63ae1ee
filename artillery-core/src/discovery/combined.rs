use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream;

use super::{Announcement, Candidate, Candidates, Discovery};

/// Announces on all of its sources and merges their candidates.
#[derive(Clone, Default)]
pub(crate) struct Combined {
    sources: Vec<Arc<dyn Discovery>>,
}

impl Combined {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with(mut self, source: impl Discovery) -> Self {
        self.sources.push(Arc::new(source));
        self
    }
}

impl fmt::Debug for Combined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Combined({} sources)", self.sources.len())
    }
}

impl Discovery for Combined {
    fn announce(&self, me: &Announcement) {
        self.sources.iter().for_each(|source| source.announce(me));
    }

    fn candidates(&self) -> Candidates {
        Box::pin(MergedCandidates { streams: self.sources.iter().map(|source| source.candidates()).collect(), next: 0 })
    }
}

/// Polls the streams in turn, so that a busy one does not starve the others. It ends once all of them have ended.
struct MergedCandidates {
    streams: Vec<Candidates>,
    next: usize,
}

impl Stream for MergedCandidates {
    type Item = Candidate;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Candidate>> {
        let mut unasked = self.streams.len();
        while unasked > 0 {
            let at = self.next % self.streams.len();
            match self.streams[at].as_mut().poll_next(context) {
                Poll::Ready(Some(candidate)) => {
                    self.next = at + 1;
                    return Poll::Ready(Some(candidate));
                }
                // The next stream has moved to this index.
                Poll::Ready(None) => {
                    drop(self.streams.remove(at));
                    self.next = at;
                }
                Poll::Pending => self.next = at + 1,
            }
            unasked -= 1;
        }
        if self.streams.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    }
}
