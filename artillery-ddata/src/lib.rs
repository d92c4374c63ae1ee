//! Strongly consistent, replicated data inside your program: CRAQ (chain replication with apportioned queries; Terrace
//! & Freedman, USENIX ATC 2009), embeddable.
//!
//! Nodes find each other, form a chain, and keep every committed value on each of its members. Writes enter at the
//! *head*, pass the members in order, and are committed by the *tail*. Any member serves linearizable reads: at once from
//! its own memory while the newest version of a key is known to be committed (*clean*), and after one short question
//! to the tail while it isn't (*dirty*).
//!
//! # From nothing to a running chain
//!
//! A node needs the name of its cluster and a secret that only its members know. With `expect(1)` it founds a chain of
//! one:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use artillery_ddata::Node;
//!
//! let node = Node::builder()
//!     .cluster("shop")
//!     .secret("sixteen bytes or more") // shorter ones are refused
//!     .expect(1)
//!     .mdns(false) // there is nobody to look for
//!     .start()
//!     .await?;
//! node.ready().await?; // it may serve now, or this says why it never will
//!
//! let kv = node.kv();
//! let put = kv.put("greeting", "hello").await?; // returns once the tail has committed it
//! let read = kv.get("greeting").await?; // linearizable
//! assert_eq!(read.value().map(|value| &value[..]), Some(&b"hello"[..]));
//! assert_eq!(read.version(), put.version);
//! node.leave().await;
//! # Ok(())
//! # }
//! ```
//!
//! A real chain is the same program on three machines, with `expect(3)` and without `mdns(false)`: once three nodes with
//! this name and secret see each other (by multicast DNS, or by [`seed`](crate::NodeBuilder::seed) addresses
//! where that doesn't reach), they agree on a chain, once and for all. Later nodes become spares, and serve by asking a
//! member. To see it in one process run `cargo run --release --bin quickstart`.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use artillery_ddata::{Error, Node, NotLocal, ReadMode, ReadState, Version};
//! let secret = std::env::var("SHOP_SECRET")?;
//! let node = Node::builder().cluster("shop").secret(secret).expect(3).listen("192.0.2.7:7400".parse()?).start().await?;
//! node.ready().await?;
//! let kv = node.kv();
//!
//! // Change a key only if nobody else did meanwhile. `?` takes errors; a conflict is an answer.
//! let stock = kv.get("stock/7").await?;
//! if let Err(conflict) = kv.compare_and_swap("stock/7", stock.version(), "41").await? {
//!     println!("somebody was first: {:?}", conflict.current);
//! }
//!
//! // The newest version here, which may not be committed yet, and says so.
//! let newest = kv.get("stock/7").mode(ReadMode::Eventual).await?;
//! println!("{:?}, dirty: {}", newest.value(), newest.state == ReadState::Dirty);
//!
//! // A clean key, read by a plain function: no task, no await, no allocation.
//! match kv.get_local("stock/7") {
//!     Ok(found) => println!("{found:?}"),
//!     Err(NotLocal::Dirty) => println!("just being written: `get` would ask the tail"),
//!     Err(other) => println!("not here: {other}"),
//! }
//!
//! // Errors say what state they leave behind.
//! match kv.put("paid/9", "yes").await {
//!     Ok(done) => println!("on {} members", done.copies),
//!     Err(Error::OutcomeUnknown { request_id, .. }) => println!("{:?}", kv.resolve(request_id).await?),
//!     Err(untouched) => println!("not applied: {untouched}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A program beside the cluster uses [`Client`], whose [`Kv`] is the same; one without a runtime uses
//! [`blocking::Client`]. A [`Map`] has keys and values of your own types.
//!
//! # The rooms
//!
//! What decides stands in `artillery-proto`, which has no socket, clock, task or thread in it, and which the simulator
//! drives as the network does. This crate runs it: [`Node`], [`Client`], [`Kv`] and [`Map`], and [`blocking`] for plain
//! threads. [`kv`], [`map`], [`client`] and [`node`] hold what their calls give; [`config`] the settings of a node,
//! [`error`] the reasons in an [`Error`], [`status`] and [`metrics`] what a node says of itself, [`admin`] the orders of
//! an operator.
//!
//! # What is promised, and what is not yet
//!
//! Strong reads and writes are linearizable, at every node. A write happens at most once however often it is tried: calls
//! retry by themselves under one request id, and [`Kv::resolve`] settles an outcome that stayed unknown. A member that
//! dies is removed once its lease is certainly out; clean reads at the others go on meanwhile, writes after it. With the store in
//! memory, what was written lives as long as one serving member does.

pub mod admin;
pub mod blocking;
mod budget;
pub mod client;
pub mod config;
mod control;
mod driven;
mod driver;
pub mod error;
pub mod kv;
mod local;
pub mod map;
pub mod metrics;
pub mod node;
mod rpc;
pub mod status;
#[cfg(feature = "testing")]
pub mod testing;

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
};
