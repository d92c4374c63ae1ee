//! A stream of log entries that needs no futures crate.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{ConfigLogError, LogEntry};

/// Where a [`LogStream`] gets its entries.
pub trait Follow: Send {
    /// The next entry; `None` when the log has ended.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<LogEntry, ConfigLogError>>>;
}

/// Entries of a configuration log, in order.
pub struct LogStream(Pin<Box<dyn Follow>>);

impl LogStream {
    /// The entries that `source` yields.
    pub fn new(source: impl Follow + 'static) -> Self {
        Self(Box::pin(source))
    }

    /// These entries; then the stream waits for ever.
    pub fn fixed(entries: Vec<LogEntry>) -> Self {
        Self::new(Fixed(entries.into()))
    }

    /// The next entry; `None` when the log has ended. Dropping the future loses nothing.
    pub fn next_entry(&mut self) -> NextEntry<'_> {
        NextEntry(self)
    }

    /// Like [`next_entry`](Self::next_entry), to be polled by hand.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<LogEntry, ConfigLogError>>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for LogStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStream").finish_non_exhaustive()
    }
}

impl futures_core::Stream for LogStream {
    type Item = Result<LogEntry, ConfigLogError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

/// Waits for the next entry of a [`LogStream`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct NextEntry<'a>(&'a mut LogStream);

impl Future for NextEntry<'_> {
    type Output = Option<Result<LogEntry, ConfigLogError>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_next(cx)
    }
}

struct Fixed(VecDeque<LogEntry>);

impl Follow for Fixed {
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<LogEntry, ConfigLogError>>> {
        match self.0.pop_front() {
            Some(entry) => Poll::Ready(Some(Ok(entry))),
            // A log that never changes hasn't ended: the stream waits, and is never woken.
            None => Poll::Pending,
        }
    }
}
