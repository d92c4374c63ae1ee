//! Streams that fetch their items in pages, on demand.

use std::task::{Context, Poll, ready};

use super::Call;
use crate::Error;

pub(super) enum NextItem<T> {
    Item(T),
    Unknown,
    End,
}

pub(super) trait PageSource: Send + Sized + 'static {
    type Item;

    fn take(&mut self) -> NextItem<Self::Item>;

    /// Fetches more items, or determines that none are left.
    fn fetch(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A stream over a source. If the caller stops polling, its next poll continues the same fetch.
pub(super) struct Fetched<S> {
    /// `None` while a fetch owns the source.
    source: Option<S>,
    fetching: Option<Call<(S, Result<(), Error>)>>,
    failed: bool,
}

impl<S: PageSource> Fetched<S> {
    pub(super) fn new(source: S) -> Self {
        Self { source: Some(source), fetching: None, failed: false }
    }

    /// Changes the source's settings. Must be called before the first poll.
    pub(super) fn set(mut self, set: impl FnOnce(&mut S)) -> Self {
        if let Some(source) = &mut self.source {
            set(source);
        }
        self
    }

    pub(super) fn is_fetching(&self) -> bool {
        self.fetching.is_some()
    }

    /// Polls for the next item. The stream ends after an error.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<S::Item, Error>>> {
        loop {
            if let Some(fetching) = &mut self.fetching {
                let (source, fetched) = ready!(fetching.as_mut().poll(context));
                self.fetching = None;
                self.source = Some(source);
                if let Err(error) = fetched {
                    self.failed = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            let Some(mut source) = self.source.take_if(|_| !self.failed) else { return Poll::Ready(None) };
            let next = source.take();
            if let NextItem::Unknown = next {
                self.fetching = Some(Box::pin(async move {
                    let fetched = source.fetch().await;
                    (source, fetched)
                }));
                continue;
            }
            self.source = Some(source);
            return Poll::Ready(match next {
                NextItem::Item(item) => Some(Ok(item)),
                _ => None,
            });
        }
    }
}
