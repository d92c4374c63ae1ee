//! Runs the pure half on tokio: chain tasks, lanes to peers, formation. Nothing here decides anything.

#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod handle;
pub(crate) mod local;
pub(crate) mod serve;
