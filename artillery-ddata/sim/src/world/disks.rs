//! Disks: the journals that nodes write, and the data that survives the end of a process.

use std::fmt::Write as _;

use artillery_proto::{
    ChainId, MemberId,
    control::{Bootstrap, Configs, HeardStores},
    data_dir::{DurableBatch, OpenError},
    disk::Disk as _,
    journal::{JournalError, SyncMode},
    node::NodeInput,
    replica::Status,
};

use super::{DiskEvents, Event, World, control, founding};
use crate::{
    disk::{ROOM, new_disk},
    faults::{Fault, Planned},
    node::{Input, Work},
    oracle::{Failure, Oracle},
    rng::Rng,
    scenario::{SECOND, Setup},
};

/// Maximum bytes that a chain passes to the journal at once.
const BATCH: usize = 64 << 10;
/// Minimum age of a backup when it is restored. Younger ones can't be detected, since nodes exchange and store the
/// positions of stores only every ten seconds.
const COPY_AGE: u64 = 11 * SECOND;

pub(super) fn draw_mode(rng: &mut Rng, setup: &Setup) -> SyncMode {
    match setup.durable.is_some_and(|of| rng.chance(of.never)) {
        true => SyncMode::Never,
        false => SyncMode::Batch,
    }
}

impl World {
    /// Writes the pending batches of a node's chains to its journal as one group, unless a sync is in progress.
    pub(super) fn write_journal(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if !node.is_alive() {
            return;
        }
        let Some(opened) = node.opened.as_mut().filter(|opened| !opened.syncs) else { return };
        let mut batches = std::mem::take(&mut opened.refused);
        if batches.is_empty() {
            for (slot, chain) in node.slots.iter_mut().zip((0..).map(ChainId)) {
                batches.extend(slot.runner.poll_journal(BATCH).map(|batch| (chain, batch)));
            }
        }
        let written = if batches.is_empty() { opened.journal.close() } else { opened.journal.write(&batches) };
        match written {
            Ok(()) if batches.is_empty() => {}
            Ok(()) => {
                self.note_checkpoints(&batches);
                self.begin_sync(index);
            }
            Err(JournalError::Full) => {
                opened.refused = batches;
                self.begin_sync(index);
            }
            Err(error) => self.disk_failed(index, &error.to_string()),
        }
    }

    fn begin_sync(&mut self, index: usize) {
        let Some(of) = self.setup.durable else { return };
        let longest = if self.disk_rng.chance(20) { 20 * of.sync } else { of.sync };
        let slow = self.slowness_of_disk(index);
        self.slow_syncs += u64::from(slow > 1);
        let after = 1 + self.disk_rng.below(longest) * slow;
        let fails = self.may_fail() && self.disk_rng.chance(of.fails);
        if fails {
            self.disks[index].fail_sync_after(Some(0));
        }
        if let Some(opened) = &mut self.nodes[index].opened {
            opened.syncs = true;
        }
        self.queue.push(self.now + after, Event::Synced { node: index, id: self.ids[index] });
    }

    fn slowness_of_disk(&self, index: usize) -> u64 {
        let active = (0..self.active.len()).filter(|&at| self.active[at]).map(|at| self.planned(at));
        let slow = active.filter_map(|fault| match fault {
            Fault::SlowDisk(node, factor) if node == index => Some(factor),
            _ => None,
        });
        slow.max().unwrap_or(1)
    }

    /// Syncs the journal of a node, and reports to its chains which of their batches are durable.
    pub(super) fn synced(&mut self, index: usize, id: MemberId) -> Result<(), Failure> {
        if self.ids[index] != id || !self.nodes[index].is_alive() {
            return Ok(());
        }
        let Some(opened) = &mut self.nodes[index].opened else { return Ok(()) };
        opened.syncs = false;
        let synced = opened.journal.sync();
        match synced {
            Ok(durable) => {
                for DurableBatch { chain, upto } in durable {
                    self.tell_chain(index, chain, Input::Durable(upto));
                }
            }
            Err(JournalError::Full) => {}
            Err(error) => {
                self.disk_failed(index, &error.to_string());
                return Ok(());
            }
        }
        self.tidy_journal(index);
        self.write_journal(index);
        Ok(())
    }

    fn tidy_journal(&mut self, index: usize) {
        let notes = self.disk_rng.chance(100);
        let Some(opened) = &mut self.nodes[index].opened else { return };
        let noted = if notes { opened.journal.note_synced() } else { Ok(()) };
        match noted.and_then(|()| opened.journal.tidy()) {
            Ok(wanted) => {
                for chain in wanted {
                    self.tell_chain(index, chain, Input::Checkpoint);
                }
            }
            Err(JournalError::Full) => {}
            Err(error) => self.disk_failed(index, &error.to_string()),
        }
    }

    fn tell_chain(&mut self, index: usize, chain: ChainId, input: Input) {
        self.enqueue(index, Work { slot: chain.0 as usize, input, flight: None });
    }

    /// Persists configurations on a node's disk. Then its chains may act on them.
    pub(super) fn keep(&mut self, index: usize, configs: &Configs) {
        let me = self.ids[index];
        let Some(opened) = &self.nodes[index].opened else { return };
        match opened.control.change(|record| record.keep(me, configs, opened.mode)) {
            Ok(()) => self.hand_in(index, NodeInput::Kept),
            Err(error) => self.disk_failed(index, &error.to_string()),
        }
    }

    /// Persists the founding of a node's cluster. Returns `false` if the disk failed, which ended the node.
    pub(super) fn keep_founding(&mut self, index: usize, founding: &Bootstrap) -> bool {
        let me = self.ids[index];
        let Some(opened) = &self.nodes[index].opened else { return true };
        let kept = opened.control.change(|record| record.keep_founding(me, founding));
        if let Err(error) = &kept {
            self.disk_failed(index, &error.to_string());
        }
        kept.is_ok()
    }

    /// Persists that the node continues alone. Returns `false` if the disk failed, which ended the node.
    pub(super) fn keep_recovery(&mut self, index: usize, configs: &Configs) -> bool {
        let Some(opened) = &self.nodes[index].opened else { return true };
        let kept = opened.control.change(|record| record.go_on(configs.clone()));
        if let Err(error) = &kept {
            self.disk_failed(index, &error.to_string());
        }
        kept.is_ok()
    }

    /// By chance, destroys the disk of a node lost in a disaster.
    pub(super) fn may_lose_disk(&mut self, index: usize) {
        if !self.disks.is_empty() && self.disk_rng.chance(800) {
            self.trace.line(self.now, |out| write!(out, "the disk of n{index} is lost"));
            self.drop_disk(index);
        }
    }

    /// Persists the known positions of other stores on a node's disk.
    pub(super) fn keep_heard(&mut self, index: usize, heard: HeardStores) {
        let Some(opened) = &self.nodes[index].opened else { return };
        if let Err(error) = opened.control.change(|record| record.heard.merge(heard)) {
            self.disk_failed(index, &error.to_string());
        }
    }

    /// Ends a node whose directory is an older copy, or contains updates that an accepted loss has removed. Its
    /// operator replaces the directory by an empty one.
    pub(super) fn rolled_back(&mut self, index: usize) {
        self.trace.line(self.now, |out| write!(out, "n{index} has an older copy of its directory, and ends"));
        self.counts.disks.refused += 1;
        self.end_life(index);
        self.drop_disk(index);
        self.queue_start(index, SECOND / 10);
    }

    /// Schedules the start of a node that is down, `after` nanoseconds from now.
    fn queue_start(&mut self, index: usize, after: u64) {
        let event = match self.control {
            Some(_) => Event::Control(control::Event::Start(index)),
            None => Event::Founding(founding::Event::Start(index)),
        };
        self.queue.push(self.now + after, event);
    }

    fn kill(&mut self, index: usize) {
        match self.control {
            Some(_) => self.end_life(index),
            None => self.stop(index),
        }
    }

    pub(super) fn drop_disk(&mut self, index: usize) {
        if self.disks.is_empty() {
            return;
        }
        self.lacking.loses_disk(self.ids[index]);
        self.restored.remove(&index);
        // Keep the counts of the old disk.
        let of = self.disks[index].counts();
        self.counts.disks.add(DiskEvents { cuts: of.cuts, lossy: of.lossy_cuts, emptied: 1, ..DiskEvents::default() });
        self.replaced[index].writes += of.writes;
        self.replaced[index].syncs += of.syncs;
        self.disks[index] = new_disk(self.disk_rng.draw());
    }

    /// Ends a process whose disk failed or lost power, and schedules its restart.
    pub(super) fn disk_failed(&mut self, index: usize, why: &str) {
        self.trace.line(self.now, |out| write!(out, "n{index} ends: {why}"));
        // After a failed sync, the kernel may drop the data that was not synced.
        self.lacking.loses_power(self.ids[index]);
        self.kill(index);
        let after = self.disk_rng.between(SECOND / 50, SECOND);
        self.queue_start(index, after);
    }

    fn may_fail(&self) -> bool {
        self.now < self.setup.healed && !self.is_rolling() && !self.may_need_recovery()
    }

    /// Applies the end of a process to its disk. A power cut may lose all data that was not synced.
    pub(super) fn leave_disk(&mut self, index: usize) {
        let (Some(of), Some(disk)) = (self.setup.durable, self.disks.get(index).cloned()) else { return };
        let is_cut = self.disk_rng.chance(of.cuts);
        if is_cut || disk.is_off() {
            self.lacking.loses_power(self.ids[index]);
        }
        self.nodes[index].opened = None;
        disk.fail_sync_after(None);
        if is_cut {
            disk.cut_power();
        } else {
            disk.restart();
            if self.disk_rng.chance(300) {
                disk.forget_pages();
            }
        }
    }

    /// May replace the disk of a starting node: by an empty one if all its data is also on other disks, or by a backup.
    pub(super) fn replace_disk(&mut self, index: usize) {
        let Some(of) = self.setup.durable else { return };
        if self.disk_rng.chance(of.wipes) && self.may_fail() && self.can_lose_disk(index) {
            self.trace.line(self.now, |out| write!(out, "n{index} gets an empty disk"));
            self.drop_disk(index);
        }
        self.restore_copy(index);
    }

    pub(super) fn copy_disk(&mut self, index: usize) {
        if let Some(disk) = self.disks.get(index).filter(|_| self.nodes[index].is_alive()) {
            self.copies[index] = Some((self.now, disk.copy(self.disk_rng.draw())));
        }
    }

    /// May replace the disk of a starting node by a detectably old backup, if all its data is also on other disks.
    fn restore_copy(&mut self, index: usize) {
        let is_old = |made: u64| self.now >= made + COPY_AGE;
        let has_copy = self.copies[index].as_ref().is_some_and(|(made, _)| is_old(*made));
        if has_copy && self.may_fail() && self.can_lose_disk(index) && self.disk_rng.chance(700) {
            self.trace.line(self.now, |out| write!(out, "n{index} gets a backup of its directory"));
            if let Some((_, copy)) = self.copies[index].take() {
                self.counts.disks.restored += 1;
                self.restored.insert(index);
                self.disks[index] = copy;
                self.oracles.iter_mut().for_each(|oracle| oracle.forget_life(index));
            }
        }
    }

    /// Ends the nodes selected by `number`, now or at one of their next writes, or stops them in an orderly way.
    pub(super) fn power_fails(&mut self, number: u64) {
        if self.is_rolling() || self.disks.is_empty() {
            return;
        }
        let all = number.is_multiple_of(2);
        // An operator stops the nodes in an orderly way, and starts them again.
        let is_orderly = (number >> 15).is_multiple_of(3);
        self.copy_disk((number >> 10) as usize % self.nodes.len());
        self.fill_disk((number >> 20) as usize % self.nodes.len());
        for index in 0..self.nodes.len() {
            if !self.nodes[index].is_alive() || !all && (number >> (index + 1)).is_multiple_of(2) {
                continue;
            }
            self.outages += 1;
            if is_orderly && self.control.is_some() {
                self.withdraw(index);
            } else if self.disk_rng.chance(500) {
                self.kill(index);
            } else {
                self.disks[index].cut_power_after(self.disk_rng.below(12));
            }
        }
    }

    /// Another program may use up most or all of the space left on a disk.
    fn fill_disk(&mut self, index: usize) {
        if self.disk_rng.chance(500) {
            let used = ROOM.saturating_sub(self.disks[index].free().unwrap_or(ROOM));
            let left = self.disk_rng.pick(&[0, 64 << 10, 2 << 20]);
            self.trace.line(self.now, |out| write!(out, "the disk of n{index} has {left} bytes left"));
            self.disks[index].set_room(used + left);
        }
    }

    pub(super) fn power_is_back(&mut self) {
        self.disks.iter().for_each(|disk| disk.set_room(ROOM));
        let is_over = |planned: &Planned| !matches!(planned.fault, Fault::Outage(_)) || planned.end <= self.now;
        if self.setup.faults.iter().all(is_over) {
            // Cancel pending cuts: the disk of a spare is written so rarely that its cut would occur long after
            // healing.
            self.disks.iter().for_each(|disk| disk.cut_power_after(u64::MAX));
        }
        (0..self.nodes.len()).for_each(|index| self.start_soon(index));
    }

    /// Schedules the start of a node that has ended, unless an operator starts it.
    pub(super) fn start_soon(&mut self, index: usize) {
        let after = self.disk_rng.below(3 * SECOND / 2);
        if self.nodes[index].down && !self.is_rolling() {
            self.queue_start(index, after);
        }
    }

    /// Handles a directory that couldn't be opened. Only damage is a failure: otherwise the disk failed just then.
    pub(super) fn not_opened(&mut self, index: usize, error: &OpenError) -> Result<(), Failure> {
        if error.is_damage() {
            return Err(Failure::new(Oracle::Disk, format!("n{index}: {error}")));
        }
        self.trace.line(self.now, |out| write!(out, "n{index} doesn't start: {error}"));
        if self.disks[index].is_off() {
            self.lacking.loses_power(self.ids[index]);
        }
        self.disks[index].restart();
        self.queue_start(index, SECOND / 10);
        Ok(())
    }

    /// Checks that every update that this member has committed is on the disks of all members that serve in its epoch.
    pub(super) fn check_durable(&self, index: usize, slot: usize, status: &Status) -> Result<(), Failure> {
        let Some(config) = status.config.as_ref().filter(|_| status.durable.is_some()) else { return Ok(()) };
        let watermark = status.watermark;
        for id in config.serving() {
            let Some(at) = self.ids.iter().position(|&other| other == id) else { continue };
            let durable = self.nodes[at].slots[slot].runner.replica().durable_in(config.epoch);
            if let Some(held) = durable.filter(|&held| held < watermark) {
                let what = format!("n{index} committed {watermark}, but the disk of n{at} has only {held}");
                return Err(Failure::new(Oracle::Durable, what));
            }
        }
        Ok(())
    }
}
