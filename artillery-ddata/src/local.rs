//! Access to this process's chains: the chains served here, and the requests that wait for the task of a chain.

pub(crate) mod answering;
pub(crate) mod handle;
pub(crate) mod room;
mod served;

pub(crate) use self::served::{Here, Local};

/// The longest time that a request waits at a node, even if its sender names a later deadline. Otherwise a sender could
/// make a node keep a request indefinitely.
pub(crate) const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_secs(300);
