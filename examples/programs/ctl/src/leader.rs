//! Has the node that decides on configurations carry out an order.

use std::time::Duration;

use artillery_ddata::{MemberId, NodeId, Routing};
use artillery_programs::exit::Failure;
use tokio::time::{Instant, sleep};

/// Until the next question for the leader of the configuration.
const PAUSE: Duration = Duration::from_millis(100);

/// What a node says to an order.
pub(super) enum Said<T> {
    /// It was carried out, or refused.
    Done(Result<T, Failure>),
    /// This node isn't the leader; that one is, as far as the node knows.
    Elsewhere(Option<MemberId>),
    /// The node wasn't reached, or can't answer. Another one may know the leader.
    Nothing,
}

/// Gives an order to one node after the other, until the leader answers. `ask` gets the node, and the time that is left.
pub(super) async fn ask<T>(
    routing: &Routing,
    deadline: Instant,
    ask: impl AsyncFn(NodeId, Duration) -> Said<T>,
) -> Result<T, Failure> {
    let mut asked: Vec<NodeId> = routing.nodes.keys().copied().collect();
    while let Some(node) = asked.pop() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match ask(node, left).await {
            Said::Done(result) => return result,
            Said::Elsewhere(leader) => {
                asked.extend(leader.map(|leader| leader.node).filter(|&leader| leader != node));
            }
            Said::Nothing => {}
        }
        if asked.is_empty() {
            asked.extend(routing.nodes.keys());
            sleep(PAUSE).await;
        }
    }
    Err(Failure::failed("no node that decides was reached in time"))
}
