//! The calls of one lane, unsent and unanswered, and their deadlines.
//!
//! A call has one entry here from its beginning to its end. All entries share one timer, and one lock that is never
//! held while waiting.

mod call;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

use slab::Slab;
use smallvec::SmallVec;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, oneshot},
    time::{Instant, sleep_until},
};

pub(crate) use self::call::LaneCall;
use super::{CallOutcome, NotSent, Question};
use crate::{
    budget::{self, Share},
    error::Unknown,
    message::request::Response,
};

/// The resources of a call: a slot among the outstanding calls, and its bytes.
pub(crate) type CallRoom = (OwnedSemaphorePermit, Share);

#[derive(Default)]
pub(super) struct LaneTable {
    state: Mutex<LaneCalls>,
    /// Wakes the sending task.
    queued: Notify,
    /// Wakes the timer task.
    sooner: Notify,
}

#[derive(Default)]
struct LaneCalls {
    calls: Slab<CallEntry>,
    queue: VecDeque<usize>,
    /// The number of cancelled calls in the queue. Each is removed when it reaches the front. All are removed once they
    /// are more than half of the queue.
    given_up: usize,
    by_number: BTreeMap<u64, usize>,
    /// When the timer next looks for expired calls. It may be too early, since an answer doesn't postpone it.
    wakes_at: Option<Instant>,
    /// Whether the sending task has found nothing to send, and waits.
    is_idle: bool,
    is_closed: bool,
}

struct CallEntry {
    stage: CallStage,
    until: Instant,
    is_late: bool,
    caller: Caller,
    /// The capacity. A sent call holds it until the answer begins to arrive or the connection is lost, even if the
    /// caller has cancelled the call. Otherwise a caller that keeps cancelling would exceed its share.
    room: Option<CallRoom>,
}

enum CallStage {
    /// The question, with the deadline for the node.
    Queued(Question, Instant),
    GivenUp,
    Sent,
    /// The answer arrives on a stream of its own.
    Apart(oneshot::Receiver<CallOutcome>),
    Over(CallOutcome),
}

enum Caller {
    /// The waker is called when the call has changed.
    Waits(Option<Waker>),
    Gone,
}

impl CallEntry {
    /// Marks a queued call as cancelled. The entry stays in the queue, but its question and its capacity are freed.
    fn give_up(&mut self) {
        (self.stage, self.caller, self.room) = (CallStage::GivenUp, Caller::Gone, None);
    }

    fn waker(&mut self) -> Option<Waker> {
        match &mut self.caller {
            Caller::Waits(waker) => waker.take(),
            Caller::Gone => None,
        }
    }
}

impl LaneCalls {
    /// Ends a call. If the call was cancelled, removes its entry. Returns the caller's waker.
    fn end(&mut self, key: usize, outcome: CallOutcome) -> Option<Waker> {
        let call = self.calls.get_mut(key)?;
        match call.caller {
            Caller::Gone => {
                self.calls.remove(key);
                None
            }
            Caller::Waits(_) => {
                call.stage = CallStage::Over(outcome);
                call.room = None;
                call.waker()
            }
        }
    }

    fn forget(&mut self, key: usize) {
        self.calls.remove(key);
        self.given_up = self.given_up.saturating_sub(1);
    }

    fn forget_given_up(&mut self) {
        let calls = &mut self.calls;
        self.queue.retain(|&key| {
            let stays = calls.get(key).is_some_and(|call| !matches!(call.stage, CallStage::GivenUp));
            if !stays {
                calls.try_remove(key);
            }
            stays
        });
        self.given_up = 0;
    }

    /// Makes the timer fire by `until`; returns whether that is sooner than before.
    fn wake_by(&mut self, until: Instant) -> bool {
        let is_sooner = self.wakes_at.is_none_or(|at| until < at);
        if is_sooner {
            self.wakes_at = Some(until);
        }
        is_sooner
    }

    fn fail(&mut self, fails: impl Fn(&CallStage) -> Option<CallOutcome>) -> Vec<Waker> {
        let failed = self.calls.iter().filter_map(|(key, call)| Some((key, fails(&call.stage)?)));
        let failed: Vec<_> = failed.collect();
        failed.into_iter().filter_map(|(key, outcome)| self.end(key, outcome)).collect()
    }
}

impl LaneTable {
    fn with<T>(&self, f: impl FnOnce(&mut LaneCalls) -> T) -> T {
        // No code that holds the lock can panic halfway through a change.
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a call; `None` if the lane is closed. `deadline` is for the node; the call times out at `until`.
    pub(super) fn begin(
        self: &Arc<Self>,
        question: Question,
        deadline: Instant,
        until: Instant,
        room: CallRoom,
    ) -> Option<LaneCall> {
        let (key, is_idle, is_sooner) = self.with(|state| {
            if state.is_closed {
                return None;
            }
            let stage = CallStage::Queued(question, deadline);
            let entry = CallEntry { stage, until, is_late: false, caller: Caller::Waits(None), room: Some(room) };
            let key = state.calls.insert(entry);
            state.queue.push_back(key);
            Some((key, std::mem::take(&mut state.is_idle), state.wake_by(until)))
        })?;
        if is_idle {
            self.queued.notify_one();
        }
        if is_sooner {
            self.sooner.notify_one();
        }
        Some(LaneCall { calls: self.clone(), key: Some(key) })
    }

    /// Waits until the queue has an entry; `false` once the lane is closed and the queue is empty.
    pub(super) async fn wait(&self) -> bool {
        loop {
            let found = self.with(|state| {
                state.is_idle = state.queue.is_empty() && !state.is_closed;
                (!state.is_idle).then_some(!state.queue.is_empty())
            });
            match found {
                Some(found) => return found,
                None => self.queued.notified().await,
            }
        }
    }

    /// Moves questions from the queue to `questions`, with their numbers, until these have `bytes` bytes or the queue
    /// is empty. From now on they are treated as sent.
    pub(super) fn send(&self, bytes: usize, numbers: &AtomicU64, questions: &mut Vec<(u64, Question, Instant)>) {
        self.with(|state| {
            let mut taken = 0;
            while taken < bytes
                && let Some(key) = state.queue.pop_front()
            {
                let Some(call) = state.calls.get_mut(key) else { continue };
                match std::mem::replace(&mut call.stage, CallStage::Sent) {
                    CallStage::Queued(question, deadline) => {
                        let number = numbers.fetch_add(1, Ordering::Relaxed) + 1;
                        taken += budget::of_operation(&question.operation);
                        questions.push((number, question, deadline));
                        state.by_number.insert(number, key);
                    }
                    // The queue holds only queued and cancelled calls.
                    _ => state.forget(key),
                }
            }
        });
    }

    /// Passes a batch of answers to their calls. The answer to a cancelled call is dropped.
    pub(super) fn answer(&self, responses: &mut Vec<Response>) {
        let wakers: SmallVec<[Waker; 4]> = self.with(|state| {
            let ended = responses.drain(..).filter_map(|response| {
                let key = state.by_number.remove(&response.number)?;
                state.end(key, CallOutcome::Answered(response))
            });
            ended.collect()
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends a call that was treated as sent, but certainly wasn't.
    pub(super) fn not_sent(&self, number: u64, reason: NotSent) {
        let waker = self.with(|state| {
            let key = state.by_number.remove(&number)?;
            state.end(key, CallOutcome::NotSent(reason))
        });
        waker.into_iter().for_each(Waker::wake);
    }

    /// Prepares the call for an answer on a stream of its own. Returns the sender of the outcome, and the call's
    /// capacity; `None` if the call doesn't exist or was cancelled.
    pub(super) fn take(&self, number: u64) -> Option<(oneshot::Sender<CallOutcome>, Option<CallRoom>)> {
        let (sender, receiver) = oneshot::channel();
        let taken = self.with(|state| {
            let key = state.by_number.remove(&number)?;
            let call = state.calls.get_mut(key)?;
            if matches!(call.caller, Caller::Gone) {
                state.calls.remove(key);
                return None;
            }
            call.stage = CallStage::Apart(receiver);
            Some((call.waker(), call.room.take()))
        });
        let (waker, room) = taken?;
        waker.into_iter().for_each(Waker::wake);
        Some((sender, room))
    }

    /// Ends all calls that were sent and not answered. Calls whose answer arrives on a stream of its own continue.
    pub(super) fn lose(&self, reason: &Unknown) {
        let wakers = self.with(|state| {
            state.by_number.clear();
            state.fail(|stage| matches!(stage, CallStage::Sent).then(|| CallOutcome::Unanswered(reason.clone())))
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Accepts no further calls; queued ones are still sent.
    pub(super) fn close(&self) {
        self.with(|state| state.is_closed = true);
        self.queued.notify_one();
    }

    /// Accepts and sends nothing further, and ends queued calls.
    pub(super) fn stop(&self) {
        let wakers = self.with(|state| {
            state.is_closed = true;
            state.forget_given_up();
            state.queue.clear();
            state.fail(|stage| matches!(stage, CallStage::Queued(..)).then_some(CallOutcome::NotSent(NotSent::Stopped)))
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes each call when it times out. Never returns.
    pub(super) async fn keep_time(&self) {
        loop {
            match self.with(|state| state.wakes_at) {
                Some(at) => tokio::select! {
                    biased;
                    () = self.sooner.notified() => {}
                    () = sleep_until(at) => self.expire(Instant::now()),
                },
                None => self.sooner.notified().await,
            }
        }
    }

    fn expire(&self, now: Instant) {
        let wakers = self.with(|state| {
            state.wakes_at = None;
            let mut wakers = Vec::new();
            for (_, call) in &mut state.calls {
                if call.is_late || matches!(call.caller, Caller::Gone) {
                    continue;
                }
                if call.until <= now {
                    call.is_late = true;
                    wakers.extend(call.waker());
                } else {
                    state.wakes_at = Some(state.wakes_at.map_or(call.until, |at| at.min(call.until)));
                }
            }
            wakers
        });
        wakers.into_iter().for_each(Waker::wake);
    }
}
