//! Writes.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{Call, Committed, Conflict, Kv};
use crate::{
    Error, Version,
    client::router::{Answer, Router},
    error::Unknown,
    replica::{Reply, Write},
};

/// A write and the way to its head.
#[derive(Debug, Clone)]
struct Prepared {
    router: Arc<Router>,
    write: Write,
    timeout: Duration,
}

impl Prepared {
    fn new(kv: &Kv, write: Write) -> Self {
        Self { router: kv.router.clone(), write, timeout: kv.timeout }
    }

    async fn run(self) -> Result<Result<Committed, Conflict>, Error> {
        committed(self.router.write(self.write, self.timeout).await?)
    }

    /// For writes without a condition: nothing else than a commit answers them.
    async fn run_unconditional(self) -> Result<Committed, Error> {
        self.run().await?.map_err(|_| Error::unknown(Unknown::NoAnswer))
    }
}

fn committed(answer: Answer) -> Result<Result<Committed, Conflict>, Error> {
    match answer.reply {
        Reply::Committed(done) => Ok(Ok(Committed::new(done.version, done.copies, ()))),
        Reply::Conflict { at, current } => {
            let current = current.and_then(|held| held.value.map(|value| (held.version, value)));
            Ok(Err(Conflict::new(current, at)))
        }
        Reply::Refused(reason) => Err(Error::refused(reason, Some(answer.node.node))),
        Reply::Expired => Err(Error::unknown(Unknown::TimedOut)),
        Reply::Read(_) => Err(Error::unknown(Unknown::NoAnswer)),
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
                self.0.timeout = timeout;
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
    Put -> Committed, run_unconditional
}

call! {
    /// A deletion that is about to be made.
    Delete -> Committed, run_unconditional
}

call! {
    /// A compare-and-swap that is about to be made.
    CompareAndSwap -> Result<Committed, Conflict>, run
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
