//! A node: finds its cluster, serves its chains, and gives handles to the data.
//!
//! Its files call each other along these arrows only:
//!
//! ```text
//! builder → opened → formed → following → recovering
//!                    formed → foreign → serving
//!           opened → ending
//! builder → handle → operators → recovering, foreign, report
//! opened, report → reporting → serving
//! all of these → data → durable, events, service, stage
//! ```

pub(crate) mod builder;
mod data;
pub(crate) mod durable;
mod ending;
pub(crate) mod events;
mod following;
mod foreign;
mod formed;
pub(crate) mod handle;
mod loading;
pub(crate) mod machine;
mod opened;
mod operators;
mod recovering;
mod releasing;
mod report;
mod reporting;
pub(crate) mod service;
mod serving;
mod stage;
mod starting;
#[cfg(feature = "testing")]
mod tested;
#[cfg(test)]
mod tests;
mod threads;
pub(crate) mod waiting;

pub use artillery_core::{Cluster, RefusedPeer, SeedState, SeedStatus};

pub use self::{
    durable::DataDirError,
    events::{EventNode, NodeEvent, NodeEvents},
    loading::Loading,
    starting::StartError,
    waiting::WaitingFor,
};
pub use crate::driver::{
    control::MoveReason,
    phase::{NeverReady, Ready, Stopped},
};
