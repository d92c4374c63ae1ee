//! The programs `quickstart`, `node`, `ctl` and `chaos`, as a library: what they do, an application can do by linking
//! Artillery.

mod args;
mod chance;
pub mod chaos;
pub mod ctl;
mod exit;
mod find;
mod log;
pub mod node;
pub mod quickstart;
mod secret;
mod signals;
