//! `ctl reorder`: has the members of a chain stand in another order.

use std::time::Duration;

use artillery_ddata::{
    ChainId, Client, MemberId, NodeId, Routing,
    admin::{AdminCommand, ArrangeError, ReorderError},
};
use artillery_programs::exit::{self, Failure};
use tokio::time::{Instant, sleep};

use super::output::Output;

/// Until the next question for the leader of the configuration.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(
    client: &Client,
    chain: u32,
    nodes: &[String],
    timeout: Duration,
    output: Output,
) -> Result<u8, Failure> {
    let deadline = Instant::now() + timeout;
    let routing = client.refresh(timeout).await.map_err(Failure::failed)?;
    let chain = ChainId(chain);
    let order: Vec<MemberId> = nodes.iter().map(|name| member(&routing, chain, name)).collect::<Result<_, _>>()?;
    let mut asked: Vec<NodeId> = routing.nodes.keys().copied().collect();
    while let Some(node) = asked.pop() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let wish = AdminCommand::Reorder { chain, order: order.clone() };
        match client.arrange(node, wish, left).await {
            Ok(Ok(epoch)) => {
                let epoch = epoch.map_or(0, |epoch| epoch.0);
                if output.json {
                    output.object(&serde_json::json!({ "chain": chain.0, "epoch": epoch }));
                }
                return Ok(exit::DONE);
            }
            Ok(Err(ArrangeError::Reorder(ReorderError::NotLeading { leader }))) => {
                asked.extend(leader.map(|leader| leader.node).filter(|&leader| leader != node));
            }
            Ok(Err(error)) => return Err(Failure::failed(error)),
            // Another node may know the leader.
            Err(_) => {}
        }
        if asked.is_empty() {
            asked.extend(routing.nodes.keys());
            sleep(PAUSE).await;
        }
    }
    Err(Failure::failed("no node that decides was reached in time"))
}

fn member(routing: &Routing, chain: ChainId, name: &str) -> Result<MemberId, Failure> {
    let node = named(routing, name)?;
    let config = routing.chain(chain).ok_or_else(|| Failure::failed(format!("there is no chain {}", chain.0)))?;
    let member = config.serving().find(|member| member.node == node);
    member.ok_or_else(|| Failure::failed(format!("{name} is no serving member of chain {}", chain.0)))
}

/// The node with this name, or this id.
pub(super) fn named(routing: &Routing, name: &str) -> Result<NodeId, Failure> {
    let mut found = routing.nodes.iter().filter(|(id, node)| node.name == name || id.to_string() == name);
    match (found.next(), found.next()) {
        (Some((&id, _)), None) => Ok(id),
        (None, _) => Err(Failure::failed(format!("there is no node {name}"))),
        _ => Err(Failure::failed(format!("there are several nodes {name}: use its id"))),
    }
}
