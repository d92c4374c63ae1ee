//! The chains of a cluster and the addresses of its nodes, for clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::control::places::NodeAddress;
use crate::{
    ChainConfig, ChainId, ClusterId, NodeId,
    control::{Configs, History, NodeInfo, Relation, Timing, log::LogIndex},
};

/// The chains and nodes of a cluster, as one node knows them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Routing {
    /// The id that the cluster got when it was formed.
    pub cluster: ClusterId,
    /// Its history: the first one, unless the cluster was recovered after a loss.
    pub history: History,
    /// The entry of the configuration log by which an operator accepted the last loss of a chain in this history; 0:
    /// none.
    pub last_loss: LogIndex,
    /// The configuration of each chain, by chain id.
    pub chains: Vec<ChainConfig>,
    /// The known nodes and their addresses.
    pub nodes: BTreeMap<NodeId, NodeAddress>,
    /// How far the clocks of two nodes may differ in rate, in parts per million: a key may expire by that part of its
    /// time to live too early.
    pub drift_ppm: u32,
}

impl Routing {
    /// The routing according to the state of the configuration log.
    pub fn of(cluster: ClusterId, configs: &Configs) -> Self {
        let address = |founder: &NodeInfo| NodeAddress {
            name: founder.name.clone(),
            addrs: founder.addrs.clone(),
            host: founder.host.clone(),
        };
        let nodes = configs.nodes().map(|founder| (founder.id.node, address(founder)));
        let (history, last_loss, drift_ppm) = (configs.history(), configs.last_loss(), configs.timing().drift_ppm);
        let (chains, nodes) = (configs.iter().cloned().collect(), nodes.collect());
        Self { cluster, history, last_loss, chains, nodes, drift_ppm }
    }

    /// A routing of these chains, ordered by chain id, and nodes, with the default [`drift_ppm`](Self::drift_ppm).
    pub fn new(
        cluster: ClusterId,
        history: History,
        chains: Vec<ChainConfig>,
        nodes: BTreeMap<NodeId, NodeAddress>,
    ) -> Self {
        let drift_ppm = Timing::default().drift_ppm;
        Self { cluster, history, last_loss: LogIndex::default(), chains, nodes, drift_ppm }
    }

    /// The id of the history to which sessions and watches belong. Their positions are meaningless in another history.
    pub fn history_id(&self) -> ClusterId {
        self.history.sessions_id(self.last_loss)
    }

    /// The configuration of a chain; `None`: there is no such chain.
    pub fn chain(&self, chain: ChainId) -> Option<&ChainConfig> {
        self.chains.get(chain.0 as usize)
    }

    /// Both routings combined: the newer configuration of each chain. If the clusters differ, the result is `self`. If
    /// the histories differ, it is the routing with the newer history, or `self` if neither is newer. If `new` has an
    /// older configuration of some chain, the addresses in `self` are kept and take precedence.
    #[must_use]
    pub fn merged(&self, new: Self) -> Self {
        if self.cluster != new.cluster {
            // The endpoint rejects another formation, so its routing is ignored here.
            return self.clone();
        }
        match new.history.relation(self.history) {
            Relation::Same => {}
            Relation::Newer => return new,
            // Of two histories recovered from the same one, keep the one that was seen first.
            Relation::Older | Relation::Parted => return self.clone(),
        }
        let older = |new: &ChainConfig| self.chain(new.chain).is_some_and(|old| old.epoch > new.epoch);
        let mut nodes = new.nodes;
        if new.chains.iter().any(older) {
            nodes.extend(self.nodes.clone());
        }
        let newer = |new: ChainConfig| match self.chain(new.chain) {
            Some(old) if old.epoch > new.epoch => old.clone(),
            _ => new,
        };
        Self {
            cluster: new.cluster,
            history: new.history,
            last_loss: new.last_loss.max(self.last_loss),
            chains: new.chains.into_iter().map(newer).collect(),
            nodes,
            drift_ppm: new.drift_ppm,
        }
    }
}
