//! Coordinates of a history, and what stands in it: the values that all rooms speak of.

mod chain;
#[doc(hidden)]
pub mod keep;
mod request_id;
mod session;
pub(crate) mod text;
pub mod update;
mod version;

pub use self::{
    chain::{ChainConfig, ChainId, ChainMember, Mode, Place, Role},
    request_id::RequestId,
    session::{Frontier, Session},
    text::ParseIdError,
    version::{Epoch, Sequence, Version},
};
