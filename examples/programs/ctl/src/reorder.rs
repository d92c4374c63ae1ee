//! `ctl reorder`: changes the order of the members of a chain.

use std::time::Duration;

use artillery_ddata::{
    ChainId, Client, MemberId, NodeId, Routing,
    admin::{AdminCommand, AdminError, ArrangeError, ReorderError},
};
use artillery_programs::exit::{self, Failure};
use tokio::time::Instant;

use super::{
    leader::{self, Said},
    output::Output,
};

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
    let epoch = leader::ask(&routing, deadline, async |node, left| {
        let wish = AdminCommand::Reorder { chain, order: order.clone() };
        match client.arrange(node, wish, left).await {
            Err(AdminError::Rejected(ArrangeError::Reorder(ReorderError::NotLeading { leader }))) => {
                Said::Elsewhere(leader)
            }
            outcome => Said::once(outcome),
        }
    })
    .await?;
    if output.json {
        output.object(&serde_json::json!({ "chain": chain.0, "epoch": epoch.map_or(0, |epoch| epoch.0) }));
    }
    Ok(exit::DONE)
}

fn member(routing: &Routing, chain: ChainId, name: &str) -> Result<MemberId, Failure> {
    let node = named(routing, name)?;
    let config = routing.chain(chain).ok_or_else(|| Failure::failed(format!("there is no chain {}", chain.0)))?;
    let member = config.serving().find(|member| member.node == node);
    member.ok_or_else(|| Failure::failed(format!("{name} is no serving member of chain {}", chain.0)))
}

/// Finds a node by its name or id.
pub(super) fn named(routing: &Routing, name: &str) -> Result<NodeId, Failure> {
    let mut found = routing.nodes.iter().filter(|(id, node)| node.name == name || id.to_string() == name);
    match (found.next(), found.next()) {
        (Some((&id, _)), None) => Ok(id),
        (None, _) => Err(Failure::failed(format!("there is no node {name}"))),
        _ => Err(Failure::failed(format!("there are several nodes {name}: use its id"))),
    }
}
