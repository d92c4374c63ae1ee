//! Orders of operators, and events on the machines of nodes.

use artillery_core::MemberId;

use super::{Cluster, ClusterState};

impl Cluster {
    /// Kills a node without notifying its peers, until [`restart`](Self::restart). The other members notice it, and
    /// continue without it once its lease has expired.
    #[doc(alias = "kill")]
    pub fn crash(&self, member: MemberId) {
        self.inner.crash(member);
    }

    /// Cuts the power of a node's machine. Like a [`crash`](Self::crash), but its disk loses a part of the unsynced data,
    /// chosen by the seed. A crashed node can lose its power too.
    ///
    /// # Panics
    /// If the nodes have no disks: see [`Builder::durable`](super::Builder::durable).
    pub fn power_cut(&self, member: MemberId) {
        let machine = self.inner.machine(member);
        machine.disk();
        self.inner.crash(member);
        machine.disk().cut_power();
    }

    /// Starts a node that crashed, lost its power or was stopped, with the contents of its disk. Without a disk it has
    /// lost its data, and joins as a new member. Returns the node's new incarnation once the node has started: wait with
    /// [`settle`](Self::settle) until it serves. Ends the isolation and the pause of the node.
    ///
    /// # Panics
    /// If the node has [left](Self::drain), or its disk is damaged, which is a fault of this crate.
    pub async fn restart(&self, member: MemberId) -> MemberId {
        let machine = self.inner.machine(member);
        assert!(!machine.has_left(), "{} has left the cluster: see `add_node`", machine.name());
        self.inner.resume(member.node);
        let started = machine.start(&self.inner.setup, true, &self.inner.witness).await;
        started.unwrap_or_else(|error| panic!("{} can't start: {error}", machine.name()));
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
    /// without it at once, and it may [`restart`](Self::restart). Without a disk, it leaves.
    pub async fn stop(&self, member: MemberId) {
        if let Some(node) = self.inner.machine(member).begin_end() {
            node.shutdown().await;
        }
    }

    /// Makes a node leave the cluster permanently, as [`Node::leave`](crate::Node::leave) does: its chains continue
    /// without it, and spares replace it.
    pub async fn drain(&self, member: MemberId) {
        let machine = self.inner.machine(member);
        if let Some(node) = machine.begin_end() {
            node.leave().await;
        }
        machine.set_left();
    }

    /// Starts a new node, which finds the cluster and becomes a spare, or joins a chain that has too few members. Returns
    /// once it has started: wait with [`settle`](Self::settle) until it serves.
    pub async fn add_node(&self) -> MemberId {
        let machine = self.inner.add_machine();
        let started = machine.start(&self.inner.setup, true, &self.inner.witness).await;
        started.unwrap_or_else(|error| panic!("{} can't start: {error}", machine.name()));
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
    /// are kept while the rates of any two clocks differ by at most 1 % (10,000 ppm). Beyond that,
    /// [`check`](Self::check) may find stale reads. A restart doesn't correct the clock.
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
}
