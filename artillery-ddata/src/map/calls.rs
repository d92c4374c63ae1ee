//! Calls of a typed map: those of the data below it, with what stood in their way from the start.

use std::{fmt, time::Duration};

use bytes::Bytes;

use super::{MapError, ValueError};
use crate::{
    Kv, ReadMode, RequestId, Session,
    kv::{self, Call, Committed, Conflict, Read, Versioned},
};

/// How the bytes found become a value.
pub(super) type Decode<V> = fn(&Bytes) -> Result<V, ValueError>;

macro_rules! call {
    ($(#[$doc:meta])* $name:ident of $inner:ty => $output:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use = "a call does nothing until it is awaited"]
        pub struct $name(pub(super) Result<$inner, MapError>);

        impl $name {
            /// How long it may take. When the time is up before the commit is known, the outcome is unknown.
            pub fn timeout(self, timeout: Duration) -> Self {
                Self(self.0.map(|call| call.timeout(timeout)))
            }

            /// In which session it is made: reads of that see it from now on.
            pub fn session(self, session: &Session) -> Self {
                Self(self.0.map(|call| call.session(session)))
            }

            /// Under which id it is made, of [`Kv::new_request_id`] or of an unknown outcome: under one id it happens at
            /// most once, whoever repeats it.
            pub fn request_id(self, id: RequestId) -> Self {
                Self(self.0.map(|call| call.request_id(id)))
            }
        }

        impl IntoFuture for $name {
            type Output = Result<$output, MapError>;
            type IntoFuture = Call<Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin(async move { Ok(self.0?.await?) })
            }
        }
    };
}

call! {
    /// A put that is about to be made.
    Put of kv::Put => Committed
}

call! {
    /// A deletion that is about to be made.
    Delete of kv::Delete => Committed
}

call! {
    /// A compare-and-swap that is about to be made.
    CompareAndSwap of kv::CompareAndSwap => Result<Committed, Conflict>
}

call! {
    /// An increment that is about to be made; its result is the new number.
    Increment of kv::Increment => Committed<i64>
}

/// A read of one entry that is about to be made.
#[must_use = "a call does nothing until it is awaited"]
pub struct Get<V> {
    /// Its defaults are the settings of this call.
    kv: Kv,
    key: Result<Bytes, MapError>,
    decode: Decode<V>,
}

impl<V> Get<V> {
    pub(super) fn new(kv: &Kv, key: Result<Bytes, MapError>, decode: Decode<V>) -> Self {
        Self { kv: kv.clone(), key, decode }
    }

    /// How it may be served.
    pub fn mode(mut self, mode: ReadMode) -> Self {
        self.kv = self.kv.with_read_mode(mode);
        self
    }

    /// How long it may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.kv = self.kv.with_timeout(timeout);
        self
    }

    /// In which session it is made: it never shows less than that has seen.
    pub fn session(mut self, session: &Session) -> Self {
        self.kv = self.kv.in_session(session);
        self
    }
}

impl<V: 'static> IntoFuture for Get<V> {
    type Output = Result<Read<V>, MapError>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let read = self.kv.get(&self.key?).await?;
            let (state, served) = (read.state, read.served);
            let found = match read.into_versioned() {
                Some(found) => Some(Versioned { version: found.version, value: (self.decode)(&found.value)? }),
                None => None,
            };
            Ok(Read::new(found, state, served))
        })
    }
}

impl<V> fmt::Debug for Get<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("kv", &self.kv).field("key", &self.key).finish_non_exhaustive()
    }
}
