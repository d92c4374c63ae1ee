//! One moment of a node and its cluster, as the page shows it. `docs/json.md` describes the fields.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use artillery_core::Member;
use serde::Serialize;

use super::{
    reports::{OwnReport, PeerReport, Reports},
    sample::Sample,
    unix_ms,
};
use crate::{
    ChainConfig, MemberId, Node, NodeId, Place, Routing,
    status::{ChainMode, ChainStatus, GossipState, LoadingStatus},
};

/// The highest number of characters of a text of another node.
const MAX_TEXT: usize = 300;

#[derive(Debug, Serialize)]
pub(super) struct PageSnapshot {
    at_ms: u64,
    version: &'static str,
    /// `None`: the node hasn't started.
    node: Option<ThisNode>,
    /// Progress of loading the directory.
    loading: Option<LoadingStatus>,
    chains: Vec<ChainPicture>,
    nodes: Vec<PageNode>,
    sample: Sample,
}

#[derive(Debug, Serialize)]
struct ThisNode {
    node: String,
    id: String,
    addr: SocketAddr,
    cluster: Option<String>,
    cluster_id: Option<String>,
    role: String,
    ready: bool,
    waiting_for: Vec<String>,
    /// Why not every other node may be stopped.
    unsettled: Option<String>,
    leader: Option<String>,
    memory_bytes: u64,
    max_memory_bytes: Option<u64>,
    /// Milliseconds since the figures of this node were read. `None`: they never were.
    age_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ChainPicture {
    chain: u32,
    epoch: u64,
    mode: ChainMode,
    /// The lowest number of serving members with which the chain accepts writes.
    fewest: u32,
    members: Vec<ChainSeat>,
}

#[derive(Debug, Serialize)]
struct ChainSeat {
    node: String,
    role: String,
    state: GossipState,
    is_this: bool,
    /// Why the fields below are missing.
    error: Option<String>,
    #[serde(flatten)]
    figures: Option<SeatFigures>,
}

/// The report of a member.
#[derive(Debug, Serialize)]
struct SeatFigures {
    last: u64,
    watermark: u64,
    /// Updates that the head has and this member has not.
    lag: Option<u64>,
    dirty_updates: u64,
    lease_ms: Option<u64>,
    open: bool,
    keys: u64,
    received_records: Option<u64>,
    halted: Option<String>,
    full: Option<String>,
}

#[derive(Debug, Serialize)]
struct PageNode {
    node: String,
    addr: String,
    state: GossipState,
    is_this: bool,
    /// Its role in the first chain that names it.
    role: String,
}

impl PageSnapshot {
    pub(super) fn new(node: Option<&Node>, loading: Option<LoadingStatus>, reports: &Reports, sample: Sample) -> Self {
        let view =
            node.map(|node| NodeView { node, members: node.cluster().members(), routing: node.routing(), reports });
        Self {
            at_ms: unix_ms(),
            version: env!("CARGO_PKG_VERSION"),
            loading: match &view {
                Some(view) => view.own().and_then(|own| own.metrics.status.loading.clone()),
                None => loading,
            },
            node: view.as_ref().map(NodeView::this_node),
            chains: view.as_ref().map(NodeView::chains).unwrap_or_default(),
            nodes: view.as_ref().map(NodeView::nodes).unwrap_or_default(),
            sample,
        }
    }
}

/// A node, and its knowledge of others.
struct NodeView<'a> {
    node: &'a Node,
    members: Vec<Member>,
    routing: Option<Arc<Routing>>,
    reports: &'a Reports,
}

impl NodeView<'_> {
    fn own(&self) -> Option<&OwnReport> {
        self.reports.own()
    }

    fn this_node(&self) -> ThisNode {
        let status = self.own().map(|own| &own.metrics.status);
        let log = status.and_then(|status| status.log.as_ref());
        let age = self.own().map(|own| own.at.elapsed().as_millis() as u64);
        ThisNode {
            node: self.node.name().to_owned(),
            id: self.node.id().to_string(),
            addr: self.node.addr(),
            cluster: status.map(|status| status.cluster.clone()),
            cluster_id: self.routing.as_ref().map(|routing| routing.cluster.to_string()),
            role: self.node.place().to_string(),
            ready: self.node.may_serve(),
            waiting_for: self.own().map(|own| own.waiting_for.clone()).unwrap_or_default(),
            unsettled: log.and_then(|log| log.unready.clone()),
            leader: log.and_then(|log| log.leader.clone()),
            memory_bytes: status.map_or(0, |status| status.memory_bytes),
            max_memory_bytes: status.and_then(|status| status.max_memory_bytes),
            age_ms: age,
        }
    }

    fn chains(&self) -> Vec<ChainPicture> {
        let chains = self.routing.iter().flat_map(|routing| &routing.chains);
        chains.map(|config| self.chain(config)).collect()
    }

    fn chain(&self, config: &ChainConfig) -> ChainPicture {
        let head = config.head().and_then(|head| self.figures(head, config).ok());
        let head = head.map(|(status, round)| (status.last.sequence.0, round));
        let seat = |id: MemberId| {
            let figures = self.figures(id, config);
            ChainSeat {
                node: self.name(id.node),
                role: config.place(id).to_string(),
                state: self.state(id),
                is_this: self.is_this(id.node),
                error: figures.as_ref().err().map(|why| bounded(why)),
                figures: figures.ok().map(|(status, round)| SeatFigures::new(status, lag(head, status, round))),
            }
        };
        ChainPicture {
            chain: config.chain.0,
            epoch: config.epoch.0,
            mode: config.mode.into(),
            fewest: config.fewest(),
            members: config.members.iter().map(|member| seat(member.id)).collect(),
        }
    }

    /// A member's own report about a chain, and the round in which it was queried.
    fn figures(&self, id: MemberId, config: &ChainConfig) -> Result<(&ChainStatus, u64), &str> {
        if matches!(self.state(id), GossipState::Down | GossipState::Left) {
            return Err("no answer");
        }
        let (status, round) = match (self.is_this(id.node), self.own(), self.reports.other(id.node)) {
            (true, Some(own), _) => (&own.metrics.status, own.round),
            (false, _, Some(PeerReport { status: Ok(status), round })) => (&**status, *round),
            (false, _, Some(PeerReport { status: Err(why), .. })) => return Err(why),
            _ => return Err("no report yet"),
        };
        // Reports are sorted. There may be thousands of chains.
        let found = status.chains.binary_search_by_key(&config.chain.0, |chain| chain.chain);
        Ok((found.map(|at| &status.chains[at]).map_err(|_| "no report about this chain yet")?, round))
    }

    /// All known nodes: the nodes of the configurations, and others known by gossip.
    fn nodes(&self) -> Vec<PageNode> {
        let configured = self.routing.iter().flat_map(|routing| routing.nodes.keys().copied());
        let met = self.members.iter().map(|member| member.id.node);
        let all: BTreeSet<NodeId> = configured.chain(met).chain([self.node.id().node]).collect();
        all.into_iter().map(|id| self.known(id)).collect()
    }

    fn known(&self, id: NodeId) -> PageNode {
        let member = self.members.iter().find(|member| member.id.node == id);
        let address = self.routing.as_ref().and_then(|routing| routing.nodes.get(&id));
        let addr = match (self.is_this(id), member) {
            (true, _) => Some(self.node.addr()),
            (false, Some(member)) => Some(member.addr),
            (false, None) => address.and_then(|address| address.addrs.first().copied()),
        };
        let places = self.routing.iter().flat_map(|routing| &routing.chains).filter_map(|config| {
            let seat = config.members.iter().find(|seat| seat.id.node == id)?;
            Some(config.place(seat.id))
        });
        PageNode {
            node: self.name(id),
            addr: addr.map(|addr| addr.to_string()).unwrap_or_default(),
            state: if self.is_this(id) { GossipState::Alive } else { member.map_or_else(unknown, state_of) },
            is_this: self.is_this(id),
            role: places.into_iter().next().unwrap_or(Place::Spare).to_string(),
        }
    }

    fn is_this(&self, node: NodeId) -> bool {
        node == self.node.id().node
    }

    fn name(&self, id: NodeId) -> String {
        let address = self.routing.as_ref().and_then(|routing| routing.nodes.get(&id));
        let member = || self.members.iter().find(|member| member.id.node == id).map(|member| member.name.clone());
        match address {
            _ if self.is_this(id) => self.node.name().to_owned(),
            Some(address) => address.name.clone(),
            None => member().unwrap_or_else(|| id.to_string()),
        }
    }

    /// The state of a configured member. A later incarnation of its node may have replaced it.
    fn state(&self, id: MemberId) -> GossipState {
        if self.is_this(id.node) {
            return GossipState::Alive;
        }
        self.members.iter().find(|member| member.id.node == id.node).map_or_else(unknown, |member| {
            if member.id.shares_store(id) { state_of(member) } else { GossipState::Down }
        })
    }
}

/// The beginning of another node's text.
fn bounded(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

fn state_of(member: &Member) -> GossipState {
    member.state.into()
}

fn unknown() -> GossipState {
    GossipState::Other("unknown".to_owned())
}

/// The head's newest sequence minus this member's. Reports of other rounds aren't compared: the chain has grown between
/// them.
fn lag(head: Option<(u64, u64)>, status: &ChainStatus, round: u64) -> Option<u64> {
    let (last, of_round) = head?;
    (of_round == round).then(|| last.saturating_sub(status.last.sequence.0))
}

impl SeatFigures {
    fn new(status: &ChainStatus, lag: Option<u64>) -> Self {
        Self {
            last: status.last.sequence.0,
            watermark: status.watermark,
            lag,
            dirty_updates: status.dirty_updates,
            lease_ms: status.lease_ms,
            open: status.open,
            keys: status.keys,
            received_records: status.receiving_records,
            halted: status.halted.as_deref().map(bounded),
            full: status.full.as_ref().map(|full| bounded(&full.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_bounded() {
        assert_eq!(bounded("no answer"), "no answer");
        assert_eq!(bounded(&"ü".repeat(MAX_TEXT + 1)), "ü".repeat(MAX_TEXT));
    }
}
