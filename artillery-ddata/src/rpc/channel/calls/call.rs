//! One call, as its caller has it.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::time::Instant;

use super::{Caller, Calls, NotSent, Outcome, Stage};
use crate::error::Unknown;

/// One call, for its caller. Dropped, it is given up.
pub(crate) struct Call {
    pub(super) calls: Arc<Calls>,
    /// `None` once it is over.
    pub(super) key: Option<usize>,
}

impl Call {
    /// What comes of it until its time is up; `None`: nothing so far.
    pub(in super::super) async fn in_time(&mut self) -> Option<Outcome> {
        poll_fn(|context| self.poll(context)).await
    }

    /// Gives it more time.
    pub(in super::super) fn extend(&self, until: Instant) {
        let is_sooner = self.calls.with(|state| {
            let Some(call) = self.key.and_then(|key| state.calls.get_mut(key)) else { return false };
            (call.until, call.is_late) = (until, false);
            state.wake_by(until)
        });
        if is_sooner {
            self.calls.sooner.notify_one();
        }
    }

    /// The same for one that is polled in place.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Outcome>> {
        let Some(key) = self.key else { return Poll::Ready(None) };
        let polled = self.calls.with(|state| {
            let Some(call) = state.calls.get_mut(key) else { return Poll::Ready(None) };
            let outcome = match &mut call.stage {
                Stage::Over(_) => None,
                Stage::Apart(answer) => match Pin::new(answer).poll(context) {
                    Poll::Ready(outcome) => Some(outcome.unwrap_or(Outcome::Unanswered(Unknown::NoAnswer))),
                    Poll::Pending if call.is_late => return Poll::Ready(None),
                    Poll::Pending => {
                        call.caller = Caller::Waits(Some(context.waker().clone()));
                        return Poll::Pending;
                    }
                },
                Stage::Queued(..) | Stage::GivenUp | Stage::Sent if call.is_late => return Poll::Ready(None),
                Stage::Queued(..) | Stage::GivenUp | Stage::Sent => {
                    call.caller = Caller::Waits(Some(context.waker().clone()));
                    return Poll::Pending;
                }
            };
            let call = state.calls.remove(key);
            Poll::Ready(outcome.or(if let Stage::Over(outcome) = call.stage { Some(outcome) } else { None }))
        });
        if let Poll::Ready(Some(_)) = polled {
            self.key = None;
        }
        polled
    }

    /// Gives it up: what is certain of it, or why nothing is.
    pub(in super::super) fn give_up(mut self, reason: Unknown) -> Outcome {
        self.leave().unwrap_or(Outcome::Unanswered(reason))
    }

    /// What was known of it when it was given up; `None`: nothing.
    fn leave(&mut self) -> Option<Outcome> {
        let key = self.key.take()?;
        self.calls.with(|state| {
            let call = state.calls.get_mut(key)?;
            match call.stage {
                Stage::Sent => {
                    call.caller = Caller::Gone;
                    return None;
                }
                Stage::Queued(..) => {
                    call.give_up();
                    state.given_up += 1;
                    // To look for each of them in the queue would take its length for each.
                    if state.given_up * 2 > state.queue.len() {
                        state.forget_given_up();
                    }
                    return Some(Outcome::NotSent(NotSent::TimedOut));
                }
                Stage::GivenUp | Stage::Apart(_) | Stage::Over(_) => {}
            }
            match state.calls.remove(key).stage {
                Stage::Over(outcome) => Some(outcome),
                _ => None,
            }
        })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.leave();
    }
}
