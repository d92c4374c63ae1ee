//! Local copies of the data below a prefix, which a program reads without waiting.
//!
//! [`Kv::view`](crate::Kv::view) opens a [`View`]: it reads all keys with a prefix once, and then follows their changes.
//! [`View::get`] is a look-up in this process: it needs no `await`, no runtime and no network, and costs about as much
//! as a look-up in a locked `HashMap`. [`Map::view`](crate::Map::view) does the same with keys and values of your types.
//! Use a view for data that is read often and changes seldom: settings, routes, the members of a service.
//!
//! ```no_run
//! # async fn example(kv: artillery_ddata::Kv) -> Result<(), artillery_ddata::view::ViewError> {
//! let mut settings = kv
//!     .view("settings/")
//!     .on_change(|change| println!("{:?} is {:?} now", change.key, change.value))
//!     .await?;
//! let limit = settings.get("settings/limit").map(|found| found.value);
//!
//! let put = kv.put("settings/limit", "7").await?;
//! settings.caught_up_to(put.version).await?; // the view shows this write now
//! loop {
//!     settings.changed().await?;
//!     println!("{} settings, the limit was {limit:?}", settings.len());
//! }
//! # }
//! ```
//!
//! # Guarantees
//!
//! A view is eventually consistent. Of each chain it shows one committed state after another, in the order of the
//! chain's history, and it may skip states. It never shows part of a batch, and after a recovery of the cluster it shows
//! the recovered state. If its changes are no longer kept by the members, it reads all keys again and replaces the old
//! state by the new one in a single step. Keys of different chains have no common point in time, as in a scan.
//!
//! A view survives failovers, recoveries and lost connections: it retries without limit, shows the last state in the
//! meantime, and [`View::status`] reports how old that is. It ends only with [`ViewError::TooLarge`], when its node or
//! client is stopped, or when its cluster was replaced by one with another number of chains.
//!
//! # Costs
//!
//! All views of a process that have the same prefix and the same limit share one copy and one watch per chain. The watch
//! ends with the last of these views.

mod follow;
mod handle;
mod listener;
mod open;
mod shared;
#[cfg(test)]
mod tests;
mod types;

pub use self::{
    handle::View,
    open::{DEFAULT_MAX_BYTES, OpenView},
    types::{ViewChange, ViewError, ViewState, ViewStatus},
};
