//! Who is there, and how to reach them: the *AP* half of Artillery.
//!
//! Without default features only the pure parts remain: identifiers, time, codec, frames and the SWIM wrapper.

#[cfg(feature = "net")]
pub mod clock;
#[cfg(feature = "net")]
pub mod cluster;
pub mod codec;
#[cfg(feature = "net")]
pub mod config;
#[cfg(feature = "net")]
pub mod discovery;
#[cfg(feature = "net")]
pub mod error;
pub mod frame;
pub mod id;
#[cfg(feature = "net")]
pub mod identity;
pub mod membership;
pub mod time;
#[cfg(feature = "net")]
pub mod transport;

#[cfg(feature = "net")]
pub use cluster::{Cluster, ClusterBuilder, Member, MemberEvent, MemberEvents, MemberState};
pub use id::{ClusterId, Incarnation, MemberId, NodeId};
pub use time::Timestamp;
