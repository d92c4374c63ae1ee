//! A strongly consistent, replicated key-value store that runs inside your program. It implements CRAQ (chain
//! replication with apportioned queries; Terrace & Freedman, USENIX ATC 2009).
//!
//! Use it for state that several processes share, that must never be read stale, and that must survive the loss of
//! machines. All data must fit in memory: a node can also keep it on disk ([`NodeBuilder::data_dir`]), but reads it
//! from memory. There is no query language, and no batch spans several chains. A secret or certificates keep outsiders
//! out, but Byzantine members are not tolerated.
//!
//! Nodes discover each other and form a chain. Each member of the chain keeps every committed value. A write enters at
//! the *head*, passes the members in order, and is committed by the *tail*. Any member serves linearizable reads. While
//! the newest version of a key is known to be committed (the key is *clean*), the member answers at once from its own
//! memory. Otherwise (the key is *dirty*) it first sends one short query to the tail.
//!
//! # Getting started
//!
//! A node needs the name of its cluster and a secret that only its members know. With `expect(1)` it forms a cluster by
//! itself, with a chain of one member:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use artillery_ddata::Node;
//!
//! let node = Node::builder()
//!     .cluster("shop") // unique per test: nodes with the same name and secret find each other
//!     .secret("sixteen bytes or more") // shorter secrets are refused
//!     .expect(1)
//!     .mdns(false) // there are no other nodes to discover
//!     .start()
//!     .await?;
//! node.ready().await?; // the node can answer reads now; an error states why it never will
//!
//! let kv = node.kv();
//! let put = kv.put("greeting", "hello").await?; // returns once the tail has committed it
//! let read = kv.get("greeting").await?; // linearizable
//! assert_eq!(read.value().map(|value| &value[..]), Some(&b"hello"[..]));
//! assert_eq!(read.version(), put.version);
//! node.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! A node needs file descriptors for its socket and its journal, and fails without them. The usual soft limit of 1024
//! is low for a program that also serves clients: raise it to the hard limit at startup (`rustix::process::setrlimit`),
//! and accept fewer clients than that.
//!
//! A real chain is the same program on three machines, with `expect(3)` and without `mdns(false)`. A node listens on
//! all addresses of its machine unless [`listen`](crate::NodeBuilder::listen) sets others. Nodes find each other by
//! multicast DNS, by [`seed`](crate::NodeBuilder::seed) addresses or names, or by a source of your own
//! ([`discovery`](crate::NodeBuilder::discovery)). Once three nodes with this name and secret see each other, they form
//! the cluster; this happens once. Later nodes become spares: they forward requests to a member, and replace a member
//! that dies. `cargo run --release --bin quickstart` demonstrates all of this in one process.
//!
//! To start with one node and grow later, give `expect(1)` to all. A node looks for others for one second, for two if
//! it sees none, and for up to ten while a seed or an announced node hasn't answered. Then it forms a cluster, alone or
//! with every node that it sees. Nodes that start later join.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use artillery_ddata::{Error, Node, NotLocal, ReadMode, kv::{ReadState, WriteError}};
//! let secret = std::env::var("SHOP_SECRET")?;
//! let node = Node::builder().cluster("shop").secret(secret).expect(3).listen("192.0.2.7:7400".parse()?).start().await?;
//! node.ready().await?;
//! let kv = node.kv();
//!
//! // Change a key unless another caller has changed it. A conflict is an error of its own.
//! let stock = kv.get("stock/7").await?;
//! match kv.compare_and_swap("stock/7", stock.version(), "41").await {
//!     Err(WriteError::Conflict(conflict)) => println!("another write was first: {:?}", conflict.current),
//!     swapped => println!("committed as {}", swapped?.version),
//! }
//!
//! // The newest version at this node. It may be uncommitted: then the result's state is `Dirty`.
//! let newest = kv.get("stock/7").mode(ReadMode::Eventual).await?;
//! println!("{:?}, dirty: {}", newest.value(), newest.state == ReadState::Dirty);
//!
//! // A clean key, read by a plain function: no task, no await, and outside a session no allocation.
//! match kv.get_local("stock/7") {
//!     Ok(found) => println!("{found:?}"),
//!     Err(NotLocal::Dirty) => println!("a write is in progress: `get` would ask the tail"),
//!     Err(other) => println!("not served here: {other}"),
//! }
//!
//! // An error states whether the write was applied.
//! match kv.put("paid/9", "yes").await {
//!     Ok(done) => println!("on {} members", done.copies),
//!     Err(Error::OutcomeUnknown { request_id, .. }) => println!("{:?}", kv.resolve(request_id).await?),
//!     Err(untouched) => println!("not applied: {untouched}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A key can expire. The head of the chain removes it once it is due; a call can renew or remove the expiry. Times to
//! live are lengths of chain time, in which time without any running member of the chain isn't counted
//! ([`ttl`](kv::WriteCall::ttl)):
//!
//! ```no_run
//! # async fn example(kv: artillery_ddata::Kv) -> Result<(), artillery_ddata::Error> {
//! use std::time::Duration;
//!
//! let idle = Duration::from_secs(1800);
//! kv.put("session/7", "ann").ttl(idle).await?;
//! kv.expire("session/7", idle).await?; // from now on; an absent key stays absent
//! println!("{:?}", kv.get("session/7").await?.expires_in());
//!
//! // At most 100 requests per minute: only the first one, which creates the key, sets its time to live.
//! let requests = kv.increment("requests/ann", 1).ttl_if_new(Duration::from_secs(60)).await?;
//! println!("allowed: {}", requests.result <= 100);
//! # Ok(())
//! # }
//! ```
//!
//! A program that isn't a node uses a [`Client`], which gives the same [`Kv`]. A program without a runtime uses a
//! [`blocking::Client`]. A [`Map`] has keys and values of your own types. A [`View`] is a local copy of the keys with a
//! prefix.
//!
//! # Platforms
//!
//! Linux is tested, with Rust 1.88 and newer. macOS is expected to work. Windows isn't supported.
//!
//! # Modules
//!
//! The handles are at the root: [`Node`], [`Client`], [`Kv`], [`Map`], [`View`]. The modules hold the other types:
//!
//! - [`node`] and [`client`]: why a node or client can't start, or why a node never becomes ready.
//! - [`kv`] and [`map`]: calls, results and conflicts.
//! - [`view`]: local copies, which a program reads without waiting.
//! - [`blocking`]: the same calls for plain threads.
//! - [`config`]: the settings of a node.
//! - [`error`]: the reasons in an [`Error`].
//! - [`status`] and [`metrics`]: a node's reports about itself.
//! - [`admin`]: operator commands, and recovery after a loss.
//! - `http` (feature `http`): an axum router with health checks, Prometheus metrics, the status, and a page for
//!   browsers.
//! - `testing` (feature `testing`): a simulated cluster for tests of your own code.
//!
//! The protocol itself is in the crate `artillery-proto`. It has no socket, clock, task or thread, so the simulator
//! runs the same state machine as the network. That crate may change in any release: use its types by their names here.
//!
//! # Guarantees
//!
//! Strong reads and writes are linearizable at every node. A write takes effect at most once, however often it is
//! retried: a call retries by itself under one request id, and [`Kv::resolve`] settles an outcome that is still
//! unknown. A dead member is removed once its lease has certainly expired. Until then the other members continue to
//! serve clean reads, and writes wait. Without a data directory, written data survives as long as one serving member
//! does. With one, a write is on the disk of each serving member before it is acknowledged, unless
//! [`sync`](config::DataConfig::sync) is `Never`, and survives a restart of all of them.

#![cfg_attr(docsrs, feature(doc_cfg))]

// Unit tests disable guards, so their `artillery_proto` is the build with mutants (docs/adr/0003-mutants.md). `testing`
// exports the checker.
#[cfg(test)]
pub extern crate artillery_checker_mutants as artillery_checker;
#[cfg(test)]
extern crate artillery_proto_mutants as artillery_proto;

pub mod admin;
pub mod backup;
pub mod blocking;
mod budget;
pub mod client;
pub mod config;
mod control;
mod disk;
mod driven;
mod driver;
pub mod error;
#[cfg(feature = "http")]
pub mod http;
pub mod kv;
mod local;
pub mod map;
pub mod metrics;
pub mod node;
mod offload;
pub mod recipes;
mod rpc;
pub mod status;
mod system;
#[cfg(feature = "testing")]
pub mod testing;
pub mod view;

pub use artillery_core::{ClusterId, Incarnation, MemberId, NodeId, Timestamp};
pub use artillery_proto::{
    ChainConfig, ChainId, ChainMember, Epoch, Frontier, Mode, NodeAddress, NotLocal, Place, ReadMode, Refusal,
    RequestId, Role, Routing, Sequence, Session, Version,
};
pub(crate) use artillery_proto::{api, message, replica, store, types, wire};

pub use self::{
    client::{builder::ClientBuilder, handle::Client},
    error::kinds::Error,
    kv::{batch::Batch, handle::Kv, script::Script},
    map::handle::Map,
    node::{builder::NodeBuilder, handle::Node},
    view::View,
};
