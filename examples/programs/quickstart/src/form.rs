//! Three nodes that don't know each other form a chain.

use std::{path::PathBuf, time::Duration};

use artillery_core::discovery::Source;
use artillery_ddata::{MemberId, Node, NodeBuilder};
use artillery_programs::{chance, exit::Failure, story::Story};
use tokio::{task::JoinSet, time::timeout};

const NAMES: [&str; 3] = ["anna", "ben", "cleo"];

const FORMING_TIMEOUT: Duration = Duration::from_secs(10);
/// Without mDNS nodes find no peer; this is long enough to observe that.
const FORMING_TIMEOUT_ALONE: Duration = Duration::from_secs(3);

pub(super) struct Admission {
    cluster: String,
    secret: String,
    pub(super) mdns: bool,
    data: Option<PathBuf>,
}

impl Admission {
    /// The nodes store their data below `data` if it is given.
    pub(super) fn new(mdns: bool, data: Option<PathBuf>) -> Self {
        Self { cluster: format!("quickstart-{}", &chance::token()[..8]), secret: chance::token(), mdns, data }
    }

    /// The parent of this run's data directories, if any; each run has its own.
    pub(super) fn place(&self) -> Option<PathBuf> {
        self.data.as_ref().map(|data| data.join(&self.cluster))
    }

    pub(super) fn builder(&self, name: &str) -> NodeBuilder {
        let node = Node::builder().cluster(&self.cluster).secret(self.secret.as_str()).name(name);
        let node = node.expect(3).mdns(self.mdns).listen(([127, 0, 0, 1], 0).into());
        match self.place() {
            Some(place) => node.data_dir(place.join(name)),
            None => node,
        }
    }
}

/// Starts three nodes that share only the cluster's name and secret.
pub(super) async fn start(story: &Story, admission: &Admission) -> Result<Vec<Node>, Failure> {
    let cluster = &admission.cluster;
    story.say(&format!("Three nodes start on loopback. All they know is the cluster's name, {cluster}, and a secret."));
    let mut nodes = Vec::new();
    for name in NAMES {
        let node = admission.builder(name).start().await.map_err(Failure::failed)?;
        story.say(&format!("  {name} listens at {}", node.addr()));
        nodes.push(node);
    }
    Ok(nodes)
}

/// Waits until the nodes have formed a chain, and sorts them by their position in it.
pub(super) async fn chain(story: &Story, nodes: &mut [Node], mdns: bool) -> Result<(), Failure> {
    story.say(if mdns { "They search for each other by mDNS …" } else { "None of them searches for others …" });
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
    let patience = if mdns { FORMING_TIMEOUT } else { FORMING_TIMEOUT_ALONE };
    match timeout(patience, all).await {
        Ok(done) => done?,
        Err(_) => return Err(Failure::failed(no_chain(nodes, patience).await)),
    }
    let order = order(nodes).await?;
    nodes.sort_by_key(|node| order.iter().position(|name| name == node.name()));
    let roles: Vec<_> = nodes.iter().map(|node| format!("{} ({})", node.name(), node.place())).collect();
    story.say(&format!("They found each other and formed a chain: {}.", roles.join(" → ")));
    Ok(())
}

/// How the nodes found each other: `mdns` if no node reports another source, and the pairs found by mDNS connect all of
/// them. In some pairs only one node reports a source for the other, in some neither, since they met through gossip.
pub(super) fn found_by(nodes: &[Node]) -> Option<&'static str> {
    let found = |one: &Node, other: &Node| one.cluster().found_by(other.id().node);
    let mut tied = vec![0];
    while let Some(next) = (0..nodes.len()).find(|n| {
        let by_mdns =
            |&m: &usize| [found(&nodes[m], &nodes[*n]), found(&nodes[*n], &nodes[m])].contains(&Some(Source::Mdns));
        !tied.contains(n) && tied.iter().any(by_mdns)
    }) {
        tied.push(next);
    }
    let others = |one: &Node| nodes.iter().filter_map(|other| found(one, other)).any(|source| source != Source::Mdns);
    (tied.len() == nodes.len() && !nodes.iter().any(others)).then_some("mdns")
}

async fn no_chain(nodes: &[Node], patience: Duration) -> String {
    let mut others = 0;
    for node in nodes {
        let me: MemberId = node.id();
        others += node.status().await.members.iter().filter(|member| member.id != me).count();
    }
    let seconds = patience.as_secs();
    match others {
        0 => format!("no peer was found within {seconds} s"),
        _ => format!("peers were found, but no chain formed within {seconds} s"),
    }
}

/// The names of the chain's members, head first; all nodes must agree on them.
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
