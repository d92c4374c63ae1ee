//! Runs the state machines of `artillery-proto` on tokio: chain tasks, lanes to peers, formation. It makes no protocol
//! decisions.

pub(crate) mod chain;
pub(crate) mod control;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod forming;
pub(crate) mod journal;
pub(crate) mod lanes;
pub(crate) mod phase;
pub(crate) mod receive;
pub(crate) mod serve;

/// A future that owns its captures.
pub(crate) type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
