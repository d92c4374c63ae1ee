//! The configurations that result from the entries of the log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ChainChange, ConfigChange, LogEntry, LogIndex};
use crate::{
    ChainConfig, ChainId, ChainMember, ClusterId, Epoch, MemberId, NodeId, Role,
    control::{Bootstrap, History, MAX_LINEAGE, NodeInfo, Timing, first_configs, history::Branch},
};

/// The distance from the old group's epochs and indices to those of a recovered history: more than that group will ever
/// use.
const RECOVERY_INDEX_GAP: u64 = 1 << 20;

/// The current configuration of each chain and the nodes of the cluster, after the log entries up to some index.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Configs {
    history: History,
    applied: LogIndex,
    chains: BTreeMap<ChainId, ChainConfig>,
    nodes: BTreeMap<NodeId, NodeInfo>,
    since: BTreeMap<MemberId, LogIndex>,
    timing: Timing,
    losses: BTreeMap<ChainId, AcceptedLoss>,
    branches: Vec<Branch>,
}

/// The last loss of a chain that an operator has accepted in this history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AcceptedLoss {
    /// The log entry of the acceptance.
    pub at: LogIndex,
    /// The epoch that the entry began. Data of earlier epochs may be lost.
    pub epoch: Epoch,
}

impl Configs {
    /// The state after the formation: its founders, and the first configuration of each chain, at index 1.
    pub fn of(founding: &Bootstrap) -> Self {
        let nodes = founding.members.iter().map(|founder| (founder.id.node, founder.clone()));
        let history = History::first(founding.cluster);
        let (nodes, timing) = (nodes.collect(), founding.timing);
        let mut configs = Self { history, applied: LogIndex(1), nodes, timing, ..Self::default() };
        for config in first_configs(founding) {
            configs.take(&ChainChange { replaces: Epoch(0), config });
        }
        configs
    }

    /// The state in which `by` continues alone under a new history. It serves every chain, in an epoch and from a log
    /// index beyond any that the old group may still decide (docs/DESIGN.md §5.12). `seen` is the highest epoch of any
    /// chain, and `upto` the last entry, that any queried node knows.
    ///
    /// All nodes stay listed, so that they learn of the recovery. `by` is listed in its current incarnation, which the
    /// log may not have admitted.
    pub fn recovered(&self, history: History, by: NodeInfo, seen: Epoch, upto: LogIndex) -> Self {
        let id = by.id;
        let applied = LogIndex(upto.0.max(self.applied.0) + RECOVERY_INDEX_GAP);
        let newest = self.chains.values().map(|config| config.epoch).max().max(Some(seen)).unwrap_or_default();
        let alone = |config: &ChainConfig| ChainConfig {
            epoch: Epoch(newest.0 + RECOVERY_INDEX_GAP),
            index: applied.0,
            members: vec![ChainMember { id, role: Role::Serving }],
            // A seal of the lost group doesn't apply to this one.
            ..config.unsealed()
        };
        Self {
            history,
            applied,
            chains: self.chains.iter().map(|(&chain, config)| (chain, alone(config))).collect(),
            nodes: self.nodes.iter().map(|(&node, info)| (node, info.clone())).chain([(id.node, by)]).collect(),
            since: BTreeMap::from([(id, applied)]),
            timing: self.timing,
            losses: BTreeMap::new(),
            branches: self.branches.clone(),
        }
    }

    /// Adds the point at which this history branched off the previous one. Only the newest branches are kept.
    #[must_use]
    pub fn branched(mut self, branch: Branch) -> Self {
        self.branches.push(branch);
        self.branches.drain(..self.branches.len().saturating_sub(MAX_LINEAGE));
        self
    }

    /// The points at which this history, and its ancestors, branched off, the oldest first.
    pub fn branches(&self) -> &[Branch] {
        &self.branches
    }

    pub fn history(&self) -> History {
        self.history
    }

    pub fn loss(&self, chain: ChainId) -> Option<AcceptedLoss> {
        self.losses.get(&chain).copied()
    }

    /// The entry of the last accepted loss of any chain in this history; 0: none.
    pub fn last_loss(&self) -> LogIndex {
        self.losses.values().map(|loss| loss.at).max().unwrap_or_default()
    }

    /// Whether the cluster has given way to another one: its configuration never changes again (docs/DESIGN.md §5.14).
    pub fn is_over(&self) -> bool {
        self.chains.values().any(ChainConfig::is_over)
    }

    /// Whether the cluster was recovered, or a loss was accepted: then it has held data.
    pub fn has_lost(&self) -> bool {
        self.history.generation > 0 || !self.losses.is_empty()
    }

    /// The id that sessions and watches belong to. Each recovery and each accepted loss changes it, since earlier
    /// positions may refer to lost updates.
    pub fn sessions_id(&self) -> ClusterId {
        self.history.sessions_id(self.last_loss())
    }

    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// The last applied entry.
    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    pub fn get(&self, chain: ChainId) -> Option<&ChainConfig> {
        self.chains.get(&chain)
    }

    /// All current configurations, by chain.
    pub fn iter(&self) -> impl Iterator<Item = &ChainConfig> {
        self.chains.values()
    }

    /// The nodes of the cluster, each in its last known incarnation.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values()
    }

    /// The node, if exactly this incarnation of it is known.
    pub fn node(&self, id: MemberId) -> Option<&NodeInfo> {
        self.nodes.get(&id.node).filter(|founder| founder.id == id)
    }

    pub fn names(&self, id: MemberId) -> bool {
        self.chains.values().any(|config| config.role(id).is_some())
    }

    pub fn names_store(&self, id: MemberId) -> bool {
        self.chains.values().flat_map(|config| &config.members).any(|member| member.id.shares_store(id))
    }

    /// The newest entry that made this incarnation a serving member of a chain, or removed it from one; `None`: it
    /// serves in no chain.
    ///
    /// A lease covers all chains of a node. A node that has not applied that entry may still act in its former role in
    /// some chain, so it gets no lease (traps 28, 65).
    pub fn serves_since(&self, id: MemberId) -> Option<LogIndex> {
        self.since.get(&id).copied()
    }

    /// Applies the next entry and returns the resulting configurations. The change of a chain has no effect if it
    /// replaces another epoch than the current one, if the chain is over, or if no member would serve. Entries that
    /// were applied before are ignored.
    ///
    /// The new epoch and index are set here, not by the proposal: so no epoch is ever assigned twice.
    ///
    /// # Errors
    /// [`OutOfOrder`]: an earlier entry is missing. Nothing was changed.
    pub fn apply(&mut self, entry: &LogEntry) -> Result<Vec<ChainConfig>, OutOfOrder> {
        if entry.index <= self.applied {
            return Ok(Vec::new());
        }
        if entry.index != self.applied.next() {
            return Err(OutOfOrder { expected: self.applied.next(), found: entry.index });
        }
        self.applied = entry.index;
        match &entry.change {
            ConfigChange::Chains(changes) => Ok(changes.iter().filter_map(|change| self.take(change)).collect()),
            ConfigChange::Nodes { add, remove } => {
                self.meet(add, remove);
                Ok(Vec::new())
            }
            ConfigChange::AcceptLoss(change) => {
                let made = self.take(change);
                let losses =
                    made.iter().map(|config| (config.chain, AcceptedLoss { at: entry.index, epoch: config.epoch }));
                self.losses.extend(losses);
                Ok(made.into_iter().collect())
            }
        }
    }

    fn take(&mut self, change: &ChainChange) -> Option<ChainConfig> {
        let chain = change.config.chain;
        let present = self.chains.get(&chain).map_or(Epoch(0), |config| config.epoch);
        let is_over = self.chains.get(&chain).is_some_and(ChainConfig::is_over);
        if change.replaces != present || is_over || change.config.serving().next().is_none() {
            return None;
        }
        let config = ChainConfig { epoch: Epoch(present.0 + 1), index: self.applied.0, ..change.config.clone() };
        let before = self.chains.insert(chain, config.clone());
        let served = |id| before.as_ref().is_some_and(|before| before.serving().any(|member| member == id));
        let serves = |id| config.serving().any(|member| member == id);
        let came = config.serving().filter(|&id| !served(id));
        let went = before.iter().flat_map(|before| before.serving()).filter(|&id| !serves(id));
        self.since.extend(came.chain(went).map(|id| (id, self.applied)));
        let chains = &self.chains;
        self.since.retain(|&id, _| chains.values().any(|config| config.serving().any(|member| member == id)));
        Some(config)
    }

    fn meet(&mut self, add: &[NodeInfo], remove: &[MemberId]) {
        for &id in remove {
            if self.node(id).is_some() && !self.names(id) {
                self.nodes.remove(&id.node);
            }
        }
        for founder in add {
            self.nodes.insert(founder.id.node, founder.clone());
        }
    }
}

/// An entry arrived before its predecessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("entry {found} of the configuration log arrived, but {expected} is the next")]
pub struct OutOfOrder {
    pub expected: LogIndex,
    pub found: LogIndex,
}
