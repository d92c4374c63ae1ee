//! What can go wrong with a call of a typed map.

use super::{KeyError, NameError, ValueError};
use crate::{Error, replica::NotLocal};

/// Why a call of a [`Map`](crate::Map) has no result. Unless it is a [`Call`](Self::Call), nobody was asked, or what was
/// read can't be understood: nothing was applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The map has a name that no map can have, so that none of its calls is made.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The key has no bytes, or the bytes found are no key of this map.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The value has no bytes, or the bytes found are no value of this map.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Not to be served by this node here and now, said by [`get_local`](crate::Map::get_local) alone.
    #[error("not to be read from this node's own state: {0:?}")]
    NotLocal(NotLocal),
    /// The call itself failed.
    #[error(transparent)]
    Call(#[from] Error),
}

impl From<NotLocal> for MapError {
    fn from(why: NotLocal) -> Self {
        Self::NotLocal(why)
    }
}

impl MapError {
    /// The error of the call itself, which says what state it leaves behind.
    pub fn call(&self) -> Option<&Error> {
        if let Self::Call(error) = self { Some(error) } else { None }
    }
}
