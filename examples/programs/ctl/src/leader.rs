//! Gives an order to the leader of the configuration log.

use std::{fmt::Display, time::Duration};

use artillery_ddata::{MemberId, NodeId, Routing, admin::AdminError};
use artillery_programs::exit::Failure;
use tokio::time::{Instant, sleep};

/// The pause before all nodes are asked again.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) enum Said<T> {
    /// The order was carried out or refused.
    Done(Result<T, Failure>),
    /// This node isn't the leader; the payload is the leader that it knows.
    Elsewhere(Option<MemberId>),
    /// The order was not sent to this node. Another one may know the leader.
    Nothing,
    /// The order was sent, and its outcome is unknown.
    Unknown(Failure),
}

impl<T> Said<T> {
    /// The outcome of an order that must not be repeated once it may have been carried out. For outcomes other than a
    /// refusal that names the leader: such a refusal is [`Said::Elsewhere`].
    pub(super) fn once<R: Display>(outcome: Result<T, AdminError<R>>) -> Self {
        match Self::of(outcome) {
            Self::Unknown(failure) => Self::Done(Err(failure)),
            said => said,
        }
    }

    /// Like [`once`](Self::once), for an order that has no further effect when it is repeated.
    pub(super) fn of<R: Display>(outcome: Result<T, AdminError<R>>) -> Self {
        match outcome {
            Ok(done) => Self::Done(Ok(done)),
            Err(AdminError::NotSent(_)) => Self::Nothing,
            Err(error) if error.is_outcome_unknown() => Self::Unknown(error.into()),
            Err(refused) => Self::Done(Err(refused.into())),
        }
    }
}

/// Gives an order to one node after the other, until the leader answers or the deadline has passed. `ask` gets the node
/// and the remaining time. The order is repeated after [`Said::Unknown`].
pub(super) async fn ask<T>(
    routing: &Routing,
    deadline: Instant,
    ask: impl AsyncFn(NodeId, Duration) -> Said<T>,
) -> Result<T, Failure> {
    let mut asked: Vec<NodeId> = routing.nodes.keys().copied().collect();
    let mut unknown: Option<Failure> = None;
    while let Some(node) = asked.pop() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match ask(node, left).await {
            Said::Done(result) => {
                return result.map_err(|refused| match &unknown {
                    Some(earlier) => refused.after_unknown(earlier),
                    None => refused,
                });
            }
            Said::Elsewhere(leader) => {
                asked.extend(leader.map(|leader| leader.node).filter(|&leader| leader != node));
            }
            Said::Nothing => {}
            Said::Unknown(failure) => unknown = Some(failure),
        }
        if asked.is_empty() {
            asked.extend(routing.nodes.keys());
            sleep(PAUSE).await;
        }
    }
    let none = "found no leader of the configuration in time: no majority of its voters may be running";
    Err(unknown.unwrap_or_else(|| Failure::failed(none)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use artillery_ddata::{ClusterId, NodeAddress, admin::History};

    use super::*;

    /// One node loses its connection during the order, and the other one refuses it.
    #[tokio::test]
    async fn a_refusal_does_not_hide_an_unknown_outcome() {
        let address = |name: &str| NodeAddress { name: name.to_owned(), addrs: Vec::new(), host: None };
        let nodes = ["a", "b"].map(|name| (NodeId::from_name(name), address(name)));
        let cluster = ClusterId(1);
        let routing = Routing::new(cluster, History { generation: 0, id: 1 }, Vec::new(), nodes.into());
        let (asked, refused) = (Cell::new(0), "another reorder is in progress");
        let outcome = ask(&routing, Instant::now() + Duration::from_secs(3600), async |_, _| {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 => Said::<()>::Unknown(Failure::failed("the connection was lost")),
                _ => Said::Done(Err(Failure::failed(refused))),
            }
        });
        let failure = outcome.await.unwrap_err();
        assert_eq!(failure.kind, Some("outcome_unknown"));
        let text = failure.to_string();
        assert!(text.starts_with(refused) && text.ends_with("the connection was lost"), "{text}");
    }
}
