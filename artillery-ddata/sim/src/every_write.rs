//! One run, repeated with a power cut at every write and sync of its disks: at the node that writes, and at all nodes at once.
//!
//! Until the cut each repetition is the same as the run without one. Afterwards the nodes start again with what is left on
//! their disks, and clients go on. All that was acknowledged has to be there, and the chain has to serve again.

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

/// Number of violations that are shown in full. Further ones are only counted.
const SHOWN: usize = 3;

/// The run without a power cut, and where the power may be lost in it.
#[derive(Clone, Debug)]
pub struct Reference {
    guards: Guards,
    /// What happened in it.
    pub counts: Counts,
}

impl Reference {
    /// Makes the run.
    ///
    /// # Errors
    /// Its failure.
    pub fn run(guards: Guards) -> Result<Self, Failure> {
        let Outcome { counts, failure, .. } = run_setup(SEED, every_write(SEED, None, guards));
        failure.map_or(Ok(Self { guards, counts }), Err)
    }

    /// Writes and syncs of each node's disks until clients stopped.
    fn done(&self) -> &[DiskCounts] {
        &self.counts.power.done
    }

    /// The number of power cuts: two at each write and each sync.
    pub fn cuts(&self) -> u64 {
        2 * self.done().iter().map(DiskCounts::operations).sum::<u64>()
    }

    /// The cut with this number, below [`cuts`](Self::cuts).
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

    /// Repeats the run with this cut.
    pub fn repeat(&self, cut: PowerCut, traced: bool) -> Outcome {
        let mut outcome = run_traced(SEED, every_write(SEED, Some(cut), self.guards), traced);
        if outcome.failure.is_none() && outcome.counts.power.lost.is_none() {
            outcome.failure = Some(Failure::new(Oracle::Progress, "the run never came to the power cut"));
        }
        outcome
    }

    /// Repeats the run with every `step`-th cut from `start` on, `most` of them at most.
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

/// What many power cuts have led to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct EveryWriteReport {
    /// Writes to disks, and changes of names, in the run without a cut.
    pub writes: u64,
    /// Syncs in it.
    pub syncs: u64,
    /// Acknowledged writes of clients in it.
    pub acknowledged: u64,
    /// Whole checkpoints in its journals.
    pub checkpoints: u64,
    /// Members that joined by a snapshot in it.
    pub joiners: u64,
    /// Orders of an operator in it that were carried out.
    pub orders: u64,
    /// Power cuts at one node, and those of them that took something that was written from a disk.
    pub at_one: CutCounts,
    /// The same of power cuts at all nodes.
    pub at_all: CutCounts,
    /// Runs that failed.
    pub violations: u64,
    #[serde(skip)]
    shown: Vec<(u64, PowerCut, Failure)>,
}

/// Power cuts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct CutCounts {
    /// All of them.
    pub cuts: u64,
    /// Those after which a disk lacked something that was written, or had it in part.
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
            writeln!(f, "         power lost at {name}: {cuts} cuts, {lossy} ({share} %) of which lost something")?;
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
