//! Reads log entries in order, also those to come.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::machine::AppliedConfigs;
use crate::control::log::{BoxFuture, ConfigLogError, Follow, LogEntry, LogIndex};

pub(super) struct Follower {
    applied: Arc<AppliedConfigs>,
    next: LogIndex,
    wait: Option<BoxFuture<'static, bool>>,
}

impl Follower {
    pub(super) fn new(applied: Arc<AppliedConfigs>, from: LogIndex) -> Self {
        Self { applied, next: from.max(LogIndex(1)), wait: None }
    }

    /// Waits for the next entry; `false` if there never will be one.
    fn wait(&self) -> BoxFuture<'static, bool> {
        let (mut progress, next) = (self.applied.watch(), self.next);
        Box::pin(async move {
            let reached = progress.wait_for(|progress| progress.last >= next || progress.ended).await;
            reached.is_ok_and(|progress| progress.last >= next)
        })
    }
}

impl Follow for Follower {
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<LogEntry, ConfigLogError>>> {
        loop {
            match self.applied.entry(self.next) {
                Ok(Some(entry)) => {
                    self.next = entry.index.next();
                    return Poll::Ready(Some(Ok(entry)));
                }
                Ok(None) => {}
                Err(first) => return Poll::Ready(Some(Err(ConfigLogError::Compacted { first }))),
            }
            let mut wait = self.wait.take().unwrap_or_else(|| self.wait());
            match wait.as_mut().poll(cx) {
                Poll::Pending => {
                    self.wait = Some(wait);
                    return Poll::Pending;
                }
                ready => {
                    if !ready!(ready) {
                        return Poll::Ready(None);
                    }
                }
            }
        }
    }
}
