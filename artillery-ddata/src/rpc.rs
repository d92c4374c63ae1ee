//! From a call to its answer: choosing a node, connections, request ids and deadlines.

mod candidates;
pub(crate) mod channel;
mod no_answer;
#[cfg(feature = "testing")]
pub(crate) mod observer;
mod request_numbers;
mod requests;
pub(crate) mod router;

pub use self::{candidates::Candidates, no_answer::Unanswered};
pub(crate) use self::{candidates::SourceTasks, no_answer::NoAnswer};
