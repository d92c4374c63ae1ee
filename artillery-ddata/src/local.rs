//! The way into the chains of this process: what is served here, and the requests that wait for a chain's task.

pub(crate) mod answering;
pub(crate) mod handle;
pub(crate) mod room;
mod served;

pub(crate) use self::served::Local;

/// No request waits at a node longer, even if its sender names a later deadline: no sender can make a node remember it for ever.
pub(crate) const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_secs(300);
