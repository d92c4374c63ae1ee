//! One power cut at a given write or sync, at one node or at all of them, in a run that is the same each time until then.

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

/// So long after the last fault all nodes have started again, in nanoseconds. Planned faults that follow the cut count too: a
/// node that gets an empty disk right after all have lost their power costs the chain another change of leader.
const BACK: u64 = 3 * SECOND;
/// For so long clients go on from then on, in nanoseconds.
const SERVES: u64 = SECOND / 2;

/// A write or sync of a node's disks at which the power is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerCut {
    /// The node.
    pub node: usize,
    /// How many writes and syncs its disks have done before.
    pub behind: u64,
    /// Whether all other nodes lose their power at the same moment.
    pub at_all: bool,
}

/// What the disks of a run did, and what the power cut did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PowerCounts {
    /// What the disks of each node had done when clients stopped.
    pub done: Vec<DiskCounts>,
    /// Whole checkpoints in the journals.
    pub checkpoints: u64,
    /// Whether the cut took something that was written from a disk; `None`: the run has not come to it.
    pub lost: Option<bool>,
    /// Cuts that had taken something before the last start of the node that is to be cut.
    lossy_before: u64,
}

impl PowerCounts {
    /// Those of a run that begins; `lost` if the power was lost while its nodes started.
    pub(super) fn begin(lost: Option<bool>) -> Self {
        Self { lost, ..Self::default() }
    }
}

impl World {
    /// Puts the power cut in front of the present disk of a node, if it is still to come.
    pub(super) fn arm_disk(&mut self, index: usize) {
        let Some(cut) = self.setup.power_cut.filter(|cut| cut.node == index) else { return };
        if self.counts.power.lost.is_none() {
            self.counts.power.lossy_before = self.disks[index].counts().lossy_cuts;
            arm(&self.disks[index], cut.behind - self.replaced[index].operations());
        }
    }

    /// After an event: the power may have been lost in it. Then the processes end, start again after a while, and clients go on
    /// until some time after that.
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

    /// Notes what disks have done so far.
    pub(super) fn count_disk_operations(&mut self) {
        let disks = self.disks.iter().zip(&self.replaced);
        let sum = |(disk, before): (&SimulatedDisk, &DiskCounts)| {
            let DiskCounts { writes, syncs, .. } = disk.counts();
            DiskCounts { writes: before.writes + writes, syncs: before.syncs + syncs, ..DiskCounts::default() }
        };
        self.counts.power.done = disks.map(sum).collect();
    }

    /// Counts the checkpoints that end in these batches.
    pub(super) fn note_checkpoints(&mut self, batches: &[(ChainId, JournalBatch)]) {
        let ends = |entry: &&JournalEntry| {
            let JournalEntry::Sent(frame) = entry else { return false };
            matches!(&frame.message, ChainMessage::Snapshot(part) if part.content == SnapshotContent::End)
        };
        let entries = batches.iter().flat_map(|(_, batch)| &batch.entries);
        self.counts.power.checkpoints += entries.filter(ends).count() as u64;
    }

    /// A node that is down starts again, with an empty disk if all that it had is on other disks too.
    pub(super) fn restart_with_empty_disk(&mut self, index: usize) {
        if self.nodes[index].down && self.can_lose_disk(index) {
            self.drop_disk(index);
        }
        self.restart_life(index);
    }
}

/// The first lives of all nodes. If the power is lost while their disks are opened, they start again; then it also says whether
/// a disk has lost something.
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
    (started.expect("disks that work"), lost.map(|_| disks.iter().any(|disk| disk.counts().lossy_cuts > 0)))
}

fn arm(disk: &SimulatedDisk, behind: u64) {
    disk.cut_power_after(behind.saturating_sub(disk.counts().operations()));
}
