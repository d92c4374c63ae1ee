//! Results of runs and hunts, as text and as JSON (docs/json.md).

mod shortfall;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use artillery_proto::guards::Mutant;
use serde::Serialize;

use crate::{
    faults::Kind,
    mutants::{HUNTED, is_convicted_by},
    oracle::Failure,
    scenario::{DURABLE, RECOVERY, SECOND, Scenario, disks_of_seeds},
    shrink::{Shrunk, shrink},
    world::{Counts, DiskEvents, Outcome},
};

pub use shortfall::Shortfall;

const MILLI: u64 = 1_000_000;

/// Number of violations, and of shortfalls, shown in full. Further ones are only counted.
const SHOWN: usize = 3;

/// Each kind of fault of a scenario must have at least one effect per this number of seeds, on average.
const KIND_SEEDS: u64 = 12;

/// The combined result of the seeds of one scenario.
#[derive(Clone, Debug)]
pub struct ScenarioReport {
    scenario: Scenario,
    seeds: u64,
    total: Counts,
    violations: u64,
    shown: Vec<(u64, Failure, Option<Shrunk>)>,
    shortfalls: Vec<Shortfall>,
}

impl ScenarioReport {
    /// An empty report.
    pub fn new(scenario: Scenario) -> Self {
        Self { scenario, seeds: 0, total: Counts::default(), violations: 0, shown: Vec::new(), shortfalls: Vec::new() }
    }

    /// Adds the outcome of a seed. A failing run is shrunk if it will be shown.
    pub fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.total.add(&outcome.counts);
        self.shortfalls.extend(Shortfall::of(seed, &outcome));
        if let Some(failure) = outcome.failure {
            self.violations += 1;
            if self.shown.len() < SHOWN {
                self.shown.push((seed, failure, shrink(self.scenario, seed, None)));
            }
        }
    }

    /// Kinds of faults of the scenario that had too few effects.
    pub fn missing(&self) -> Vec<Kind> {
        let least = self.least_injected();
        self.scenario.kinds().iter().copied().filter(|&kind| self.total.injected(kind) < least).collect()
    }

    fn least_injected(&self) -> u64 {
        self.seeds.div_ceil(KIND_SEEDS)
    }

    /// Whether all seeds passed and did enough, and all kinds of faults had enough effects.
    pub fn passed(&self) -> bool {
        self.seeds_passed() && self.missing().is_empty()
    }

    /// Whether all seeds passed and did enough. A single seed need not contain every kind of fault.
    pub fn seeds_passed(&self) -> bool {
        self.violations == 0 && self.shortfalls.is_empty()
    }

    /// Number of failed seeds.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// The entry of this scenario in the JSON report.
    pub fn json(&self) -> ScenarioJson {
        let counts = &self.total;
        ScenarioJson {
            name: self.scenario.name(),
            seeds: self.seeds,
            virtual_hours: hundredths(counts.virtual_nanos),
            operations: counts.operations,
            refused: counts.refused,
            faults: self.scenario.kinds().iter().map(|&kind| (kind.name(), counts.injected(kind))).collect(),
            violations: self.violations,
            missing_faults: self.missing().into_iter().map(Kind::name).collect(),
            shortfalls: self.shortfalls.clone(),
            unanswered: counts.unanswered,
            acknowledged: counts.acknowledged,
            conflicts: counts.conflicts,
            local_reads: counts.local_reads,
            dirty_reads: counts.dirty_reads,
            shared_queries: counts.shared_queries,
            version_queries: counts.version_queries,
            retries: counts.retries,
            duplicates: counts.duplicates,
            expired_sessions: counts.expired_sessions,
            recovery_ms: counts.recovery.unwrap_or_default().div_ceil(MILLI),
            recovery_allowed_ms: RECOVERY / MILLI,
            away_ms: counts.away.div_ceil(MILLI),
            ready_ms: counts.ready.map(|ready| ready.div_ceil(MILLI)),
            disk_cuts: counts.disks.cuts,
            lossy_disk_cuts: counts.disks.lossy,
            disk_starts: counts.disks.starts,
            empty_disks: counts.disks.emptied,
            reopened: counts.disks.reopened,
            restored_disks: counts.disks.restored,
            refused_disks: counts.disks.refused,
            unsynced_losses: counts.disks.losses,
            settled_by_start: counts.disks.settled_by_start,
            settled_by_read: counts.disks.settled_by_read,
            superseded: counts.disks.superseded,
        }
    }
}

/// The result of the seeds of one scenario, for scripts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScenarioJson {
    name: &'static str,
    seeds: u64,
    virtual_hours: f64,
    operations: u64,
    refused: u64,
    faults: BTreeMap<&'static str, u64>,
    violations: u64,
    missing_faults: Vec<&'static str>,
    shortfalls: Vec<Shortfall>,
    unanswered: u64,
    acknowledged: u64,
    conflicts: u64,
    local_reads: u64,
    dirty_reads: u64,
    shared_queries: u64,
    version_queries: u64,
    retries: u64,
    duplicates: u64,
    expired_sessions: u64,
    recovery_ms: u64,
    recovery_allowed_ms: u64,
    away_ms: u64,
    ready_ms: Option<u64>,
    disk_cuts: u64,
    lossy_disk_cuts: u64,
    disk_starts: u64,
    empty_disks: u64,
    reopened: u64,
    restored_disks: u64,
    refused_disks: u64,
    unsynced_losses: u64,
    settled_by_start: u64,
    settled_by_read: u64,
    superseded: u64,
}

/// The result of the hunt for one mutant, for scripts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MutantJson {
    name: &'static str,
    trap: u32,
    caught: bool,
    oracle: Option<&'static str>,
    seeds: u64,
    baseline_passed: bool,
    scenario: &'static str,
}

/// Virtual hours with two decimals. Rounds with integers, so that every build prints the same.
fn hundredths(nanos: u64) -> f64 {
    (nanos / 36_000_000_000) as f64 / 100.0
}

impl fmt::Display for ScenarioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.total;
        writeln!(
            f,
            "{:<8} {} seeds, {:.2} virtual hours, {} operations, {} refused, {} unanswered, {} violations",
            self.scenario.name(),
            self.seeds,
            hundredths(counts.virtual_nanos),
            counts.operations,
            counts.refused,
            counts.unanswered,
            self.violations
        )?;
        writeln!(
            f,
            "         reads: {} local, {} dirty ({} version queries, {} shared); writes: {} acknowledged, {} conflicts, {} times busy",
            counts.local_reads,
            counts.dirty_reads,
            counts.version_queries,
            counts.shared_queries,
            counts.acknowledged,
            counts.conflicts,
            counts.busy
        )?;
        writeln!(
            f,
            "          requests: {} retried unanswered, {} late duplicates, {} in evicted sessions",
            counts.retries, counts.duplicates, counts.expired_sessions
        )?;
        let recovery = counts.recovery.unwrap_or_default().div_ceil(MILLI);
        writeln!(
            f,
            "         complete and serving after healing within {}.{:03} virtual seconds (allowed: {})",
            recovery / 1000,
            recovery % 1000,
            RECOVERY / SECOND
        )?;
        if let Some(ready) = counts.ready {
            let (away, ready) = (counts.away.div_ceil(MILLI), ready.div_ceil(MILLI));
            writeln!(f, "         longest unexplained loss of service: {away} ms; ready {ready} ms after healing")?;
        }
        let DiskEvents { cuts, lossy, starts, emptied, reopened, restored, refused, losses, .. } = counts.disks;
        if starts > 0 {
            let DiskEvents { settled_by_start, settled_by_read, superseded, .. } = counts.disks;
            let share = lossy * 100 / cuts.max(1);
            writeln!(
                f,
                "         disks: {cuts} power cuts, {share} % of them lost data; {starts} starts with a disk, {emptied} with an empty one; {reopened} chains reopened; {restored} backups restored, {refused} refused; {losses} runs ended with a loss permitted by `--sync never`"
            )?;
            writeln!(
                f,
                "         unreplicated records: {settled_by_start} settled by starts, {settled_by_read} by reads, {superseded} superseded"
            )?;
        }
        if counts.locks.contenders > 0 {
            let locks = &counts.locks;
            writeln!(
                f,
                "         locks: {} keys, {} holders, {} lost; {} pauses ({} of holders), {} deaths, {} cut off; {} renewals, {} unknown; {} writes accepted, {} refused",
                locks.placed,
                locks.holds,
                locks.lost,
                locks.pauses,
                locks.paused_holders,
                locks.deaths,
                locks.cuts,
                locks.renewals,
                locks.unknown_renewals,
                locks.stored,
                locks.fenced
            )?;
            writeln!(
                f,
                "         copies: {} changes, {} read in whole, {} times because changes were no longer kept",
                locks.copied, locks.copies, locks.restarts
            )?;
        }
        if counts.gave_way > 0 {
            writeln!(f, "         {} clusters gave way to another one", counts.gave_way)?;
        }
        write!(f, "         faults:")?;
        for &kind in self.scenario.kinds() {
            write!(f, " {kind} {}", counts.injected(kind))?;
        }
        for kind in self.missing() {
            let (injected, least) = (counts.injected(kind), self.least_injected());
            write!(f, "\n         FAILED: {injected} faults of the kind {kind} had an effect ({least} expected)")?;
        }
        for shortfall in self.shortfalls.iter().take(SHOWN) {
            write!(f, "\n         {shortfall}")?;
        }
        if self.shortfalls.len() > SHOWN {
            write!(f, "\n         … and {} more seeds with a shortfall", self.shortfalls.len() - SHOWN)?;
        }
        for (seed, failure, shrunk) in &self.shown {
            write!(f, "\n{}", Violation { scenario: self.scenario, seed: *seed, mutant: None, failure })?;
            shrunk.iter().try_for_each(|shrunk| write!(f, "\n{shrunk}"))?;
        }
        if self.violations > self.shown.len() as u64 {
            write!(f, "\n         … and {} more", self.violations - self.shown.len() as u64)?;
        }
        Ok(())
    }
}

struct Violation<'a> {
    scenario: Scenario,
    seed: u64,
    mutant: Option<Mutant>,
    failure: &'a Failure,
}

impl fmt::Display for Violation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, seed, mutant, failure } = self;
        writeln!(f, "VIOLATION in scenario {}, seed {seed}: {}", scenario.name(), failure.oracle)?;
        write!(
            f,
            "  replay: cargo run --release -p artillery-sim -- --scenario {} --seeds 1 --start {seed}",
            scenario.name()
        )?;
        if let Some(mutant) = mutant {
            write!(f, " --mutant {}", mutant.name())?;
        }
        let disks = disks_of_seeds();
        if disks != DURABLE {
            write!(f, " --disks {disks}")?;
        }
        write!(f, " --trace")?;
        failure.what.lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// The result of a hunt for one mutant.
#[derive(Clone, Debug)]
pub struct MutantReport {
    /// The disabled guard.
    pub mutant: Mutant,
    /// The scenario in which it was hunted.
    pub scenario: Scenario,
    /// The seed that caught it, how many seeds were tried up to it, and the failure.
    pub caught: Option<(u64, u64, Failure)>,
    /// The number of seeds tried if none caught it.
    pub tried: u64,
    /// The shrunk run, if that was requested.
    pub shrunk: Option<Shrunk>,
    /// A seed among those tried that also fails without the mutant.
    pub baseline: Option<(u64, Failure)>,
}

impl MutantReport {
    /// Whether an oracle that convicts caught the mutant, and the same seeds pass without it.
    pub fn passed(&self) -> bool {
        self.baseline.is_none()
            && self.caught.as_ref().is_some_and(|(_, _, failure)| is_convicted_by(self.mutant, failure.oracle))
    }

    /// Shrinks the run that caught the mutant.
    pub fn shrink(&mut self) {
        let seed = self.caught.as_ref().map(|(seed, ..)| *seed);
        self.shrunk = seed.and_then(|seed| shrink(self.scenario, seed, Some(self.mutant)));
    }

    fn seeds(&self) -> u64 {
        self.caught.as_ref().map_or(self.tried, |(_, seeds, _)| *seeds)
    }

    /// The entry of this mutant in the JSON report.
    pub fn json(&self) -> MutantJson {
        let failure = self.caught.as_ref().map(|(_, _, failure)| failure);
        MutantJson {
            name: self.mutant.name(),
            trap: self.mutant.trap(),
            caught: failure.is_some_and(|failure| is_convicted_by(self.mutant, failure.oracle)),
            oracle: failure.map(|failure| failure.oracle.name()),
            seeds: self.seeds(),
            baseline_passed: self.baseline.is_none(),
            scenario: self.scenario.name(),
        }
    }
}

impl fmt::Display for MutantReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, trap, scenario) = (self.mutant.name(), self.mutant.trap(), self.scenario.name());
        match &self.caught {
            Some((seed, seeds, failure)) => {
                let verdict =
                    if is_convicted_by(self.mutant, failure.oracle) { "caught" } else { "NOT CAUGHT but noticed" };
                writeln!(f, "{name} (trap {trap}): {verdict} by {} after {seeds} seeds of {scenario}", failure.oracle)?;
                write!(
                    f,
                    "{}",
                    Violation { scenario: self.scenario, seed: *seed, mutant: Some(self.mutant), failure }
                )?;
            }
            None => write!(f, "{name} (trap {trap}): SURVIVED {} seeds of {scenario}", self.tried)?,
        }
        if let Some(shrunk) = &self.shrunk {
            write!(f, "\n{shrunk}")?;
        }
        match &self.baseline {
            None => write!(f, "\n  the same seeds pass without the mutant"),
            Some((seed, failure)) => {
                let violation = Violation { scenario: self.scenario, seed: *seed, mutant: None, failure };
                write!(f, "\n  WITHOUT IT the same seeds fail too:\n{violation}")
            }
        }
    }
}

impl Counts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.virtual_nanos += other.virtual_nanos;
        self.events += other.events;
        self.operations += other.operations;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.healed += other.healed;
        self.healed_refused += other.healed_refused;
        self.acknowledged += other.acknowledged;
        self.conflicts += other.conflicts;
        self.local_reads += other.local_reads;
        self.dirty_reads += other.dirty_reads;
        self.shared_queries += other.shared_queries;
        self.in_flight = self.in_flight.max(other.in_flight);
        self.most_retries = self.most_retries.max(other.most_retries);
        self.watched += other.watched;
        self.gave_way += other.gave_way;
        self.watched_parts += other.watched_parts;
        self.fell_behind += other.fell_behind;
        self.disks.add(other.disks);
        self.walks += other.walks;
        self.locks.add(other.locks);
        self.session_bytes = self.session_bytes.max(other.session_bytes);
        self.version_queries += other.version_queries;
        self.retries += other.retries;
        self.duplicates += other.duplicates;
        self.expired_sessions += other.expired_sessions;
        self.busy += other.busy;
        self.recovery = self.recovery.max(other.recovery);
        self.away = self.away.max(other.away);
        self.ready = self.ready.max(other.ready);
        self.planned += other.planned;
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, more)| *sum += more);
    }

    /// Number of faults of this kind that had an effect.
    pub fn injected(&self, kind: Kind) -> u64 {
        Kind::ALL.iter().position(|&other| other == kind).map_or(0, |at| self.faults[at])
    }
}

/// The scenarios that `--scenario` accepts, with their descriptions.
pub fn scenario_list() -> String {
    let mut list = String::new();
    for scenario in Scenario::ALL {
        // Writing to a string doesn't fail.
        let _ = writeln!(list, "{:<8} {}", scenario.name(), scenario.about());
    }
    list
}

/// The mutants that `--mutant` accepts, with their traps.
pub fn mutant_list() -> String {
    let mut list = String::new();
    for (mutant, _) in HUNTED {
        let _ = writeln!(list, "{:<28} trap {}", mutant.name(), mutant.trap());
    }
    list
}
