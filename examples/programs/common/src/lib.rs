//! Code shared by the programs `quickstart`, `node`, `ctl` and `chaos`.

pub mod args;
pub mod chance;
pub mod command;
pub mod exit;
pub mod log;
pub mod secret;
pub mod signals;
pub mod story;
