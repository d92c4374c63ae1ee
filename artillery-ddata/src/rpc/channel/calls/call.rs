//! The caller's side of a call.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::time::Instant;

use super::{CallOutcome, CallStage, Caller, LaneTable, NotSent};
use crate::error::Unknown;

/// One call, held by its caller. Dropping it cancels the call.
pub(crate) struct LaneCall {
    pub(super) calls: Arc<LaneTable>,
    /// `None` once the call is over.
    pub(super) key: Option<usize>,
}

impl LaneCall {
    /// Waits for the outcome; `None` if the call times out.
    pub(in super::super) async fn in_time(&mut self) -> Option<CallOutcome> {
        poll_fn(|context| self.poll(context)).await
    }

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

    /// Like [`in_time`](Self::in_time), for a caller that polls in place.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<CallOutcome>> {
        let Some(key) = self.key else { return Poll::Ready(None) };
        let polled = self.calls.with(|state| {
            let Some(call) = state.calls.get_mut(key) else { return Poll::Ready(None) };
            let outcome = match &mut call.stage {
                CallStage::Over(_) => None,
                CallStage::Apart(answer) => match Pin::new(answer).poll(context) {
                    Poll::Ready(outcome) => Some(outcome.unwrap_or(CallOutcome::Unanswered(Unknown::NoAnswer))),
                    Poll::Pending if call.is_late => return Poll::Ready(None),
                    Poll::Pending => {
                        call.caller = Caller::Waits(Some(context.waker().clone()));
                        return Poll::Pending;
                    }
                },
                CallStage::Queued(..) | CallStage::GivenUp | CallStage::Sent if call.is_late => {
                    return Poll::Ready(None);
                }
                CallStage::Queued(..) | CallStage::GivenUp | CallStage::Sent => {
                    call.caller = Caller::Waits(Some(context.waker().clone()));
                    return Poll::Pending;
                }
            };
            let call = state.calls.remove(key);
            Poll::Ready(outcome.or(if let CallStage::Over(outcome) = call.stage { Some(outcome) } else { None }))
        });
        if let Poll::Ready(Some(_)) = polled {
            self.key = None;
        }
        polled
    }

    /// Cancels the call. Returns its outcome if that is certain, otherwise unanswered for `reason`.
    pub(in super::super) fn give_up(mut self, reason: Unknown) -> CallOutcome {
        self.leave().unwrap_or(CallOutcome::Unanswered(reason))
    }

    /// Cancels the call. Returns its outcome if that is known.
    fn leave(&mut self) -> Option<CallOutcome> {
        let key = self.key.take()?;
        self.calls.with(|state| {
            let call = state.calls.get_mut(key)?;
            match call.stage {
                CallStage::Sent => {
                    call.caller = Caller::Gone;
                    return None;
                }
                CallStage::Queued(..) => {
                    call.give_up();
                    state.given_up += 1;
                    // Remove them together: removing each by itself would take time proportional to the length of the
                    // queue.
                    if state.given_up * 2 > state.queue.len() {
                        state.forget_given_up();
                    }
                    return Some(CallOutcome::NotSent(NotSent::TimedOut));
                }
                CallStage::GivenUp | CallStage::Apart(_) | CallStage::Over(_) => {}
            }
            match state.calls.remove(key).stage {
                CallStage::Over(outcome) => Some(outcome),
                _ => None,
            }
        })
    }
}

impl Drop for LaneCall {
    fn drop(&mut self) {
        self.leave();
    }
}
