//! Stops nodes and restarts them with the contents of their disks.

use std::{cmp::Reverse, sync::Arc};

use artillery_core::MemberId;
use artillery_proto::{ChainMember, Epoch, Role};

use super::{Cluster, ClusterState, Lives, Witness};
use crate::{Routing, replica::ReplicaSettings, testing::node::TestMember};

impl Cluster {
    /// Cuts the power of a node's machine. As after a [`crash`](Self::crash), its chains commit nothing further until
    /// [`restart_all`](Self::restart_all). Its disk loses a part of the unsynced data, chosen by the seed. A crashed
    /// node can lose its power too.
    ///
    /// # Panics
    /// If the nodes have no disks: see [`Builder::durable`](super::Builder::durable).
    pub fn power_cut(&self, member: MemberId) {
        let member = self.inner.member(member);
        self.inner.end(&member);
        member.disk().simulated().cut_power();
    }

    /// Kills the processes that still run, like `kill -9`, and restarts all nodes with the contents of their disks,
    /// including the nodes that crashed or lost their power. Ends all cuts, isolations and pauses, and returns when all
    /// chains are open.
    ///
    /// The restarted nodes are new incarnations, and may have a different order in their chains: query
    /// [`nodes`](Self::nodes), [`chain`](Self::chain) and [`kv`](Self::kv) again. Handles of the killed processes fail.
    /// Clients outside the cluster continue.
    ///
    /// # Panics
    /// If the nodes have no disks: see [`Builder::durable`](super::Builder::durable). Also if a disk is damaged, or
    /// committed data is missing from it, which is a fault of this crate.
    pub async fn restart_all(&self) {
        let inner = &self.inner;
        let before = inner.members();
        before.iter().for_each(|member| inner.end(member));
        for member in &before {
            member.endpoint.shutdown().await;
        }
        self.heal();
        inner.crashed().clear();
        let members: Vec<_> = before.iter().map(|member| inner.start_again(member)).collect();
        let routing = Arc::new(next_routing(&inner.routing(), &members));
        *inner.lives() = Lives { members: members.clone(), routing: routing.clone() };
        form(&members, &routing, &inner.setup.settings, &inner.witness).await;
    }
}

impl ClusterState {
    pub(super) fn end(&self, member: &TestMember) {
        self.crashed().insert(member.id.node);
        self.setup.network.kill(member.id.node);
        member.stop();
        self.witness.resume(member.id.node);
    }

    fn start_again(&self, before: &TestMember) -> Arc<TestMember> {
        let disk = before.disk().simulated();
        self.setup.network.revive(before.id.node);
        Arc::new(TestMember::start(&self.setup, before.number, Some(disk.clone())))
    }
}

/// Starts the chains of all nodes, and returns when they are open.
pub(super) async fn form(
    members: &[Arc<TestMember>],
    routing: &Routing,
    settings: &ReplicaSettings,
    witness: &Arc<Witness>,
) {
    let standings: Vec<_> = members.iter().flat_map(|member| member.form(routing, settings)).collect();
    members.iter().for_each(|member| member.observe(witness));
    for mut standing in standings {
        // Fails only when the chain has ended, which can't happen here.
        let _ = standing.wait_for(|standing| standing.open.is_some()).await;
    }
}

/// The next configuration of each chain: it names the current incarnations of its members, sorted by the newest version
/// on their disks, the newest first.
fn next_routing(before: &Routing, lives: &[Arc<TestMember>]) -> Routing {
    let mut next = before.clone();
    for config in &mut next.chains {
        let is_member = |life: &&Arc<TestMember>| config.members.iter().any(|member| member.id.node == life.id.node);
        let mut back: Vec<_> = lives.iter().filter(is_member).collect();
        back.sort_by_key(|life| Reverse(life.disk().last(config.chain)));
        config.members = back.iter().map(|life| ChainMember { id: life.id, role: Role::Serving }).collect();
        (config.epoch, config.index) = (Epoch(config.epoch.0 + 1), config.index + 1);
    }
    next
}
