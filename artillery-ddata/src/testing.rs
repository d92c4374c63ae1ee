//! Tests of applications: a whole cluster in one process, on virtual time and without a socket.
//!
//! [`Cluster`] (feature `testing`) runs the real code of nodes and clients. The network below their
//! connections, the disks and the clocks are simulated, and all randomness comes from a seed. Your code takes a [`Kv`](crate::Kv) as it does in
//! production. A test can cause events that are rare in production: a lost answer, a paused member, a link cut in one
//! direction, a crash.
//!
//! ```
//! # mod example {
//! use artillery_ddata::{
//!     Error, Kv,
//!     testing::{Cluster, Fate},
//! };
//!
//! /// The code under test: it must pay exactly once.
//! async fn pay(kv: &Kv, amount: i64) -> Result<(), Error> {
//!     match kv.increment("paid", amount).await {
//!         Ok(_) => Ok(()),
//!         // Repeat the same request: it is applied at most once.
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
//! [`explore()`] runs a test under many seeds, with faults of all kinds.
//!
//! [`Builder::durable`] gives the nodes disks. Acknowledged data then survives crashes and power cuts:
//!
//! ```
//! use artillery_ddata::testing::Cluster;
//!
//! Cluster::builder().durable().explore(0..5, |cluster| async move {
//!     let kv = cluster.client();
//!     kv.put("order/7", "paid").await.unwrap();
//!     for node in cluster.nodes() {
//!         cluster.power_cut(node); // unsynced data is lost, in whole or in part
//!     }
//!     cluster.restart_all().await;
//!     assert_eq!(kv.get("order/7").await.unwrap().value().unwrap(), "paid");
//! });
//! ```
//!
//! Time is virtual, so a test of a time to live takes none:
//!
//! ```
//! # #[cfg(feature = "testing")] fn main() {
//! use std::time::Duration;
//!
//! use artillery_ddata::{Version, testing};
//!
//! testing::explore(0..5, |cluster| async move {
//!     let (worker, other) = (cluster.client(), cluster.client());
//!     let began = tokio::time::Instant::now();
//!     // A lock that frees itself. The fault may also have refused it, or hidden its outcome.
//!     let lock = worker.compare_and_swap("lock", Version::NONE, "worker").ttl(Duration::from_secs(10)).await;
//!     // The worker stops here.
//!     tokio::time::sleep_until(began + Duration::from_secs(9)).await;
//!     let taken = other.compare_and_swap("lock", Version::NONE, "other").ttl(Duration::from_secs(10)).await;
//!     if lock.is_ok() && taken.is_ok() {
//!         assert!(began.elapsed() >= Duration::from_millis(9_900)); // this call may have taken seconds
//!     }
//!     tokio::time::sleep(Duration::from_secs(60)).await;
//!     if let Ok(read) = other.get("lock").await {
//!         assert!(read.value().is_none());
//!     }
//! });
//! # }
//! # #[cfg(not(feature = "testing"))] fn main() {}
//! ```
//!
//! # What is checked
//!
//! [`Cluster::check`] ends all faults, waits until the members agree, and verifies every call by any handle of the
//! cluster: strong reads and writes must be linearizable, each write must be applied at most once with the right
//! result, sessions must never go backwards, and all members must hold the same data. A key with a time to live may be
//! gone after it, but not before: at the earliest, 1 % sooner, which is the bound on the difference of two clocks.
//!
//! That checks the store, and this crate. It doesn't know what the calls mean to *your* program: a program that pays
//! again under a new request id after an unknown outcome has requested two payments. Assert the invariants of your data,
//! and let [`explore()`] find a seed that violates them.
//!
//! # Determinism
//!
//! A cluster starts only in a current-thread runtime with a paused clock. There a run is a function of the seed and the
//! test: the order of events, times, versions, request ids and node ids. This holds as long as the test uses no clock,
//! thread or randomness of its own, and doesn't depend on the order of a hash map. `tokio::select!` polls its branches
//! in random order, unless it is `biased`.
//!
//! # Failover
//!
//! The nodes run the control plane that ships: membership, the configuration log and its elections, leases, and
//! the rules by which members are removed, replaced and synced. So a test can [crash](Cluster::crash) and
//! [restart](Cluster::restart) a node, [drain](Cluster::drain) or [add](Cluster::add_node) one, fill its
//! [disk](Cluster::fill_disk), or [skew](Cluster::skew_clock) its clock, and sees what an application sees in production.
//! [`Trouble::crashes`] does some of that at random.
//!
//! ```
//! # mod example {
//! use artillery_ddata::testing::Cluster;
//!
//! # /*
//! #[tokio::test(start_paused = true)]
//! # */
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] pub(super)
//! async fn survives_the_loss_of_its_head() {
//!     let cluster = Cluster::builder().nodes(4).replicas(3).seed(7).start().await;
//!     let kv = cluster.client();
//!     kv.put("order/7", "paid").await.unwrap();
//!     cluster.crash(cluster.head());
//!     assert_eq!(kv.get("order/7").await.unwrap().value().unwrap(), "paid");
//!     kv.put("order/8", "paid").await.unwrap(); // once the lease of the former head has expired
//!     cluster.settle().await; // the spare has joined
//!     assert_eq!(cluster.chain().len(), 3);
//!     cluster.check().await;
//! }
//! # }
//! # #[cfg(feature = "testing")] fn main() { example::survives_the_loss_of_its_head() }
//! ```
//!
//! # Limitations
//!
//! The tasks of your test don't end with a node's process: after a crash, calls by its handles fail with
//! [`NotApplied::Stopped`](crate::error::NotApplied::Stopped), at once. The retry of a write under its request id fails
//! with [`Unknown::NotMade`](crate::error::Unknown::NotMade). A loop that repeats such calls without a pause
//! panics after 100,000 of them. A panic of a spawned task is reported only if the test awaits the task.
//!
//! A paused process isn't stopped: its handles wait, no message reaches or leaves it, and its tasks continue. Disks are
//! never damaged, apart from the losses of a power cut. The changes of a [`Watch`](crate::kv::Watch) and the pages of
//! [`Kv::scan_hashed`](crate::Kv::scan_hashed) aren't checked. Of keys that a [`Script`](crate::Script) names, only the
//! contents are checked: not whether a read was outdated, and not the order within a session. A copy by a script may
//! have any value, and may be gone once any time to live of the run has passed. A
//! [`BlockingKv`](crate::blocking::BlockingKv) can't be used, since it needs threads and real time.

mod cluster;
mod explore;
#[cfg(test)]
mod tests;
mod trouble;
mod verdict;

pub use crate::rpc::observer::Fate;
pub use artillery_checker::{self as checker, history};
pub use cluster::{Builder, CheckFailed, Checked, Cluster};
pub use explore::explore;
pub use trouble::Trouble;
