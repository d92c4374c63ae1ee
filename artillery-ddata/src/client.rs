//! A client: the data of a cluster from beside it.

pub(crate) mod builder;
pub(crate) mod handle;
pub(crate) mod recovery;
#[cfg(test)]
mod tests;

pub use self::handle::ClientError;
pub use crate::rpc::{Candidates, router::Spread};
