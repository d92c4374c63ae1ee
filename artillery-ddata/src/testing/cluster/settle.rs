//! Whether a cluster has recovered from all faults.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{Cluster, ClusterState, TestMachine};
use crate::{ChainConfig, MemberId, Node, Role, replica::Status};

/// How long a cluster may take to recover, in virtual time.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(20);

impl Cluster {
    /// Waits, in virtual time, until all running nodes serve, each chain has as many serving members as possible, and no
    /// chain names a node that doesn't run. End cuts, isolations and pauses first.
    ///
    /// # Panics
    /// If that takes longer than two minutes: for example, the running nodes have no majority, or the disk of a node that
    /// joins is full.
    pub async fn settle(&self) {
        if let Err(why) = self.inner.until_settled(false).await {
            panic!("seed {}: {why}", self.seed());
        }
    }
}

impl ClusterState {
    pub(super) fn running(&self) -> impl Iterator<Item = (Arc<TestMachine>, Node)> {
        let running = |machine: Arc<TestMachine>| machine.node().map(|node| (machine, node));
        self.machines().into_iter().filter_map(running)
    }

    /// Whether the cluster can recover. It can't if nodes are down, and no majority of the voters of the configuration log
    /// runs, or no member of a chain.
    pub(super) fn can_recover(&self) -> bool {
        let is_down = |machine: &Arc<TestMachine>| !machine.has_left() && machine.node().is_none();
        !self.machines().iter().any(is_down) || !self.is_without_quorum() && !self.lacks_a_chain()
    }

    /// Whether no member of some chain runs.
    fn lacks_a_chain(&self) -> bool {
        let running: Vec<_> = self.running().map(|(machine, _)| machine.id()).collect();
        let is_lost =
            |config: &ChainConfig| !config.serving().any(|id| running.iter().any(|here| here.shares_store(id)));
        self.routing().is_none_or(|routing| routing.chains.iter().any(is_lost))
    }

    /// Whether no majority of the voters of the configuration log runs: then no configuration changes.
    fn is_without_quorum(&self) -> bool {
        let running: Vec<_> = self.running().collect();
        let runs = |voter: &MemberId| running.iter().any(|(machine, _)| machine.id().shares_store(*voter));
        let mut known = running.iter().map(|(_, node)| node.voters());
        !known.any(|voters| voters.iter().filter(|&voter| runs(voter)).count() * 2 > voters.len())
    }

    /// Waits until the cluster has recovered, and the members of each chain agree if `agreed`.
    pub(super) async fn until_settled(&self, agreed: bool) -> Result<(), String> {
        let mut waited = Duration::ZERO;
        loop {
            let Err(why) = self.is_settled(agreed).await else { return Ok(()) };
            if waited >= TIMEOUT {
                return Err(format!("after {waited:?} {why}"));
            }
            sleep(STEP).await;
            waited += STEP;
        }
    }

    pub(super) async fn is_settled(&self, agreed: bool) -> Result<(), String> {
        let running: BTreeMap<MemberId, Node> = self.running().map(|(machine, node)| (machine.id(), node)).collect();
        for node in running.values() {
            if let Some(ended) = node.has_ended().then(|| node.name()) {
                return Err(format!("{ended} has stopped by itself"));
            }
            if !node.may_serve() {
                return Err(format!("{} doesn't serve: {:?}", node.name(), node.waiting_for().await));
            }
        }
        let Some(routing) = self.routing() else { return Err("no cluster is formed".to_owned()) };
        let wanted = (self.setup.config.chains.replicas as usize).min(running.len());
        for config in &routing.chains {
            let chain = config.chain.0;
            if let Some(gone) = config.members.iter().find(|member| !running.contains_key(&member.id)) {
                return Err(format!("chain {chain} has the member {}, which doesn't run", gone.id));
            }
            if config.serving().count() < wanted || config.members.iter().any(|member| member.role != Role::Serving) {
                return Err(format!("chain {chain} has too few serving members: {:?}", config.members));
            }
            if agreed && !agree(config, &running).await {
                return Err(format!("the members of chain {chain} don't agree"));
            }
        }
        Ok(())
    }
}

async fn agree(config: &ChainConfig, running: &BTreeMap<MemberId, Node>) -> bool {
    let mut states: Vec<Status> = Vec::new();
    for member in config.serving() {
        let of_chain = |status: &Status| {
            status.config.as_ref().is_some_and(|known| known.chain == config.chain && known.epoch == config.epoch)
        };
        let Some(node) = running.get(&member) else { return false };
        let Some(state) = node.chain_states().await.into_iter().find(of_chain) else { return false };
        states.push(state);
    }
    let last = states.first().map(|state| state.last);
    states.iter().all(|state| {
        state.open && Some(state.last) == last && state.watermark == state.last.sequence && state.in_flight == 0
    })
}
