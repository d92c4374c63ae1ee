//! Orders of operators, and events on the machines of nodes.

use artillery_core::MemberId;
use tokio::time::timeout;

use super::{
    Cluster, ClusterState,
    machine::{End, TestMachine},
    settle::TIMEOUT,
};

impl Cluster {
    /// Kills a node without notifying its peers, until [`restart`](Self::restart). The other members notice its silence,
    /// and continue without it once its lease has expired.
    #[doc(alias = "kill")]
    pub fn crash(&self, member: MemberId) {
        self.inner.crash(member);
        self.inner.machine(member).set_by_trouble(false);
    }

    /// Cuts the power of a node's machine. Like a [`crash`](Self::crash), but its disk loses a part of the unsynced data,
    /// chosen by the seed. A crashed node can lose its power too.
    ///
    /// # Panics
    /// If the nodes have no disks: see [`Builder::durable`](super::Builder::durable).
    pub fn power_cut(&self, member: MemberId) {
        let machine = self.inner.machine(member);
        machine.disk();
        self.crash(member);
        machine.disk().cut_power();
    }

    /// Starts a node that crashed, lost its power or was stopped, with the contents of its disk. Without a disk it has
    /// lost its data, and joins as a new member. Returns the node's new incarnation once the node has started: wait with
    /// [`settle`](Self::settle) until it serves. Ends the isolation and the pause of the node. Of a node that runs, nothing
    /// else changes.
    ///
    /// # Panics
    /// If the node has [left](Self::drain). Also if it can't start, for example because its disk is damaged: that is a
    /// fault of this crate.
    pub async fn restart(&self, member: MemberId) -> MemberId {
        let machine = self.inner.machine(member);
        assert!(!machine.has_left(), "{} has left the cluster: see `add_node`", machine.name());
        machine.set_by_trouble(false);
        self.inner.resume(member.node);
        self.inner.start(&machine).await;
        machine.id()
    }

    /// Kills the processes that still run, like `kill -9`, and restarts all nodes with the contents of their disks,
    /// including the nodes that crashed or lost their power. Ends all cuts, isolations and pauses, and returns when all
    /// nodes serve.
    ///
    /// The restarted nodes are new incarnations, and may have a different order in their chains: query
    /// [`nodes`](Self::nodes), [`chain`](Self::chain) and [`kv`](Self::kv) again. Handles of the killed processes fail.
    /// Clients outside the cluster continue.
    ///
    /// # Panics
    /// If the nodes have no disks: see [`Builder::durable`](super::Builder::durable). Also if a disk is damaged, or the
    /// nodes don't serve after two minutes, which is a fault of this crate.
    pub async fn restart_all(&self) {
        let nodes = self.nodes();
        for &node in &nodes {
            self.inner.machine(node).disk();
            self.inner.crash(node);
        }
        self.heal();
        for &node in &nodes {
            self.restart(node).await;
        }
        self.settle().await;
    }

    /// Stops a node gracefully, as [`Node::shutdown`](crate::Node::shutdown) does: with a disk, its chains continue
    /// without it at once. Without a disk, it leaves, and joins as a new member after a [`restart`](Self::restart).
    ///
    /// # Panics
    /// If that takes longer than two minutes: the last serving member of a chain waits for another one.
    pub async fn stop(&self, member: MemberId) {
        self.end(member, End::Stop).await;
    }

    /// Makes a node leave the cluster permanently, as [`Node::leave`](crate::Node::leave) does: its chains continue
    /// without it, and spares replace it.
    ///
    /// # Panics
    /// If that takes longer than two minutes: the last serving member of a chain waits for another one.
    pub async fn drain(&self, member: MemberId) {
        self.inner.machine(member).set_left();
        self.end(member, End::Leave).await;
    }

    async fn end(&self, member: MemberId, how: End) {
        let machine = self.inner.machine(member);
        machine.set_by_trouble(false);
        if timeout(TIMEOUT, machine.end(how)).await.is_err() {
            let waits = match machine.last() {
                Some(node) => node.waiting_for().await,
                None => Vec::new(),
            };
            panic!("{} has not ended after {TIMEOUT:?}: {waits:?}", machine.name());
        }
    }

    /// Starts a new node, which finds the cluster and becomes a spare, or joins a chain that has too few members. Returns
    /// once it has started: wait with [`settle`](Self::settle) until it serves.
    pub async fn add_node(&self) -> MemberId {
        let machine = self.inner.add_machine();
        self.inner.start(&machine).await;
        machine.id()
    }

    /// Takes the free space of a node's disk, apart from 512 KiB. That is less than the node's reserve, so its chains
    /// refuse values ([`DiskFull`](crate::Refusal::DiskFull)) within a second, until [`free_disk`](Self::free_disk).
    ///
    /// # Panics
    /// If the nodes have no disks: see [`Builder::durable`](super::Builder::durable).
    pub fn fill_disk(&self, member: MemberId) {
        self.inner.machine(member).fill_disk();
    }

    /// Frees the space that [`fill_disk`](Self::fill_disk) has taken.
    ///
    /// # Panics
    /// If the nodes have no disks: see [`Builder::durable`](super::Builder::durable).
    pub fn free_disk(&self, member: MemberId) {
        self.inner.machine(member).free_disk();
    }

    /// Makes a node's clock gain `ppm` parts per million from now on, or lose them, if negative. Leases and times to live
    /// are kept while the rates of any two clocks differ by at most 1 % (10,000 ppm), the clock of the test included.
    /// Beyond that, [`check`](Self::check) may find stale reads, or keys that expired too early or too late. Timers, such
    /// as those of elections, keep the true rate. A restart doesn't correct the clock.
    pub fn skew_clock(&self, member: MemberId, ppm: i32) {
        self.inner.machine(member).clock.drift(ppm);
    }
}

impl ClusterState {
    pub(super) fn crash(&self, member: MemberId) {
        self.machine(member).kill(&self.setup.network);
        // Calls by handles of the killed process fail.
        self.witness.resume(member.node);
    }

    /// Starts a node of the cluster.
    ///
    /// # Panics
    /// If it can't start.
    pub(super) async fn start(&self, machine: &TestMachine) {
        let mut setup = self.setup.clone();
        let present = self.machines().into_iter().filter(|machine| !machine.has_left());
        let seeds = present.map(|machine| setup.network.address(machine.name()).to_string());
        setup.config.discovery.seeds = seeds.collect();
        let started = machine.start(&setup, true, &self.witness).await;
        started.unwrap_or_else(|error| panic!("{} can't start: {error}", machine.name()));
    }
}
