//! The coordinates and the entries of a chain's history, and its configuration: the values that all modules share.

mod chain;
#[doc(hidden)]
pub mod keep;
mod request_id;
mod session;
pub mod update;
mod version;

pub use self::{
    chain::{ChainConfig, ChainId, ChainMember, Mode, Place, Role},
    request_id::RequestId,
    session::{Frontier, Session},
    version::{Epoch, Sequence, Version},
};
