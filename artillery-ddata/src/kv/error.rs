//! The error of a write with conditions.

use super::Conflict;
use crate::Error;

/// Why a write with conditions failed: a compare-and-swap, a compare-and-delete, a batch or a script.
///
/// ```
/// # async fn example(kv: &artillery_ddata::Kv) -> Result<(), artillery_ddata::kv::WriteError> {
/// use artillery_ddata::{Version, kv::WriteError};
///
/// match kv.compare_and_swap("leader", Version::NONE, "ann").await {
///     Ok(done) => println!("elected by {}", done.version),
///     Err(WriteError::Conflict(conflict)) => println!("elected before: {:?}", conflict.current),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A condition didn't hold: nothing was changed.
    #[error("conflict: {0}")]
    Conflict(Box<Conflict>),
    /// The call itself failed. The error states whether the write was applied.
    #[error(transparent)]
    Call(#[from] Error),
}

impl WriteError {
    /// The conflict, if a condition didn't hold.
    pub fn conflict(&self) -> Option<&Conflict> {
        if let Self::Conflict(conflict) = self { Some(conflict) } else { None }
    }

    /// The error of the call, if it failed for another reason than a conflict.
    pub fn call(&self) -> Option<&Error> {
        if let Self::Call(error) = self { Some(error) } else { None }
    }

    /// The conflict.
    ///
    /// # Errors
    /// The error of the call, if it failed for another reason.
    pub fn into_conflict(self) -> Result<Conflict, Error> {
        match self {
            Self::Conflict(conflict) => Ok(*conflict),
            Self::Call(error) => Err(error),
        }
    }
}

impl From<Conflict> for WriteError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(Box::new(conflict))
    }
}
