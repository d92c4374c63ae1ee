//! The errors of a typed map.

use super::{KeyError, NameError, ValueError};
use crate::{
    Error,
    kv::{Conflict, WriteError},
    replica::NotLocal,
};

/// Why a call of a [`Map`](crate::Map) failed. Unless it is a [`Call`](Self::Call), nothing was applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The name isn't allowed: no map was made. No call of a map returns this. It exists so that `?` converts the error
    /// of [`Kv::map`](crate::Kv::map).
    #[error(transparent)]
    Name(#[from] NameError),
    /// The key can't be encoded, or the bytes read aren't a key of this map.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The value can't be encoded, or the bytes read aren't a value of this map.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// This node can't serve the read now. Only [`get_local`](crate::Map::get_local) returns this.
    #[error("not served from this node's own state: {0:?}")]
    NotLocal(NotLocal),
    /// The entry has another version than the expected one. Only [`compare_and_swap`](crate::Map::compare_and_swap) and
    /// [`compare_and_delete`](crate::Map::compare_and_delete) return this.
    #[error("conflict: {0}")]
    Conflict(Box<Conflict>),
    /// The underlying call failed. The error states whether a write was applied.
    #[error(transparent)]
    Call(#[from] Error),
}

impl From<NotLocal> for MapError {
    fn from(why: NotLocal) -> Self {
        Self::NotLocal(why)
    }
}

impl From<WriteError> for MapError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict(conflict) => Self::Conflict(conflict),
            WriteError::Call(error) => Self::Call(error),
        }
    }
}

impl MapError {
    /// The conflict, if the entry has another version than the expected one. If the conflict has a
    /// [`current`](Conflict::current) value, [`Map::decode`](crate::Map::decode) reads its bytes.
    pub fn conflict(&self) -> Option<&Conflict> {
        if let Self::Conflict(conflict) = self { Some(conflict) } else { None }
    }

    /// The error of the underlying call, which states whether the write was applied.
    pub fn call(&self) -> Option<&Error> {
        if let Self::Call(error) = self { Some(error) } else { None }
    }
}
