//! Reads of many keys at one point of the history.

use bytes::Bytes;

use super::{
    Call, ReadState, Served, Versioned,
    get::{no_read, served},
    handle::how_to_read,
};
use crate::{
    Error, Kv, Sequence,
    api::{self, Query, Reply},
    rpc::router::{CallAnswer, HowToRead},
};

/// The result of a read of several keys, all at one point of the history of their chain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MultiGet {
    /// Each key's value and version, in the order of the request. `None`: the key is absent.
    pub entries: Vec<Option<Versioned<Bytes>>>,
    /// Always [`ReadState::Clean`]: in every mode the result has committed versions only.
    pub state: ReadState,
    /// Where the read was served, and by which path.
    pub served: Served,
    /// The position in the chain's history that the result reflects.
    pub as_of: Sequence,
}

impl MultiGet {
    /// The values, in the order of the request.
    pub fn values(&self) -> impl Iterator<Item = Option<&Bytes>> {
        self.entries.iter().map(|entry| entry.as_ref().map(|entry| &entry.value))
    }
}

/// A read of several keys. Set the options that differ from the handle's defaults, and await it.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is awaited"]
pub struct GetMany {
    kv: Kv,
    keys: Vec<Bytes>,
    how: HowToRead,
}

impl GetMany {
    pub(super) fn new(kv: &Kv, keys: Vec<Bytes>) -> Self {
        Self { kv: kv.clone(), keys, how: how_to_read(kv) }
    }

    read_options! {
        /// Sets the mode. All modes return committed versions only. With
        /// [`ReadMode::Eventual`](crate::ReadMode::Eventual) and [`ReadMode::Bounded`](crate::ReadMode::Bounded) they
        /// may be old ones.
    }

    async fn run(self) -> Result<MultiGet, Error> {
        let CallAnswer { reply, node, place } = self.kv.router.read(Query::Keys(self.keys), &self.how).await?;
        match reply {
            Reply::Cut(api::MultiGetReply { found, clean, way, as_of, .. }) => {
                let entries = found.into_iter().map(|held| held.and_then(Versioned::visible)).collect();
                let (state, served) = served(clean, node, place, way);
                Ok(MultiGet { entries, state, served, as_of })
            }
            other => Err(no_read(&other, node)),
        }
    }
}

impl IntoFuture for GetMany {
    type Output = Result<MultiGet, Error>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
