//! The errors of a typed map.

use super::{KeyError, NameError, ValueError};
use crate::{Error, replica::NotLocal};

/// Why a call of a [`Map`](crate::Map) has no result. Unless it is a [`Call`](Self::Call), nothing was applied: either
/// no node was asked, or the bytes that were read can't be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The map's name isn't allowed, so none of its calls is made.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The key can't be encoded, or the bytes found are no key of this map.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The value can't be encoded, or the bytes found are no value of this map.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// This node can't serve the read now. Only [`get_local`](crate::Map::get_local) returns this.
    #[error("not served from this node's own state: {0:?}")]
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
