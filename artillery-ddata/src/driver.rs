//! Runs the pure half on tokio: chain tasks, lanes to peers, formation. Nothing here decides anything.

pub(crate) mod chain;
pub(crate) mod control;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod forming;
pub(crate) mod handle;
pub(crate) mod lanes;
pub(crate) mod local;
pub(crate) mod receive;
pub(crate) mod serve;
