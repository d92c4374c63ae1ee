//! Operations a second and their latency, by number of callers: CR beside CRAQ beside bare sockets, in one run.
//!
//! Servers are processes of their own ([`processes`]); the callers are in this one ([`crew`]). All contestants of a graph
//! are up at the same time and take turns at each number of callers, so that ratios are of the same minutes.

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

/// Whatever went wrong: any of it fails the run.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
