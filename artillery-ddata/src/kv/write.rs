use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use bytes::Bytes;

use super::{Call, Committed, Conflict, Taken, Versioned, WriteError};
use crate::{
    Error, Kv, RequestId, Session,
    api::{self, Computed, ExpireIf, GroupOutcome, Reply, Ttl, Write},
    error::Unknown,
    rpc::router::{CallAnswer, HowToWrite, Router, SentWrite, WriteTarget},
};

/// The outcome of a write, before its result is checked for the type that the call returns.
pub(crate) type WriteOutcome = Result<Committed<Computed>, WriteError>;

/// Checks the outcome of a write, and converts it. The bytes are the prefix of a sequential put.
type ToResult<T, E> = fn(WriteOutcome, &Bytes) -> Result<T, E>;

struct Writing<T, E> {
    router: Arc<Router>,
    how: HowToWrite,
    state: WriteState,
    result: ToResult<T, E>,
    prefix: Bytes,
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
        let Self { router, how, state, result, prefix } = &mut *self;
        loop {
            let done = match state {
                WriteState::Sent(sent) => ready!(router.poll_write(sent, context)).map(Ok),
                WriteState::Asked(asked) => Some(ready!(asked.as_mut().poll(context))),
                WriteState::New(_) | WriteState::Over => None,
            };
            if let Some(done) = done {
                *state = WriteState::Over;
                let done = done.map_err(WriteError::from).and_then(|(answer, id)| outcome(answer, id));
                return Poll::Ready(result(done, prefix));
            }
            if let WriteState::New(_) = state
                && let Err(error) = ready!(router.poll_begin(context))
            {
                *state = WriteState::Over;
                return Poll::Ready(result(Err(error.of_retry(how.request_id).into()), prefix));
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

fn conditional(outcome: WriteOutcome, _: &Bytes) -> Result<Committed, WriteError> {
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

fn nothing(outcome: WriteOutcome, _: &Bytes) -> Result<Committed, Error> {
    computed(outcome, |computed| matches!(computed, Computed::Nothing).then_some(()))
}

fn length(outcome: WriteOutcome, _: &Bytes) -> Result<Committed<u64>, Error> {
    computed(outcome, |computed| if let Computed::Length(length) = computed { Some(*length) } else { None })
}

fn number(outcome: WriteOutcome, _: &Bytes) -> Result<Committed<i64>, Error> {
    computed(outcome, |computed| if let Computed::Number(number) = computed { Some(*number) } else { None })
}

fn is_changed(outcome: WriteOutcome, _: &Bytes) -> Result<Committed<bool>, Error> {
    computed(outcome, |computed| if let Computed::Changed(changed) = computed { Some(*changed) } else { None })
}

/// The result of a sequential put: the new key.
fn sequential(outcome: WriteOutcome, prefix: &Bytes) -> Result<Committed<Bytes>, Error> {
    let done = nothing(outcome, prefix)?;
    let key = api::sequential_key(prefix, done.version);
    Ok(Committed::new(done.version, done.copies, done.request_id, done.replayed, key))
}

fn taken(outcome: WriteOutcome, _: &Bytes) -> Result<Committed<Taken>, Error> {
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
fn ran(outcome: WriteOutcome, _: &Bytes) -> Result<Committed<Vec<GroupOutcome>>, WriteError> {
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

pub(crate) fn outcome(answer: CallAnswer, id: RequestId) -> WriteOutcome {
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
///
/// `K` states which further options the write has: [`SetsValue`] and [`SetsExpiry`].
#[must_use = "a call does nothing until it is awaited"]
pub struct WriteCall<T, E = Error, K = NoOptions> {
    router: Arc<Router>,
    write: Write,
    how: HowToWrite,
    result: ToResult<T, E>,
    /// The prefix of a sequential put; otherwise empty.
    prefix: Bytes,
    kind: PhantomData<fn() -> K>,
}

/// A write without further options.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum NoOptions {}

/// A write that sets the value of a key, which may expire.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum SetsValue {}

/// A write that sets when a key expires.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum SetsExpiry {}

impl<T, E> WriteCall<T, E, SetsValue> {
    /// Lets the key expire after this length of chain time, from the time at which the head orders the write. By
    /// default a put or compare-and-swap removes the key's expiry, and other writes keep it.
    ///
    /// The head removes a key once it is due; until then reads show it. It is never removed before `ttl` × (1 − drift
    /// bound); usually within a second after `ttl`. Time in which no member of the chain runs isn't counted.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.set_ttl(Ttl::set(ttl));
        self
    }

    /// Lets the key expire after this length of time if the write creates it. Otherwise the key keeps its expiry.
    pub fn ttl_if_new(mut self, ttl: Duration) -> Self {
        self.set_ttl(Ttl::if_new(ttl));
        self
    }

    /// Keeps the key's expiry, if it has one.
    pub fn keep_ttl(mut self) -> Self {
        self.set_ttl(Ttl::Keep);
        self
    }

    /// Lets the key expire at this time: converts it to a [time to live](Self::ttl) by this machine's clock, now.
    #[expect(clippy::disallowed_methods, reason = "the caller's instant is of this machine's wall clock")]
    pub fn expires_at(self, at: SystemTime) -> Self {
        self.ttl(at.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO))
    }

    pub(crate) fn set_ttl(&mut self, new: Ttl) {
        if let Some(ttl) = self.write.ttl_mut() {
            *ttl = new;
        }
    }
}

impl<T, E> WriteCall<T, E, SetsExpiry> {
    /// Sets the expiry only if the present one meets this condition.
    pub fn when(mut self, condition: ExpireIf) -> Self {
        if let Write::Expire { when, .. } = &mut self.write {
            *when = Some(condition);
        }
        self
    }
}

impl<T, E, K> WriteCall<T, E, K> {
    fn new(kv: &Kv, write: Write, result: ToResult<T, E>) -> Self {
        let how = HowToWrite { timeout: kv.timeout, session: kv.session.clone(), request_id: None };
        Self { router: kv.router.clone(), write, how, result, prefix: Bytes::new(), kind: PhantomData }
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

impl<T: 'static, E: 'static, K> IntoFuture for WriteCall<T, E, K> {
    type Output = Result<T, E>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { router, write, how, result, prefix, .. } = self;
        Box::pin(Writing { router, how, state: WriteState::New(write), result, prefix })
    }
}

impl<T, E, K> Clone for WriteCall<T, E, K> {
    fn clone(&self) -> Self {
        let Self { router, write, how, result, prefix, kind } = self;
        let (router, write, how) = (router.clone(), write.clone(), how.clone());
        Self { router, write, how, result: *result, prefix: prefix.clone(), kind: *kind }
    }
}

impl<T, E, K> fmt::Debug for WriteCall<T, E, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteCall").field("write", &self.write).field("how", &self.how).finish_non_exhaustive()
    }
}

impl Kv {
    pub(super) fn write_call<K>(&self, write: Write) -> WriteCall<Committed, Error, K> {
        WriteCall::new(self, write, nothing)
    }

    pub(super) fn conditional_call<K>(&self, write: Write) -> WriteCall<Committed, WriteError, K> {
        WriteCall::new(self, write, conditional)
    }

    pub(super) fn length_call(&self, write: Write) -> WriteCall<Committed<u64>, Error, SetsValue> {
        WriteCall::new(self, write, length)
    }

    pub(super) fn number_call(&self, write: Write) -> WriteCall<Committed<i64>, Error, SetsValue> {
        WriteCall::new(self, write, number)
    }

    pub(super) fn changed_call<K>(&self, write: Write) -> WriteCall<Committed<bool>, Error, K> {
        WriteCall::new(self, write, is_changed)
    }

    pub(super) fn sequential_call(&self, prefix: Bytes, value: Bytes) -> WriteCall<Committed<Bytes>, Error, SetsValue> {
        let write = Write::PutSequential { prefix: prefix.clone(), value, ttl: Ttl::Usual };
        WriteCall { prefix, ..WriteCall::new(self, write, sequential) }
    }

    pub(super) fn taken_call(&self, write: Write) -> WriteCall<Committed<Taken>> {
        WriteCall::new(self, write, taken)
    }

    pub(super) fn script_call(&self, write: Write) -> WriteCall<Committed<Vec<GroupOutcome>>, WriteError> {
        WriteCall::new(self, write, ran)
    }
}
