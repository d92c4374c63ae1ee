//! From a call to its answer: choosing a node, connections, request ids and deadlines.

mod candidates;
pub(crate) mod channel;
#[cfg(feature = "testing")]
pub(crate) mod observer;
mod request_numbers;
mod requests;
pub(crate) mod router;

pub use self::candidates::Candidates;
pub(crate) use self::candidates::SourceTasks;
