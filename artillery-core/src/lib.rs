//! Who is there, and how to reach them: the *AP* half of Artillery.
//!
//! Without default features only the pure parts remain: identifiers, time, codec, frames and the SWIM wrapper.

pub mod codec;
#[cfg(feature = "net")]
pub mod discovery;
pub mod frame;
pub mod id;
pub mod membership;
pub mod time;

pub use id::{ClusterId, Incarnation, MemberId, NodeId};
pub use time::Timestamp;
