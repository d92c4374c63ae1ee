//! A node: finds its cluster, serves its chains, and gives handles to the data.

mod belonging;
pub(crate) mod builder;
mod chains;
mod data;
pub(crate) mod durable;
pub(crate) mod events;
mod following;
mod founding;
pub(crate) mod handle;
mod loading;
mod random;
mod readiness;
mod recovering;
mod recovery_access;
mod releasing;
mod report;
mod reporting;
pub(crate) mod service;
#[cfg(test)]
mod tests;
mod threads;
pub(crate) mod waiting;

pub use artillery_core::{Cluster, RefusedPeer, SeedState, SeedStatus};

pub use self::{
    builder::StartError,
    durable::DataDirError,
    events::{EventNode, MoveReason, NodeEvent, NodeEvents},
    loading::Loading,
    waiting::WaitingFor,
};
pub use crate::driver::phase::{NeverReady, Ready, Stopped};
