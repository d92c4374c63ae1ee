//! Gives an order to the leader of the configuration log.

use std::time::Duration;

use artillery_ddata::{MemberId, NodeId, Routing};
use artillery_programs::exit::Failure;
use tokio::time::{Instant, sleep};

/// The pause before all nodes are asked again.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) enum Said<T> {
    /// The order was carried out or refused.
    Done(Result<T, Failure>),
    /// This node isn't the leader; the payload is the leader that it knows.
    Elsewhere(Option<MemberId>),
    /// The node wasn't reached, or can't answer. Another one may know the leader.
    Nothing,
}

/// Gives an order to one node after the other, until the leader answers. `ask` gets the node and the remaining time.
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
    Err(Failure::failed("found no leader of the configuration in time: no majority of its voters may be running"))
}
