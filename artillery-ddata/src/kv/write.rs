//! Writes.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;

use super::{Call, Committed, Conflict, Taken, Versioned};
use crate::{
    Batch, Error, Kv, RequestId, Script, Session, Version,
    api::{self, Computed, GroupOutcome, Reply, Write},
    error::Unknown,
    rpc::router::{BegunWrite, CallAnswer, HowToWrite, Router},
};

/// A write and the way to its head.
#[derive(Debug, Clone)]
struct Prepared {
    router: Arc<Router>,
    write: Write,
    how: HowToWrite,
}

/// What a write came to, its result not looked at yet.
type WriteOutcome = Result<Committed<Computed>, Conflict>;

impl Prepared {
    fn new(kv: &Kv, write: Write) -> Self {
        let how = HowToWrite { timeout: kv.timeout, session: kv.session.clone(), request_id: None };
        Self { router: kv.router.clone(), write, how }
    }

    fn make<T: 'static>(self, result: fn(WriteOutcome) -> Result<T, Error>) -> Call<Result<T, Error>> {
        let Self { router, write, how } = self;
        Box::pin(Writing { router, how, state: WriteState::New(write), result })
    }
}

/// A write under way.
struct Writing<T> {
    router: Arc<Router>,
    how: HowToWrite,
    state: WriteState,
    result: fn(WriteOutcome) -> Result<T, Error>,
}

#[expect(clippy::large_enum_variant, reason = "most calls are over before they need an allocation")]
enum WriteState {
    New(Write),
    /// Its head was asked, whose answer may be the last.
    Begun(BegunWrite),
    /// It takes longer, or wants more than that.
    Asked(Call<Result<(CallAnswer, RequestId), Error>>),
    Over,
}

impl<T> Future for Writing<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { router, how, state, result } = &mut *self;
        loop {
            let done = match state {
                WriteState::Begun(begun) => ready!(router.poll_write(begun, context)).map(Ok),
                WriteState::Asked(asked) => Some(ready!(asked.as_mut().poll(context))),
                WriteState::New(_) | WriteState::Over => None,
            };
            if let Some(done) = done {
                *state = WriteState::Over;
                return Poll::Ready(done.and_then(|(answer, id)| outcome(answer, id)).and_then(*result));
            }
            *state = match std::mem::replace(state, WriteState::Over) {
                WriteState::New(write) => match router.begin_write(write, how) {
                    Ok(begun) => WriteState::Begun(begun),
                    Err(write) => {
                        let (router, how) = (router.clone(), how.clone());
                        WriteState::Asked(Box::pin(async move { router.write(write, how).await }))
                    }
                },
                WriteState::Begun(begun) => {
                    let router = router.clone();
                    WriteState::Asked(Box::pin(async move { router.write_on(begun).await }))
                }
                WriteState::Asked(_) | WriteState::Over => panic!("a write was polled after its end"),
            };
        }
    }
}

/// For writes with a condition.
fn conditional(outcome: WriteOutcome) -> Result<Result<Committed, Conflict>, Error> {
    Ok(outcome.map(|done| with(done, ())))
}

/// For writes without one: nothing else than a commit answers them, and what was computed is of the kind that was asked
/// for, unless another write was made under the same id.
fn computed<T>(outcome: WriteOutcome, result: impl FnOnce(&Computed) -> Option<T>) -> Result<Committed<T>, Error> {
    match outcome {
        Ok(done) => match result(&done.result) {
            Some(result) => Ok(with(done, result)),
            None => Err(Error::refused(crate::Refusal::OtherRequest, None)),
        },
        // Only a repetition of another write's id brings that one's answer.
        Err(_) => Err(Error::refused(crate::Refusal::OtherRequest, None)),
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

/// A record says that a script ran, and no more.
fn ran(outcome: WriteOutcome) -> Result<Result<Committed<Vec<GroupOutcome>>, Conflict>, Error> {
    match outcome {
        Ok(mut done) => match std::mem::replace(&mut done.result, Computed::Nothing) {
            Computed::Ran(outcomes) => Ok(Ok(with(done, outcomes))),
            Computed::RanForgotten => Err(Error::unknown(Unknown::ResultsLost(done.version), done.request_id)),
            _ => Err(Error::refused(crate::Refusal::OtherRequest, None)),
        },
        Err(conflict) => Ok(Err(conflict)),
    }
}

fn with<T>(done: Committed<Computed>, result: T) -> Committed<T> {
    Committed::new(done.version, done.copies, done.request_id, done.replayed, result)
}

pub(super) fn outcome(answer: CallAnswer, id: RequestId) -> Result<WriteOutcome, Error> {
    match answer.reply {
        Reply::Committed(api::WriteReply { version, copies, replayed, result }) => {
            Ok(Ok(Committed::new(version, copies, id, replayed, result)))
        }
        Reply::Conflict { at, step, version, value, .. } => Ok(Err(Conflict::of(version, value, step, at, id))),
        Reply::Refused(reason) => Err(Error::refused(reason, Some(answer.node.node))),
        _ => Err(Error::unknown(Unknown::NoAnswer, id)),
    }
}

macro_rules! call {
    ($(#[$doc:meta])* $name:ident -> $output:ty, $result:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        #[must_use = "a call does nothing until it is awaited"]
        pub struct $name(Prepared);

        impl $name {
            /// How long it may take. When the time is up before the commit is known, the outcome is unknown.
            pub fn timeout(mut self, timeout: Duration) -> Self {
                self.0.how.timeout = timeout;
                self
            }

            /// In which session it is made: reads of that see it from now on.
            pub fn session(mut self, session: &Session) -> Self {
                self.0.how.session = Some(session.clone());
                self
            }

            /// Under which id it is made, of [`Kv::new_request_id`] or of an unknown outcome: under one id it happens at
            /// most once, whoever repeats it.
            pub fn request_id(mut self, id: RequestId) -> Self {
                self.0.how.request_id = Some(id);
                self
            }
        }

        impl IntoFuture for $name {
            type Output = Result<$output, Error>;
            type IntoFuture = Call<Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                self.0.make($result)
            }
        }
    };
}

call! {
    /// A put that is about to be made.
    Put -> Committed, nothing
}

call! {
    /// A deletion that is about to be made.
    Delete -> Committed, nothing
}

call! {
    /// A compare-and-swap that is about to be made.
    CompareAndSwap -> Result<Committed, Conflict>, conditional
}

call! {
    /// An append that is about to be made; its result is the length of the value, in bytes.
    Append -> Committed<u64>, length
}

call! {
    /// An increment that is about to be made; its result is the new number.
    Increment -> Committed<i64>, number
}

call! {
    /// A get-and-delete that is about to be made; its result is what was there.
    GetDelete -> Committed<Taken>, taken
}

call! {
    /// A batch that is about to be written.
    WriteBatch -> Result<Committed, Conflict>, conditional
}

call! {
    /// A script that is about to be run; its result says what came of its groups, in their order.
    RunScript -> Result<Committed<Vec<GroupOutcome>>, Conflict>, ran
}

impl Put {
    pub(super) fn new(kv: &Kv, key: Bytes, value: Bytes) -> Self {
        Self(Prepared::new(kv, Write::Put { key, value }))
    }
}

impl Delete {
    pub(super) fn new(kv: &Kv, key: Bytes) -> Self {
        Self(Prepared::new(kv, Write::Delete { key }))
    }
}

impl CompareAndSwap {
    pub(super) fn new(kv: &Kv, key: Bytes, expected: Version, value: Option<Bytes>) -> Self {
        Self(Prepared::new(kv, Write::CompareAndSwap { key, expected, value }))
    }
}

impl Append {
    pub(super) fn new(kv: &Kv, key: Bytes, value: Bytes) -> Self {
        Self(Prepared::new(kv, Write::Append { key, value }))
    }
}

impl Increment {
    pub(super) fn new(kv: &Kv, key: Bytes, by: i64) -> Self {
        Self(Prepared::new(kv, Write::Increment { key, by }))
    }
}

impl GetDelete {
    pub(super) fn new(kv: &Kv, key: Bytes) -> Self {
        Self(Prepared::new(kv, Write::GetDelete { key }))
    }
}

impl WriteBatch {
    pub(super) fn new(kv: &Kv, batch: Batch) -> Self {
        Self(Prepared::new(kv, Write::Batch(batch.into_steps())))
    }
}

impl RunScript {
    pub(super) fn new(kv: &Kv, script: Script) -> Self {
        Self(Prepared::new(kv, Write::Script(script.into_inner())))
    }
}
