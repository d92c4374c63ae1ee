//! From a call to its answer: the node, the connection, the request id and the time limits.

mod candidates;
pub(crate) mod channel;
#[cfg(feature = "testing")]
pub(crate) mod observer;
mod request_numbers;
mod requests;
pub(crate) mod router;

pub use self::candidates::Candidates;
pub(crate) use self::candidates::SourceTasks;
