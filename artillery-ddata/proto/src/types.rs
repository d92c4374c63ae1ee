//! Coordinates of a history, and what stands in it: the values that all rooms speak of.

mod chain;
pub(crate) mod hex;
#[doc(hidden)]
pub mod keep;
mod request_id;
mod session;
pub mod update;
mod version;

pub use self::{
    chain::{ChainConfig, ChainId, ChainMember, Mode, Place, Role},
    request_id::{ParseRequestIdError, RequestId},
    session::{Frontier, ParseFrontierError, Session},
    version::{Epoch, ParseVersionError, Sequence, Version},
};
