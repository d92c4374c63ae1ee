//! The latest report of each node about itself, gathered without waiting for slow ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use crate::{Node, NodeId, Routing, metrics::NodeMetrics, status::NodeStatus};

/// The highest number of queries in flight, each to another node. With more nodes, those queried least recently are
/// next.
const MAX_QUERIES: usize = 32;
/// A node that answers later is reported without figures.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// In bytes. That of thousands of chains is smaller.
const MAX_STATUS: usize = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Reports {
    own: Option<OwnReport>,
    others: BTreeMap<NodeId, PeerReport>,
    tasks: JoinSet<Told>,
    /// `None`: this node.
    in_flight: BTreeSet<Option<NodeId>>,
    round: u64,
}

/// This node's report about itself.
#[derive(Debug)]
pub(super) struct OwnReport {
    pub(super) metrics: NodeMetrics,
    pub(super) waiting_for: Vec<String>,
    pub(super) at: Instant,
    pub(super) round: u64,
}

/// Another node's status, or why it is missing.
#[derive(Debug)]
pub(super) struct PeerReport {
    pub(super) status: Result<Box<NodeStatus>, String>,
    /// The round in which the node was queried.
    pub(super) round: u64,
}

#[derive(Debug)]
enum Told {
    Own(Box<OwnReport>),
    Other(NodeId, PeerReport),
}

impl Reports {
    /// Begins a round: queries each node that has answered since the last one. `others`: the nodes to query besides
    /// this one. If there are none, all former reports of others are old.
    pub(super) fn begin(&mut self, node: &Node, mut others: Vec<NodeId>) {
        self.round += 1;
        if others.is_empty() {
            self.others.clear();
        }
        let round = self.round;
        if self.in_flight.insert(None) {
            let node = node.clone();
            self.tasks.spawn(async move {
                let mut metrics = node.metrics().await;
                metrics.status.chains.sort_by_key(|chain| chain.chain);
                let waiting_for = match metrics.status.ready {
                    true => Vec::new(),
                    false => node.waiting_for().await.iter().map(ToString::to_string).collect(),
                };
                Told::Own(Box::new(OwnReport { metrics, waiting_for, at: Instant::now(), round }))
            });
        }
        others.retain(|&id| !self.in_flight.contains(&Some(id)));
        others.sort_by_key(|id| self.others.get(id).map_or(0, |report| report.round));
        let free = (MAX_QUERIES + 1).saturating_sub(self.in_flight.len());
        for id in others.into_iter().take(free) {
            self.in_flight.insert(Some(id));
            let node = node.clone();
            self.tasks.spawn(async move { Told::Other(id, PeerReport { status: query(&node, id).await, round }) });
        }
    }

    /// Forgets the nodes that are in no configuration any longer.
    pub(super) fn retain(&mut self, routing: &Routing) {
        self.others.retain(|id, _| routing.nodes.contains_key(id));
    }

    /// Receives one report. `None`: none is awaited. Cancelling the call loses none.
    pub(super) async fn receive(&mut self) -> Option<()> {
        match self.tasks.join_next().await? {
            Ok(Told::Own(report)) => {
                self.in_flight.remove(&None);
                self.own = Some(*report);
            }
            Ok(Told::Other(id, report)) => {
                self.in_flight.remove(&Some(id));
                self.others.insert(id, report);
            }
            // A query panicked, and its node is unknown. The others in flight may be queried twice.
            Err(_) => self.in_flight.clear(),
        }
        Some(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn own(&self) -> Option<&OwnReport> {
        self.own.as_ref()
    }

    pub(super) fn other(&self, node: NodeId) -> Option<&PeerReport> {
        self.others.get(&node)
    }
}

/// A node's status, with its chains sorted.
async fn query(node: &Node, id: NodeId) -> Result<Box<NodeStatus>, String> {
    let json = node.kv().router.node_status_json(id, QUERY_TIMEOUT).await.map_err(|error| error.to_string())?;
    if json.len() > MAX_STATUS {
        return Err(format!("its report has {} bytes", json.len()));
    }
    let mut status: NodeStatus = serde_json::from_str(&json).map_err(|error| format!("unreadable: {error}"))?;
    status.chains.sort_by_key(|chain| chain.chain);
    Ok(Box::new(status))
}
