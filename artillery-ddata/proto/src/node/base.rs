//! The data that all parts of a node use: its identity, its disk, its lease client, the nodes of its cluster, and the
//! outputs for its driver.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use super::{NodeEvent, NodeOutput, NodeState, Unready, disk::Disk};
use crate::{
    ChainConfig, ChainId, MemberId, NodeId, Role, Timestamp,
    control::{Configs, NodeInfo, StorePosition, lease_client::LeaseClient, message::StoreHolding},
    guards::Guards,
    replica::ChainProgress,
    runner::ChainOrder,
};

#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(super) struct Base {
    me: MemberId,
    guards: Guards,
    /// `None`: this node has no disk.
    disk: Option<Disk>,
    holder: LeaseClient,
    /// The nodes that the membership has found, with their addresses.
    met: BTreeMap<MemberId, Vec<SocketAddr>>,
    voters: BTreeSet<MemberId>,
    /// This node leads the log's group.
    leads: bool,
    /// The parts write and read it; the driver reads it, for status and metrics.
    state: NodeState,
    outputs: VecDeque<NodeOutput>,
}

impl Base {
    pub(super) fn new(me: NodeInfo, configs: Arc<Configs>, guards: Guards, disk: Option<Disk>) -> Self {
        Self {
            me: me.id,
            guards,
            disk,
            holder: LeaseClient::new(me, configs),
            met: BTreeMap::new(),
            voters: BTreeSet::new(),
            leads: false,
            state: NodeState { unready: Some(Unready::default()), ..NodeState::default() },
            outputs: VecDeque::new(),
        }
    }

    pub(super) fn me(&self) -> MemberId {
        self.me
    }

    pub(super) fn guards(&self) -> Guards {
        self.guards
    }

    #[cfg(test)]
    pub(super) fn guards_mut(&mut self) -> &mut Guards {
        &mut self.guards
    }

    pub(super) fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    pub(super) fn disk_mut(&mut self) -> Option<&mut Disk> {
        self.disk.as_mut()
    }

    pub(super) fn holder(&self) -> &LeaseClient {
        &self.holder
    }

    pub(super) fn holder_mut(&mut self) -> &mut LeaseClient {
        &mut self.holder
    }

    /// The newest known configurations.
    pub(super) fn configs(&self) -> &Arc<Configs> {
        self.holder.configs()
    }

    /// The length of a lease.
    pub(super) fn lease(&self) -> Duration {
        self.configs().timing().lease
    }

    /// Whether the directory is still being loaded.
    pub(super) fn loads(&self) -> bool {
        self.disk().is_some_and(Disk::loads)
    }

    pub(super) fn position(&self) -> Option<Box<StorePosition>> {
        self.disk()?.position().map(Box::new)
    }

    /// Whether the sender's store isn't known to have lost anything: always true if this node or the sender has no
    /// disk. From time to time the known positions are written to the disk.
    pub(super) fn is_true_store(&mut self, now: Timestamp, from: MemberId, position: Option<&StorePosition>) -> bool {
        let (Some(disk), Some(&position)) = (&mut self.disk, position) else { return true };
        let heard = disk.heard_mut().hear(from, position);
        if heard.is_err() && !allows!(self.guards, TakeCopies) {
            return false;
        }
        if let Some(heard) = disk.note(now, heard == Ok(true)) {
            self.push(NodeOutput::KeepHeard(heard));
        }
        true
    }

    /// This node's copies of chains that it doesn't serve. For a chain in which an earlier incarnation of its store
    /// serves, this is the copy on the disk at the start: the current incarnation has had no part in it. `progress`
    /// gives the state of a chain here.
    pub(super) fn holds(&self, progress: impl Fn(ChainId) -> Option<ChainProgress>) -> Vec<StoreHolding> {
        let earlier = |id: MemberId| id != self.me && id.shares_store(self.me);
        let of_chain = |config: &ChainConfig| {
            let at_start = self.disk().and_then(|disk| disk.at_start(config.chain));
            if config.serving().any(earlier) {
                return at_start;
            }
            if config.role(self.me) == Some(Role::Serving) {
                return None;
            }
            progress(config.chain)?.holding(config.chain, at_start.is_some_and(|held| held.synced))
        };
        self.configs().iter().filter_map(of_chain).collect()
    }

    /// Gives all chains the same order, and returns the chains. While the directory is being loaded, no chain can
    /// execute an order.
    pub(super) fn order_all(&mut self, order: &ChainOrder) -> BTreeSet<ChainId> {
        let chains: BTreeSet<_> = self.configs().iter().map(|config| config.chain).collect();
        if !self.loads() {
            self.outputs.extend(chains.iter().map(|&chain| NodeOutput::Order(chain, order.clone())));
        }
        chains
    }

    /// Orders all chains to give way, if this node does.
    pub(super) fn order_to_yield(&mut self) {
        if let Some(refusal) = self.state.gives_way() {
            self.order_all(&ChainOrder::Yield { refusal });
        }
    }

    /// Every part of a node adds its outputs here, so their order is that of the steps that cause them.
    pub(super) fn push(&mut self, output: NodeOutput) {
        self.outputs.push_back(output);
    }

    pub(super) fn event(&mut self, event: NodeEvent) {
        self.push(NodeOutput::Event(event));
    }

    pub(super) fn pop(&mut self) -> Option<NodeOutput> {
        self.outputs.pop_front()
    }

    pub(super) fn state(&self) -> &NodeState {
        &self.state
    }

    pub(super) fn state_mut(&mut self) -> &mut NodeState {
        &mut self.state
    }

    /// Whether this node serves nothing because another cluster succeeds its own, or its history has diverged from a
    /// newer one.
    pub(super) fn yields(&self) -> bool {
        self.state.gives_way().is_some()
    }

    /// The membership has found a node.
    pub(super) fn meets(&mut self, id: MemberId, addrs: Vec<SocketAddr>) {
        self.met.retain(|met, _| met.node != id.node);
        self.met.insert(id, addrs);
        self.holder.meets(id);
    }

    /// The membership has lost this incarnation.
    pub(super) fn loses(&mut self, id: MemberId) {
        self.met.remove(&id);
    }

    /// Whether the membership knows `node`, in any incarnation.
    pub(super) fn has_met(&self, node: NodeId) -> bool {
        self.met.keys().any(|id| id.node == node)
    }

    pub(super) fn addrs(&self, of: MemberId) -> Vec<SocketAddr> {
        match (self.met.get(&of), self.configs().node(of)) {
            (Some(addrs), _) => addrs.clone(),
            (None, Some(founder)) => founder.addrs.clone(),
            (None, None) => Vec::new(),
        }
    }

    /// The newest known incarnation of the store of `id`: the log's group names stores, which outlive their
    /// incarnations.
    pub(super) fn present(&self, id: MemberId) -> MemberId {
        let known = self.configs().nodes().map(|node| node.id);
        let lives = self.met.keys().copied().chain(known).chain([self.me]);
        lives.filter(|life| life.shares_store(id)).max().unwrap_or(id)
    }

    /// If it is due, asks all other nodes once, so that each of them receives this store's position: ordinary renewals
    /// reach only the leader.
    pub(super) fn tell_all(&mut self, now: Timestamp) {
        let Some(disk) = self.disk.as_mut().filter(|disk| now >= disk.tells_at()) else { return };
        disk.tells(now);
        let known = self.configs().nodes().map(|node| node.id).filter(|id| !self.has_met(id.node));
        let others: BTreeSet<_> = self.met.keys().copied().chain(known).filter(|id| id.node != self.me.node).collect();
        self.holder.ask(now, others);
    }

    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    /// Records the voters of the log's group, and whether this node leads it. Returns whether either has changed.
    pub(super) fn follow(&mut self, leads: bool, voters: BTreeSet<MemberId>) -> bool {
        let is_new = self.leads != leads || self.voters != voters;
        (self.leads, self.voters) = (leads, voters);
        is_new
    }

    /// Whether this node may be a voter: it is one, knows of none, or leads. A leader that was voted out leads until
    /// that change is committed.
    pub(super) fn keeps_log(&self) -> bool {
        self.leads || self.voters.is_empty() || self.voters.contains(&self.me)
    }

    /// Whether this node is the only serving member of a chain, or the only voter.
    pub(super) fn is_last(&self) -> bool {
        let serves_alone = |config: &ChainConfig| config.serving().eq([self.me]);
        self.voters.iter().eq([&self.me]) || self.configs().iter().any(serves_alone)
    }

    /// Whether another node has a role in the current configuration: it serves, joins, or is a voter.
    pub(super) fn is_own(&self, id: MemberId) -> bool {
        id != self.me && self.has_part(id)
    }

    pub(super) fn has_part(&self, id: MemberId) -> bool {
        self.configs().names_store(id) || self.voters.iter().any(|voter| voter.shares_store(id))
    }

    /// The other nodes that have a role.
    pub(super) fn own(&self) -> BTreeSet<MemberId> {
        let named = self.configs().iter().flat_map(|config| config.members.iter().map(|member| member.id));
        named.chain(self.voters.iter().copied()).filter(|&id| id != self.me).collect()
    }

    /// The other serving members of all chains.
    pub(super) fn serving(&self) -> BTreeSet<MemberId> {
        self.configs().iter().flat_map(|config| config.serving()).filter(|&id| id != self.me).collect()
    }

    #[cfg(feature = "mutants")]
    pub(super) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let Self { me, guards: _, disk, holder, met, voters, leads, state: _, outputs } = self;
        holder.describe(out)?;
        write!(out, "{:?}", (me, disk.as_ref().map(Disk::describe), met, voters, leads, outputs))
    }
}
