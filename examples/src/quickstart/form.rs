//! From three strangers to one chain.

use std::time::Duration;

use artillery_ddata::{MemberId, Node};
use tokio::{task::JoinSet, time::timeout};

use super::summary::Story;
use crate::{chance, exit::Failure};

const NAMES: [&str; 3] = ["anna", "ben", "cleo"];

/// The longest that nodes may take to find each other; for nodes that look for nobody, long enough to see it.
const PATIENCE: Duration = Duration::from_secs(10);
const ALONE: Duration = Duration::from_secs(3);

/// Three nodes that know nothing of each other but what their cluster is called, and its secret.
pub(super) async fn start(story: &Story, mdns: bool) -> Result<Vec<Node>, Failure> {
    let (cluster, secret) = (format!("quickstart-{}", &chance::token()[..8]), chance::token());
    story.say(&format!(
        "Three nodes start on loopback. All they are told is the cluster's name, {cluster}, and a secret."
    ));
    let mut nodes = Vec::new();
    for name in NAMES {
        let builder = Node::builder().cluster(&cluster).secret(secret.as_str()).name(name).expect(3).mdns(mdns);
        let node = builder.start().await.map_err(Failure::failed)?;
        story.say(&format!("  {name} listens at {}", node.addr()));
        nodes.push(node);
    }
    Ok(nodes)
}

/// Waits until they have formed a chain, and puts them in its order.
pub(super) async fn chain(story: &Story, nodes: &mut [Node], mdns: bool) -> Result<(), Failure> {
    story.say(if mdns { "They look for each other by mDNS …" } else { "None of them looks for others …" });
    let mut waiting = JoinSet::new();
    for node in nodes.iter() {
        let node = node.clone();
        waiting.spawn(async move { node.ready().await });
    }
    let all = async {
        while let Some(ready) = waiting.join_next().await {
            ready.map_err(Failure::failed)?.map_err(Failure::failed)?;
        }
        Ok::<(), Failure>(())
    };
    let patience = if mdns { PATIENCE } else { ALONE };
    match timeout(patience, all).await {
        Ok(done) => done?,
        Err(_) => return Err(Failure::failed(nobody(nodes, patience).await)),
    }
    let order = order(nodes).await?;
    nodes.sort_by_key(|node| order.iter().position(|name| name == node.name()));
    let roles: Vec<_> = nodes.iter().map(|node| format!("{} ({})", node.name(), node.role())).collect();
    story.say(&format!("They found each other and formed a chain: {}.", roles.join(" → ")));
    Ok(())
}

/// Why there is no chain.
async fn nobody(nodes: &[Node], patience: Duration) -> String {
    let mut others = 0;
    for node in nodes {
        let me: MemberId = node.id();
        others += node.status().await.members.iter().filter(|member| member.id != me.to_string()).count();
    }
    let seconds = patience.as_secs();
    match others {
        0 => format!("no peer was found within {seconds} s"),
        _ => format!("peers were found, but there was no chain within {seconds} s"),
    }
}

/// The names of the chain's members, head first, on which all must agree.
async fn order(nodes: &[Node]) -> Result<Vec<String>, Failure> {
    let mut known: Option<(u64, Vec<String>)> = None;
    for node in nodes {
        let status = node.status().await;
        let chain = status.chains.first().ok_or_else(|| Failure::failed(format!("{} serves no chain", node.name())))?;
        let view = (chain.epoch, chain.members.clone());
        match &known {
            Some(known) if *known != view => {
                return Err(Failure::failed(format!("the nodes disagree about their chain: {known:?} and {view:?}")));
            }
            _ => known = Some(view),
        }
    }
    Ok(known.map(|(_, members)| members).unwrap_or_default())
}
