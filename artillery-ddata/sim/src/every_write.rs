//! Repeats one run with a power cut at every write and sync of its disks, at the writing node and at all nodes.
//!
//! Until the cut, each repetition is identical to the reference run. Then the nodes restart with the surviving disk
//! contents, and clients continue. Every acknowledged write must be present, and the chain must serve again.

use std::fmt;

use artillery_proto::{disk::simulated::DiskCounts, guards::Guards};
use serde::Serialize;

use crate::{
    faults::Kind,
    oracle::{Failure, Oracle},
    runner::{Runner, run_setup, run_traced},
    scenario::every_write,
    world::{Counts, Outcome, PowerCut},
};

/// The seed of the run.
pub const SEED: u64 = 1;

/// Number of violations shown in full. Further ones are only counted.
const SHOWN: usize = 3;

/// The run without a power cut, which defines the points at which power may be lost.
#[derive(Clone, Debug)]
pub struct Reference {
    guards: Guards,
    /// The counts of events in the reference run.
    pub counts: Counts,
}

impl Reference {
    /// Makes the reference run. Returns its failure if it fails.
    pub fn run(guards: Guards) -> Result<Self, Failure> {
        let Outcome { counts, failure, .. } = run_setup(SEED, every_write(SEED, None, guards));
        failure.map_or(Ok(Self { guards, counts }), Err)
    }

    /// Writes and syncs of each node's disk until clients stopped.
    fn done(&self) -> &[DiskCounts] {
        &self.counts.power.done
    }

    /// The number of distinct power cuts: two for each write and each sync.
    pub fn cuts(&self) -> u64 {
        2 * self.done().iter().map(DiskCounts::operations).sum::<u64>()
    }

    /// The cut with this number; `None` unless it is below [`cuts`](Self::cuts).
    pub fn cut(&self, number: u64) -> Option<PowerCut> {
        let (mut behind, at_all) = (number / 2, !number.is_multiple_of(2));
        for (node, done) in self.done().iter().enumerate() {
            match behind.checked_sub(done.operations()) {
                None => return Some(PowerCut { node, behind, at_all }),
                Some(left) => behind = left,
            }
        }
        None
    }

    /// Repeats the run with this cut. A run that ends before the cut is a failure.
    pub fn repeat(&self, cut: PowerCut, traced: bool) -> Outcome {
        let mut outcome = run_traced(SEED, every_write(SEED, Some(cut), self.guards), traced);
        if outcome.failure.is_none() && outcome.counts.power.lost.is_none() {
            outcome.failure = Some(Failure::new(Oracle::Progress, "the run ended before the power cut"));
        }
        outcome
    }

    /// Repeats the run with every `step`-th cut from `start` on, at most `most` times.
    pub fn report(&self, start: u64, step: u64, most: u64) -> EveryWriteReport {
        let mut report = EveryWriteReport::new(self);
        let count = self.cuts().saturating_sub(start).div_ceil(step.max(1)).min(most);
        let cut = |n: u64| self.cut(start + n * step.max(1));
        let work = |n| cut(n).map(|cut| self.repeat(cut, false));
        Runner::default().each(count, work, |n, outcome| {
            if let Some((cut, outcome)) = cut(n).zip(outcome) {
                report.add(start + n * step.max(1), cut, outcome);
            }
        });
        report
    }
}

/// The results of many power cuts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct EveryWriteReport {
    /// Writes of bytes and changes of names on disks in the reference run.
    pub writes: u64,
    /// Syncs in the reference run.
    pub syncs: u64,
    /// Acknowledged client writes and opened sessions in the reference run.
    pub acknowledged: u64,
    /// Completed journal checkpoints in the reference run.
    pub checkpoints: u64,
    /// Members that joined by a snapshot in the reference run.
    pub joiners: u64,
    /// Operator orders carried out in the reference run.
    pub orders: u64,
    /// Power cuts at a single node.
    pub at_one: CutCounts,
    /// Power cuts at all nodes at once.
    pub at_all: CutCounts,
    /// Failed runs.
    pub violations: u64,
    #[serde(skip)]
    shown: Vec<(u64, PowerCut, Failure)>,
}

/// Counts of power cuts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct CutCounts {
    /// Number of power cuts.
    pub cuts: u64,
    /// Power cuts after which a disk was missing written data, in whole or in part.
    pub lossy: u64,
}

impl EveryWriteReport {
    fn new(reference: &Reference) -> Self {
        let Counts { acknowledged, resync, power, .. } = &reference.counts;
        Self {
            writes: power.done.iter().map(|done| done.writes).sum(),
            syncs: power.done.iter().map(|done| done.syncs).sum(),
            acknowledged: *acknowledged,
            checkpoints: power.checkpoints,
            joiners: resync.through,
            orders: reference.counts.injected(Kind::Order),
            at_one: CutCounts::default(),
            at_all: CutCounts::default(),
            violations: 0,
            shown: Vec::new(),
        }
    }

    fn add(&mut self, number: u64, cut: PowerCut, outcome: Outcome) {
        let counts = if cut.at_all { &mut self.at_all } else { &mut self.at_one };
        counts.cuts += 1;
        counts.lossy += u64::from(outcome.counts.power.lost == Some(true));
        if let Some(failure) = outcome.failure {
            self.violations += 1;
            if self.shown.len() < SHOWN {
                self.shown.push((number, cut, failure));
            }
        }
    }
}

impl fmt::Display for EveryWriteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, syncs, acknowledged, checkpoints, joiners, orders, at_one, at_all, .. } = self;
        writeln!(f, "every write: {writes} writes and {syncs} syncs of three disks")?;
        writeln!(
            f,
            "         {acknowledged} writes acknowledged, {checkpoints} checkpoints, {joiners} joined, {orders} reordered"
        )?;
        for (name, CutCounts { cuts, lossy }) in [("one node", at_one), ("all nodes", at_all)] {
            let share = lossy * 100 / (*cuts).max(1);
            writeln!(f, "         power lost at {name}: {cuts} cuts, {lossy} ({share} %) lost data")?;
        }
        write!(f, "         {} violations", self.violations)?;
        for (number, PowerCut { node, behind, at_all }, failure) in &self.shown {
            let all = if *at_all { ", and at all others" } else { "" };
            writeln!(
                f,
                "\nVIOLATION, power lost at n{node} behind {behind} writes and syncs{all}: {}",
                failure.oracle
            )?;
            write!(f, "  replay: artillery-sim --every-write --start {number} --seeds 1 --trace")?;
            failure.what.lines().try_for_each(|line| write!(f, "\n  {line}"))?;
        }
        Ok(())
    }
}
