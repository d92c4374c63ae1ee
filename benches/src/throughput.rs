//! Throughput and latency by number of callers: CR, CRAQ and bare sockets, in one run.
//!
//! Servers are separate processes ([`processes`]); the callers are in this process ([`crew`]). All contestants of a
//! graph run at the same time and take turns at each number of callers, so that ratios compare the same minutes.

pub mod book;
pub mod crew;
pub mod echo;
pub mod lines;
pub mod machine;
pub mod placement;
pub mod processes;
pub mod quota;
pub mod results;
pub mod run;
pub mod signals;
pub mod stats;

/// An error, which fails the run.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
