//! Runs the pure half on tokio: chain tasks, lanes to peers, formation. Nothing here decides anything.

pub(crate) mod handle;
pub(crate) mod local;
