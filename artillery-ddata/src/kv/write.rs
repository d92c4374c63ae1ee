use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{Call, Committed, Conflict, Taken, Versioned, WriteError};
use crate::{
    Error, Kv, RequestId, Session,
    api::{self, Computed, GroupOutcome, Reply, Write},
    error::Unknown,
    rpc::router::{CallAnswer, HowToWrite, Router, SentWrite, WriteTarget},
};

/// The outcome of a write, before its result is checked for the type that the call returns.
type WriteOutcome = Result<Committed<Computed>, WriteError>;

struct Writing<T, E> {
    router: Arc<Router>,
    how: HowToWrite,
    state: WriteState,
    result: fn(WriteOutcome) -> Result<T, E>,
}

#[expect(clippy::large_enum_variant, reason = "most calls are over before they need an allocation")]
enum WriteState {
    New(Write),
    /// The first attempt is in flight. Its answer may complete the write.
    Sent(SentWrite),
    /// All else: the write waits, retries and looks up routing as needed.
    Asked(Call<Result<(CallAnswer, RequestId), Error>>),
    Over,
}

impl<T, E> Future for Writing<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { router, how, state, result } = &mut *self;
        loop {
            let done = match state {
                WriteState::Sent(sent) => ready!(router.poll_write(sent, context)).map(Ok),
                WriteState::Asked(asked) => Some(ready!(asked.as_mut().poll(context))),
                WriteState::New(_) | WriteState::Over => None,
            };
            if let Some(done) = done {
                *state = WriteState::Over;
                return Poll::Ready(result(
                    done.map_err(WriteError::from).and_then(|(answer, id)| outcome(answer, id)),
                ));
            }
            if let WriteState::New(_) = state
                && let Err(error) = ready!(router.poll_begin(context))
            {
                *state = WriteState::Over;
                return Poll::Ready(result(Err(error.of_retry(how.request_id).into())));
            }
            *state = match std::mem::replace(state, WriteState::Over) {
                WriteState::New(write) => match router.target(write, how) {
                    WriteTarget::Here(write, here) => {
                        let (router, timeout) = (router.clone(), how.timeout);
                        WriteState::Asked(Box::pin(async move { router.write_here(write, here, timeout).await }))
                    }
                    WriteTarget::There(sent) => WriteState::Sent(sent),
                    WriteTarget::Open(write) => {
                        let (router, how) = (router.clone(), how.clone());
                        WriteState::Asked(Box::pin(async move { router.write(write, how).await }))
                    }
                },
                WriteState::Sent(sent) => {
                    let router = router.clone();
                    WriteState::Asked(Box::pin(async move { router.write_on(sent).await }))
                }
                WriteState::Asked(_) | WriteState::Over => panic!("a write was polled after completion"),
            };
        }
    }
}

fn conditional(outcome: WriteOutcome) -> Result<Committed, WriteError> {
    outcome.map(|done| with(done, ()))
}

/// The result of a write without a condition. Such a write ends with a commit and a result of the expected kind, unless
/// another write was made under the same request id.
fn computed<T>(outcome: WriteOutcome, result: impl FnOnce(&Computed) -> Option<T>) -> Result<Committed<T>, Error> {
    match outcome {
        Ok(done) => match result(&done.result) {
            Some(result) => Ok(with(done, result)),
            None => Err(Error::refused(crate::Refusal::OtherRequest, None)),
        },
        // Only a conditional write under the same id can have left this record.
        Err(WriteError::Conflict(_)) => Err(Error::refused(crate::Refusal::OtherRequest, None)),
        Err(WriteError::Call(error)) => Err(error),
    }
}

fn nothing(outcome: WriteOutcome) -> Result<Committed, Error> {
    computed(outcome, |computed| matches!(computed, Computed::Nothing).then_some(()))
}

fn length(outcome: WriteOutcome) -> Result<Committed<u64>, Error> {
    computed(outcome, |computed| if let Computed::Length(length) = computed { Some(*length) } else { None })
}

fn number(outcome: WriteOutcome) -> Result<Committed<i64>, Error> {
    computed(outcome, |computed| if let Computed::Number(number) = computed { Some(*number) } else { None })
}

fn taken(outcome: WriteOutcome) -> Result<Committed<Taken>, Error> {
    computed(outcome, |computed| match computed {
        Computed::Took(None) => Some(Taken::Nothing),
        Computed::Took(Some((version, value))) => {
            Some(Taken::Value(Versioned { version: *version, value: value.clone() }))
        }
        Computed::TookForgotten(version) => Some(Taken::Forgotten(*version)),
        _ => None,
    })
}

/// The result of a script. The record of a script contains no results, so a retry gets none.
fn ran(outcome: WriteOutcome) -> Result<Committed<Vec<GroupOutcome>>, WriteError> {
    let mut done = outcome?;
    match std::mem::replace(&mut done.result, Computed::Nothing) {
        Computed::Ran(outcomes) => Ok(with(done, outcomes)),
        Computed::RanForgotten => Err(Error::unknown(Unknown::ResultsLost(done.version), done.request_id).into()),
        _ => Err(Error::refused(crate::Refusal::OtherRequest, None).into()),
    }
}

fn with<T>(done: Committed<Computed>, result: T) -> Committed<T> {
    Committed::new(done.version, done.copies, done.request_id, done.replayed, result)
}

pub(super) fn outcome(answer: CallAnswer, id: RequestId) -> WriteOutcome {
    match answer.reply {
        Reply::Committed(api::WriteReply { version, copies, replayed, result }) => {
            Ok(Committed::new(version, copies, id, replayed, result))
        }
        Reply::Conflict { at, step, version, value, .. } => Err(Conflict::of(version, value, step, at, id).into()),
        Reply::Refused(reason) => Err(Error::refused(reason, Some(answer.node.node)).into()),
        _ => Err(Error::unknown(Unknown::NoAnswer, id).into()),
    }
}

/// A write. Set the options that differ from the handle's defaults, and await it. It fails with `E`: an [`Error`], or a
/// [`WriteError`] if the write has conditions.
#[must_use = "a call does nothing until it is awaited"]
pub struct WriteCall<T, E = Error> {
    router: Arc<Router>,
    write: Write,
    how: HowToWrite,
    result: fn(WriteOutcome) -> Result<T, E>,
}

impl<T, E> WriteCall<T, E> {
    fn new(kv: &Kv, write: Write, result: fn(WriteOutcome) -> Result<T, E>) -> Self {
        let how = HowToWrite { timeout: kv.timeout, session: kv.session.clone(), request_id: None };
        Self { router: kv.router.clone(), write, how, result }
    }

    /// Sets how long the write may take. If the time expires after the write was sent and before its commit is
    /// confirmed, the outcome is unknown.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.how.timeout = timeout;
        self
    }

    /// Makes the write in a session: later reads in that session see it.
    pub fn session(mut self, session: &Session) -> Self {
        self.how.session = Some(session.clone());
        self
    }

    /// Makes the write under this id, from [`Kv::new_request_id`] or an unknown outcome. However often a
    /// write is repeated under one id, it is applied at most once.
    pub fn request_id(mut self, id: RequestId) -> Self {
        self.how.request_id = Some(id);
        self
    }
}

impl<T: 'static, E: 'static> IntoFuture for WriteCall<T, E> {
    type Output = Result<T, E>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { router, write, how, result } = self;
        Box::pin(Writing { router, how, state: WriteState::New(write), result })
    }
}

impl<T, E> Clone for WriteCall<T, E> {
    fn clone(&self) -> Self {
        let Self { router, write, how, result } = self;
        Self { router: router.clone(), write: write.clone(), how: how.clone(), result: *result }
    }
}

impl<T, E> fmt::Debug for WriteCall<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteCall").field("write", &self.write).field("how", &self.how).finish_non_exhaustive()
    }
}

impl Kv {
    pub(super) fn write_call(&self, write: Write) -> WriteCall<Committed> {
        WriteCall::new(self, write, nothing)
    }

    pub(super) fn conditional_call(&self, write: Write) -> WriteCall<Committed, WriteError> {
        WriteCall::new(self, write, conditional)
    }

    pub(super) fn length_call(&self, write: Write) -> WriteCall<Committed<u64>> {
        WriteCall::new(self, write, length)
    }

    pub(super) fn number_call(&self, write: Write) -> WriteCall<Committed<i64>> {
        WriteCall::new(self, write, number)
    }

    pub(super) fn taken_call(&self, write: Write) -> WriteCall<Committed<Taken>> {
        WriteCall::new(self, write, taken)
    }

    pub(super) fn script_call(&self, write: Write) -> WriteCall<Committed<Vec<GroupOutcome>>, WriteError> {
        WriteCall::new(self, write, ran)
    }
}
