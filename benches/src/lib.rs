//! Shared parts of the benches: loads, chains, and the raw limits with which they are compared.

mod bare;
pub mod durable;
pub mod graphs;
mod load;
pub mod long_link;
mod loopback;
pub mod paper;
pub mod raw;
pub mod relay;
pub mod stepped;
pub mod throughput;

pub use self::{
    bare::BareChain,
    load::{Load, VALUE, holds, key, value},
    loopback::{Loopback, Remote, SECRET, start_nodes},
};
