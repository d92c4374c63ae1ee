//! A client: access to a cluster's data from a process that isn't one of its nodes.

pub(crate) mod builder;
pub(crate) mod handle;
pub(crate) mod order;
pub(crate) mod recovery;
#[cfg(test)]
mod tests;
pub(crate) mod unreached;

pub use self::{handle::ClientError, unreached::Unreached};
pub use crate::rpc::{Candidates, router::Spread};
