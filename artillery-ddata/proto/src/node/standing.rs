//! A node's report of its data and its knowledge, for an operator after a disaster.

use super::{NodeState, Successor};
use crate::{
    ChainConfig, ClusterId, Epoch, MemberId, Role, Timestamp,
    api::Refusal,
    control::{
        Configs, NodeInfo,
        recovery::{ChainStanding, Standing},
    },
    replica::Status,
};

impl NodeState {
    /// The refusal for callers, if the node serves nothing because its history has diverged from a newer one, or
    /// another cluster succeeds its own.
    pub fn gives_way(&self) -> Option<Refusal> {
        let parted = self.parted.map(|by| Refusal::Parted { by });
        let succeeded = self.successor.filter(|successor| successor.yields);
        parted.or(succeeded.map(|Successor { by, .. }| Refusal::Succeeded { by }))
    }

    /// The standing of a node with these configurations. `chains` gives the status of a chain here. The caller adds the
    /// log's part: whether the node leads, the end of its copy of the log, and the voters. At a node with a directory
    /// it also sets [`ChainStanding::synced`], and the copies of chains that have not been loaded yet.
    pub fn standing<'a>(
        &self,
        now: Timestamp,
        (me, cluster): (NodeInfo, ClusterId),
        configs: &Configs,
        chains: impl Fn(&ChainConfig) -> Option<&'a Status>,
    ) -> Standing {
        let since = |at: Timestamp| (at != Timestamp::ZERO).then(|| now - at);
        let lease = configs.timing().lease;
        let chain = |config: &ChainConfig| ChainStanding::new(me.id, config, chains(config));
        Standing {
            cluster,
            history: configs.history(),
            applied: configs.applied(),
            leads: false,
            log: None,
            voters: Vec::new(),
            in_touch: (self.lease != Timestamp::ZERO).then(|| (now + lease) - self.lease),
            heard: since(self.heard),
            served: self.served,
            successor: self.successor.map(|Successor { by, .. }| by),
            yields: self.gives_way().is_some(),
            branches: configs.branches().to_vec(),
            member_heard: since(self.member_heard),
            chains: configs.iter().map(chain).collect(),
            me,
        }
    }
}

impl ChainStanding {
    /// The standing of a chain at this node. `status` is its replica's, if the node has one. Sets `synced`, as for a
    /// node without a disk.
    pub fn new(me: MemberId, config: &ChainConfig, status: Option<&Status>) -> Self {
        Self {
            config: config.clone(),
            serves: status.and_then(|status| status.serves(me)),
            whole: status.is_some_and(Status::is_whole),
            synced: true,
            last: status.map(|status| status.last).unwrap_or_default(),
            watermark: status.map(|status| status.watermark).unwrap_or_default(),
        }
    }
}

impl Status {
    /// Whether this replica's copy is complete. It may be empty, or old.
    pub fn is_whole(&self) -> bool {
        self.halted.is_none() && self.resync.receiving.is_none()
    }

    /// The epoch in which this replica of node `me` serves with a complete copy.
    pub fn serves(&self, me: MemberId) -> Option<Epoch> {
        let entered = self.config.as_ref().filter(|entered| self.is_whole() && entered.role(me) == Some(Role::Serving));
        entered.map(|entered| entered.epoch)
    }
}
