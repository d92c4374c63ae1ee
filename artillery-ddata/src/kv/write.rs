//! Writes.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{Batch, Call, Committed, Conflict, Kv, Script, Taken, Versioned};
use crate::{
    Error, RequestId, Session, Version,
    client::router::{Answer, HowToWrite, Router},
    error::Unknown,
    replica::{self, Computed, GroupOutcome, Reply, Write},
};

/// A write and the way to its head.
#[derive(Debug, Clone)]
struct Prepared {
    router: Arc<Router>,
    write: Write,
    how: HowToWrite,
}

/// What a write came to, its result not looked at yet.
type Outcome = Result<Committed<Computed>, Conflict>;

impl Prepared {
    fn new(kv: &Kv, write: Write) -> Self {
        let how = HowToWrite { timeout: kv.timeout, session: kv.session.clone(), request_id: None };
        Self { router: kv.router.clone(), write, how }
    }

    async fn run(self) -> Result<Outcome, Error> {
        let (answer, id) = self.router.write(self.write, self.how).await?;
        outcome(answer, id)
    }

    /// For writes with a condition.
    async fn run_conditional(self) -> Result<Result<Committed, Conflict>, Error> {
        Ok(self.run().await?.map(|done| with(done, ())))
    }

    /// For writes without one: nothing else than a commit answers them, and what was computed is of the kind that was
    /// asked for, unless another write was made under the same id.
    async fn run_for<T>(self, result: impl FnOnce(&Computed) -> Option<T>) -> Result<Committed<T>, Error> {
        match self.run().await? {
            Ok(done) => match result(&done.result) {
                Some(result) => Ok(with(done, result)),
                None => Err(Error::refused(crate::Refusal::OtherRequest, None)),
            },
            // Only a repetition of another write's id brings that one's answer.
            Err(_) => Err(Error::refused(crate::Refusal::OtherRequest, None)),
        }
    }

    async fn run_for_nothing(self) -> Result<Committed, Error> {
        self.run_for(|computed| matches!(computed, Computed::Nothing).then_some(())).await
    }

    async fn run_for_length(self) -> Result<Committed<u64>, Error> {
        self.run_for(|computed| if let Computed::Length(length) = computed { Some(*length) } else { None }).await
    }

    async fn run_for_number(self) -> Result<Committed<i64>, Error> {
        self.run_for(|computed| if let Computed::Number(number) = computed { Some(*number) } else { None }).await
    }

    /// A record says that a script ran, and no more.
    async fn run_script(self) -> Result<Result<Committed<Vec<GroupOutcome>>, Conflict>, Error> {
        match self.run().await? {
            Ok(mut done) => match std::mem::replace(&mut done.result, Computed::Nothing) {
                Computed::Ran(outcomes) => Ok(Ok(with(done, outcomes))),
                Computed::RanForgotten => Err(Error::unknown(Unknown::ResultsLost(done.version), done.request_id)),
                _ => Err(Error::refused(crate::Refusal::OtherRequest, None)),
            },
            Err(conflict) => Ok(Err(conflict)),
        }
    }

    async fn run_for_taken(self) -> Result<Committed<Taken>, Error> {
        self.run_for(|computed| match computed {
            Computed::Took(None) => Some(Taken::Nothing),
            Computed::Took(Some((version, value))) => {
                Some(Taken::Value(Versioned { version: *version, value: value.clone() }))
            }
            Computed::TookForgotten(version) => Some(Taken::Forgotten(*version)),
            _ => None,
        })
        .await
    }
}

fn with<T>(done: Committed<Computed>, result: T) -> Committed<T> {
    Committed::new(done.version, done.copies, done.request_id, done.replayed, result)
}

pub(super) fn outcome(answer: Answer, id: RequestId) -> Result<Outcome, Error> {
    match answer.reply {
        Reply::Committed(replica::Committed { version, copies, replayed, result }) => {
            Ok(Ok(Committed::new(version, copies, id, replayed, result)))
        }
        Reply::Conflict { at, step, version, value, .. } => Ok(Err(Conflict::of(version, value, step, at, id))),
        Reply::Refused(reason) => Err(Error::refused(reason, Some(answer.node.node))),
        _ => Err(Error::unknown(Unknown::NoAnswer, id)),
    }
}

macro_rules! call {
    ($(#[$doc:meta])* $name:ident -> $output:ty, $run:ident) => {
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
                Box::pin(self.0.$run())
            }
        }
    };
}

call! {
    /// A put that is about to be made.
    Put -> Committed, run_for_nothing
}

call! {
    /// A deletion that is about to be made.
    Delete -> Committed, run_for_nothing
}

call! {
    /// A compare-and-swap that is about to be made.
    CompareAndSwap -> Result<Committed, Conflict>, run_conditional
}

call! {
    /// An append that is about to be made; its result is the length of the value, in bytes.
    Append -> Committed<u64>, run_for_length
}

call! {
    /// An increment that is about to be made; its result is the new number.
    Increment -> Committed<i64>, run_for_number
}

call! {
    /// A get-and-delete that is about to be made; its result is what was there.
    GetDelete -> Committed<Taken>, run_for_taken
}

call! {
    /// A batch that is about to be written.
    WriteBatch -> Result<Committed, Conflict>, run_conditional
}

call! {
    /// A script that is about to be run; its result says what came of its groups, in their order.
    RunScript -> Result<Committed<Vec<GroupOutcome>>, Conflict>, run_script
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
