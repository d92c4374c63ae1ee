//! Nodes that find each other, prove their identity, monitor each other and exchange bytes: the *available* half of
//! Artillery, usable without the data half.
//!
//! It provides discovery (multicast DNS, seeds, host names, files, and custom sources), mutual TLS from a shared secret
//! or from given certificates, SWIM membership, and one QUIC endpoint per node with framed streams, datagrams and links
//! that redial.
//!
//! It is not consistent. It reports which members *seem* to be up: two nodes may disagree temporarily, and a member
//! that is [`Down`](MemberState::Down) here may be alive elsewhere. Decisions that must be made only once need
//! `artillery-ddata`, which is built on top of this crate.
//!
//! # Find the other nodes
//!
//! A [`Cluster`] is a running node. On one network, a cluster name and a secret are enough. Networks without multicast
//! need seeds or another source of addresses.
//!
//! ```no_run
//! # #[cfg(feature = "net")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use artillery_core::{Cluster, MemberEvent};
//!
//! let secret = std::env::var("SHOP_SECRET")?;
//! let cluster = Cluster::builder().cluster("shop").secret(secret).seed("db-1.example:7400").payload("role=web");
//! let cluster = cluster.start().await?;
//!
//! let mut events = cluster.events();
//! while let Some(event) = events.next().await {
//!     match event {
//!         MemberEvent::Up(member) => println!("{} at {}: {:?}", member.name, member.addr, member.payload),
//!         MemberEvent::Down(member) | MemberEvent::Left(member) => println!("{} is gone", member.name),
//!         _ => println!("{} members are known", events.members().count()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Platforms
//!
//! Linux is tested, with Rust 1.88 and newer. macOS is expected to work. Windows isn't supported.
//!
//! # Send bytes to other nodes
//!
//! [`Cluster::endpoint`] provides a [`Link`](transport::Link) to any member. A link redials when its connection breaks.
//! Streams carry frames: a small header, and a body whose large pieces are sent without a copy. The receiving node
//! passes each stream to its [`Service`](transport::Service).
//!
//! ```no_run
//! # #[cfg(feature = "net")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use artillery_core::{
//!     Cluster,
//!     transport::{IncomingStream, PeerInfo, Service, StreamKind},
//! };
//!
//! const NOTES: StreamKind = StreamKind::FIRST_FREE;
//!
//! struct Notes;
//!
//! impl Service for Notes {
//!     fn stream(&self, peer: &Arc<PeerInfo>, mut stream: IncomingStream) {
//!         let name = peer.name.clone();
//!         tokio::spawn(async move {
//!             while let Ok(Some(frame)) = stream.reader.next().await {
//!                 println!("{name}: {:?}", frame.body);
//!             }
//!         });
//!     }
//! }
//!
//! # let secret = std::env::var("SHOP_SECRET")?;
//! let cluster = Cluster::builder().cluster("shop").secret(secret).service(Arc::new(Notes)).start().await?;
//! for member in cluster.members() {
//!     let link = cluster.endpoint().link(member.id.node, vec![member.addr]);
//!     let mut writer = link.connected().await?.open_uni(NOTES, 0).await?;
//!     writer.send(b"", &["hello".into()]).await?;
//!     writer.finish();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! [`config`] contains settings, [`identity`] certificates, [`discovery`] the sources of addresses (which applications
//! can extend) and their errors, [`transport`] the QUIC endpoint, and [`error`] all other errors.
//!
//! Without default features only the I/O-free half is compiled, which reads no clock and opens no socket: identifiers,
//! time, frames, settings, errors and, for the other crates of this project, SWIM as a state machine.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "net")]
mod clock;
#[cfg(feature = "net")]
mod cluster;
mod codec;
pub mod config;
#[cfg(feature = "net")]
pub mod discovery;
pub mod error;
mod frame;
mod id;
#[cfg(feature = "net")]
pub mod identity;
#[doc(hidden)]
pub mod internal;
mod membership;
#[cfg(feature = "net")]
mod random;
#[cfg(feature = "net")]
mod system;
mod time;
#[cfg(feature = "net")]
pub mod transport;
#[cfg(feature = "net")]
mod watch;

#[cfg(feature = "net")]
pub use cluster::{Cluster, ClusterBuilder, Member, MemberEvent, MemberEvents, RefusedPeer, SeedState, SeedStatus};
pub use frame::Frame;
pub use id::{ClusterId, Incarnation, MemberId, NodeId};
pub use membership::MemberState;
pub use time::Timestamp;
