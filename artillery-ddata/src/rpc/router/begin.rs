//! How each call begins, and how it ends once the router is stopped.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
};

use tokio::{runtime::Handle, task::coop};

use super::Router;
use crate::{
    Error,
    error::{Advice, NotApplied},
};

/// Spends a unit of tokio's budget in any case. Otherwise a caller that repeats calls that end at once would starve the
/// other tasks of its thread, including those for which it waits.
pub(crate) fn poll_budget(context: &mut Context<'_>) -> Poll<()> {
    ready!(coop::poll_proceed(context)).made_progress();
    Poll::Ready(())
}

impl Router {
    /// Spends a unit of tokio's budget. Fails outside of a runtime, and once the router is stopped.
    pub(crate) fn poll_begin(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(poll_budget(context));
        Poll::Ready(self.may_begin())
    }

    pub(crate) async fn begin_call(&self) -> Result<(), Error> {
        poll_fn(|context| self.poll_begin(context)).await
    }

    pub(crate) fn may_begin(&self) -> Result<(), Error> {
        if self.is_stopped() {
            #[cfg(feature = "testing")]
            if let Some(observer) = self.observer.get() {
                observer.called_after_end();
            }
            return Err(Error::not_applied(NotApplied::Stopped));
        }
        match Handle::try_current() {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::not_applied(NotApplied::OutsideRuntime)),
        }
    }

    /// The error of a call that applied nothing. Once the router is stopped, no further attempt can succeed.
    pub(super) fn unless_stopped(&self, error: Error) -> Error {
        let is_over = error.is_not_applied() && error.way_on() == Advice::Retry && self.is_stopped();
        if is_over { Error::not_applied(NotApplied::Stopped) } else { error }
    }
}
