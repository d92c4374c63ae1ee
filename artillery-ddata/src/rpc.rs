//! From a call to its answer: which node is asked, by which connection, under which request id, and for how long.

mod candidates;
pub(crate) mod channel;
#[cfg(feature = "testing")]
pub(crate) mod observer;
mod request_numbers;
mod requests;
pub(crate) mod router;

pub use self::candidates::Candidates;
