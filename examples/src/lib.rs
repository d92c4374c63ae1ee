//! The programs `quickstart`, `node` and `ctl`, as a library: what they do, an application can do by linking Artillery.

mod args;
mod chance;
pub mod ctl;
mod exit;
mod find;
mod log;
pub mod node;
pub mod quickstart;
mod secret;
mod signals;
