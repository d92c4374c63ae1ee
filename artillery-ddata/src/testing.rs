//! Tests of what is built on this crate: whole clusters in one process, on virtual time and without a socket.
//!
//! `Cluster` (feature `testing`) runs the very code of nodes and clients; only the network below their connections is
//! made up, and everything that is left to chance there comes from a seed. Your own code takes a [`Kv`](crate::Kv) and
//! notices no difference. What a test does meanwhile is what happens rarely enough in production never to be tried: an
//! answer is lost, a member stands still, a link is cut in one direction, a member dies.
//!
//! ```
//! # mod example {
//! use artillery_ddata::{
//!     Error, Kv, Resolution,
//!     testing::{Cluster, Fate},
//! };
//!
//! /// What is to be tested: pays once, whatever happens.
//! async fn pay(kv: &Kv, amount: i64) -> Result<(), Error> {
//!     match kv.increment("paid", amount).await {
//!         Ok(_) => Ok(()),
//!         // The same request again: it counts once.
//!         Err(Error::OutcomeUnknown { request_id, .. }) => {
//!             kv.increment("paid", amount).request_id(request_id).await.map(drop)
//!         }
//!         Err(error) => Err(error),
//!     }
//! }
//!
//! # /*
//! #[tokio::test(start_paused = true)]
//! # */
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] pub(super)
//! async fn paid_once() {
//!     let cluster = Cluster::builder().nodes(3).seed(7).start().await;
//!     let kv = cluster.client();
//!     cluster.next_outcome_unknown(Fate::Late);
//!     pay(&kv, 40).await.unwrap();
//!     assert_eq!(kv.get("paid").await.unwrap().value().unwrap(), "40");
//!     cluster.check().await;
//! }
//! # }
//! # #[cfg(feature = "testing")] fn main() { example::paid_once() }
//! ```
//!
//! `explore` runs a test under many seeds, with trouble of all kinds meanwhile.
//!
//! # What is checked
//!
//! `Cluster::check` takes all trouble back, waits until the members agree, and looks at every call that was made by any
//! handle of the cluster: whether strong reads and writes are linearizable, each write happened at most once and computed
//! what it must, sessions never went back, and the members hold the same. That is a check of the store, and of this
//! crate. What the calls mean to *your* program it can't know: a program that pays once more under a new request id after
//! an unknown outcome has asked for two payments. Say what must hold of your data, in assertions, and let
//! `explore` find the seed for which it doesn't.
//!
//! # What is the same in each run
//!
//! In a current-thread runtime whose clock is paused a run is a function of the seed and of the test: order of events,
//! times, versions, request ids and node ids; a cluster refuses to start in any other runtime. It stays so as
//! long as the test uses no clock, no thread, no order of a hash map and no randomness of its own; `tokio::select!`
//! draws the order of its branches, unless it is `biased`.
//!
//! # What there is not, yet
//!
//! The configuration of a chain is fixed. While a member is crashed its chain takes no writes, and reads are served
//! where a key is clean; a crashed member doesn't come back. A value in memory is as safe as one on a disk: stores lose
//! nothing. Changes that a [`Watch`](crate::kv::Watch) hands out are not checked. [`BlockingKv`](crate::blocking::BlockingKv) needs
//! threads, and so real time.

mod cluster;
mod explore;
mod node;
#[cfg(test)]
mod tests;
mod trouble;
mod verdict;

pub use crate::rpc::observer::Fate;
pub use artillery_checker::{self as checker, history};
pub use cluster::{Builder, CheckFailed, Checked, Cluster};
pub use explore::explore;
pub use trouble::Trouble;
