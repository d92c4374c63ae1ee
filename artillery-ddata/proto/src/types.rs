//! The coordinates and the entries of a chain's history, and its configuration: the values that all modules share.

mod chain;
mod expiry;
#[doc(hidden)]
pub mod keep;
mod request_id;
mod session;
pub mod update;
mod version;

pub use self::{
    chain::{ChainConfig, ChainId, ChainMember, Mode, Place, Role},
    expiry::Expiry,
    request_id::RequestId,
    session::{Frontier, Session},
    version::{Epoch, Sequence, Version},
};
