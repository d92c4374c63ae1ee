//! A power cut at a given write or sync, at one node or at all of them. Until the cut, the run is identical each time.

use std::fmt::Write as _;

use artillery_proto::{
    ChainId,
    data_dir::OpenError,
    disk::simulated::{DiskCounts, SimulatedDisk},
    journal::{JournalEntry, SyncMode},
    message::{ChainMessage, SnapshotContent},
    replica::JournalBatch,
};

use super::World;
use crate::{
    node::Node,
    scenario::{SECOND, Setup},
};

/// Time allowed for recovery after the cut and the last planned fault, in nanoseconds. A planned fault may follow the
/// cut: an empty disk right after a cut at all nodes costs the chain another change of leader.
const BACK: u64 = 3 * SECOND;
/// How long clients continue after the recovery, in nanoseconds.
const SERVES: u64 = SECOND / 2;

/// A write or sync of a node's disks at which power is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerCut {
    /// The node whose operations are counted, and which loses power.
    pub node: usize,
    /// Number of writes and syncs that the node's disks complete before the cut.
    pub behind: u64,
    /// Whether all other nodes lose power at the same moment.
    pub at_all: bool,
}

/// Counts of the disks in a run with a power cut.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PowerCounts {
    /// For each node, the operations of its disks until clients stopped.
    pub done: Vec<DiskCounts>,
    /// Completed journal checkpoints.
    pub checkpoints: u64,
    /// Whether the cut lost written data; `None` until it has happened.
    pub lost: Option<bool>,
    /// The disk's lossy cuts when the pending cut was armed.
    lossy_before: u64,
}

impl PowerCounts {
    /// The counts at the start of a run. `lost` is set if power was lost while the nodes started.
    pub(super) fn begin(lost: Option<bool>) -> Self {
        Self { lost, ..Self::default() }
    }
}

impl World {
    /// Arms the power cut on the current disk of a node, unless it has already happened.
    pub(super) fn arm_disk(&mut self, index: usize) {
        let Some(cut) = self.setup.power_cut.filter(|cut| cut.node == index) else { return };
        if self.counts.power.lost.is_none() {
            self.counts.power.lossy_before = self.disks[index].counts().lossy_cuts;
            arm(&self.disks[index], cut.behind - self.replaced[index].operations());
        }
    }

    /// Runs after every event, since power may have been lost in it. Then ends the affected processes, which start
    /// again later, and extends the run so that clients continue after the recovery.
    pub(super) fn watch_power(&mut self) {
        let Some(cut) = self.setup.power_cut.filter(|_| self.counts.power.lost.is_none()) else { return };
        let done = self.replaced[cut.node].operations() + self.disks[cut.node].counts().operations();
        if done <= cut.behind {
            return;
        }
        self.trace.line(self.now, |out| write!(out, "{cut:?}"));
        let mut has_lost = self.disks[cut.node].counts().lossy_cuts > self.counts.power.lossy_before;
        for index in 0..self.nodes.len() {
            let is_cut = cut.at_all || index == cut.node;
            if is_cut && self.nodes[index].is_alive() {
                let lossy = |world: &Self| world.disks[index].counts().lossy_cuts;
                let before = lossy(self);
                self.disk_failed(index, "the power is lost");
                has_lost |= lossy(self) > before;
            }
        }
        self.counts.power.lost = Some(has_lost);
        let last = self.setup.faults.iter().map(|planned| planned.end).fold(self.now, u64::max);
        self.setup.healed = self.setup.healed.max(last + BACK);
        self.setup.stop = self.setup.stop.max(self.setup.healed + SERVES);
    }

    pub(super) fn count_disk_operations(&mut self) {
        let disks = self.disks.iter().zip(&self.replaced);
        let sum = |(disk, before): (&SimulatedDisk, &DiskCounts)| {
            let DiskCounts { writes, syncs, .. } = disk.counts();
            DiskCounts { writes: before.writes + writes, syncs: before.syncs + syncs, ..DiskCounts::default() }
        };
        self.counts.power.done = disks.map(sum).collect();
    }

    pub(super) fn note_checkpoints(&mut self, batches: &[(ChainId, JournalBatch)]) {
        let ends = |entry: &&JournalEntry| {
            let JournalEntry::Sent(frame) = entry else { return false };
            matches!(&frame.message, ChainMessage::Snapshot(part) if part.content == SnapshotContent::End)
        };
        let entries = batches.iter().flat_map(|(_, batch)| &batch.entries);
        self.counts.power.checkpoints += entries.filter(ends).count() as u64;
    }

    /// Restarts a node that is down, with an empty disk if all its data is also on other disks.
    pub(super) fn restart_with_empty_disk(&mut self, index: usize) {
        if self.nodes[index].down && self.can_lose_disk(index) {
            self.drop_disk(index);
        }
        self.restart_life(index);
    }
}

/// The first incarnations of all nodes. If power is lost while their disks are opened, the nodes start again. The
/// second value is then set, and states whether a disk lost data.
pub(super) fn first_nodes(
    seed: u64,
    setup: &Setup,
    starts: &[(&SimulatedDisk, SyncMode)],
) -> (Vec<Node>, Option<bool>) {
    let disks: Vec<_> = starts.iter().map(|(disk, _)| *disk).collect();
    let start =
        || (0..setup.members).map(|index| Node::new(seed, index, 1, setup, starts.get(index).copied())).collect();
    let started: Result<Vec<Node>, OpenError> = match setup.power_cut {
        None => start(),
        Some(cut) => {
            arm(disks[cut.node], cut.behind);
            start().or_else(|_| {
                let is_cut = |at: &usize| cut.at_all || *at == cut.node;
                (0..disks.len()).filter(is_cut).for_each(|at| disks[at].cut_power());
                start()
            })
        }
    };
    let has_come = |cut: PowerCut| disks[cut.node].counts().operations() > cut.behind;
    let lost = setup.power_cut.filter(|&cut| has_come(cut));
    (started.expect("the disks open"), lost.map(|_| disks.iter().any(|disk| disk.counts().lossy_cuts > 0)))
}

fn arm(disk: &SimulatedDisk, behind: u64) {
    disk.cut_power_after(behind.saturating_sub(disk.counts().operations()));
}
