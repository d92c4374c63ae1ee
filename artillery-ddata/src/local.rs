//! Access to this process's chains: the chains served here, and the requests that wait for the task of a chain.

pub(crate) mod answering;
pub(crate) mod handle;
pub(crate) mod room;
mod served;

use tokio::time::Instant;

pub(crate) use self::served::{Here, Local};
use crate::api::Query;

/// The longest time that a request waits at a node, even if its sender names a later deadline. Otherwise a sender could
/// make a node keep a request indefinitely.
pub(crate) const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_secs(300);

/// A watch that waits less is answered at its deadline.
const SHORT_WATCH: std::time::Duration = std::time::Duration::from_millis(300);
const WATCH_MARGIN: std::time::Duration = std::time::Duration::from_secs(1);

/// When a read with this deadline must be answered. A watch without a change is answered before its deadline, so that
/// its position still reaches the caller. Otherwise the position of a watch whose keys don't change would fall behind
/// the history that members keep.
pub(crate) fn answer_by(query: &Query, deadline: Instant) -> Instant {
    let wait = deadline.saturating_duration_since(Instant::now());
    match query {
        Query::Changes(_) if wait >= SHORT_WATCH => deadline - WATCH_MARGIN.min(wait / 2),
        _ => deadline,
    }
}
