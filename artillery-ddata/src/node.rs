//! A node: finds its cluster, serves its chains, and gives handles to the data.

mod belonging;
pub(crate) mod builder;
mod chains;
mod data;
pub(crate) mod durable;
mod following;
mod foreign;
mod founding;
pub(crate) mod handle;
mod loading;
mod others;
mod random;
mod readiness;
mod recovering;
mod recovery_access;
mod releasing;
mod report;
pub(crate) mod service;
#[cfg(test)]
mod tests;
mod threads;

pub use artillery_core::Cluster;

pub use self::{builder::StartError, durable::DataDirError, loading::Loading};
pub use crate::driver::phase::{NeverReady, Ready, Stopped};
