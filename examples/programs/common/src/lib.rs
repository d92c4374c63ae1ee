//! What the programs `quickstart`, `node`, `ctl` and `chaos` share.

pub mod args;
pub mod chance;
pub mod exit;
pub mod log;
pub mod secret;
pub mod signals;
pub mod story;
