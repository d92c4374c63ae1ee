//! Rules for any register that are cheap to check and name the violation.
//!
//! Each rule is necessary: a history that breaks one has no linearization. The rules aren't sufficient, so the search
//! follows. They rest on two facts. Writes of known version are applied in the order of their versions. A write is
//! applied before its acknowledgement, and before the return of each operation that saw it.

use std::collections::BTreeMap;

use artillery_proto::{Epoch, Sequence, Version};

use super::form::Versions;
use super::register::{NEVER, Register, Write};
use super::violation::{Kind, Violation};
use crate::history::Operation;

/// Checks all rules. Rules that operations break by their own answers precede rules broken by a missing operation. So
/// the operations in a violation break no other rule among themselves.
pub(super) fn check(register: &Register<'_>, versions: &Versions) -> Result<(), Violation> {
    let frontier = Frontier::new(register);
    versions_ascend(register, &frontier)?;
    swaps_exclude_others(register)?;
    sights_are_fresh(register, &frontier)?;
    absences_have_a_reason(register, &frontier)?;
    creations_match(register, versions)?;
    orphans_have_a_maker(register, versions)
}

/// The lowest version above `version` that no write of another key has: the lowest possible one of a delete of unknown
/// version.
pub(super) fn free_after(mut version: Version, versions: &Versions, key: u32) -> Version {
    loop {
        version = match (version.epoch, version.sequence) {
            (Epoch(epoch), Sequence(u64::MAX)) => Version::new(epoch.saturating_add(1), 0),
            (Epoch(epoch), Sequence(sequence)) => Version::new(epoch, sequence + 1),
        };
        if !versions.is_foreign(version, key) {
            return version;
        }
    }
}

/// The newest write known to be applied at each time, and the operation that revealed it.
struct Frontier {
    /// Ascending in time and in `write`.
    steps: Vec<Step>,
}

#[derive(Clone, Copy)]
struct Step {
    time: u64,
    /// The newest write known at that time, as an index into [`Register::writes`].
    write: usize,
    /// The operation that revealed it: the write itself, or the first that saw its value.
    source: usize,
}

impl Frontier {
    fn new(register: &Register<'_>) -> Self {
        let mut steps = Vec::new();
        for (index, write) in register.writes.iter().enumerate() {
            if write.returned != NEVER {
                steps.push(Step { time: write.returned, write: index, source: write.operation });
            }
            let seen =
                |sight: &super::register::Sight| Step { time: sight.returned, write: index, source: sight.operation };
            steps.extend(write.sights.iter().map(seen));
        }
        steps.sort_by_key(|step| step.time);
        let mut newest: Option<Step> = None;
        for step in &mut steps {
            let best = match newest {
                // Of two operations that reveal the same write, prefer the write's own acknowledgement.
                Some(best) if best.write == step.write && step.source == register.writes[step.write].operation => *step,
                Some(best) if best.write >= step.write => best,
                _ => *step,
            };
            newest = Some(best);
            *step = Step { time: step.time, ..best };
        }
        Self { steps }
    }

    /// The newest write known before `time`.
    fn before(&self, time: u64) -> Option<Step> {
        let position = self.steps.partition_point(|step| step.time < time);
        position.checked_sub(1).map(|position| self.steps[position])
    }
}

fn versions_ascend(register: &Register<'_>, frontier: &Frontier) -> Result<(), Violation> {
    for (index, write) in register.writes.iter().enumerate() {
        if let Some(step) = frontier.before(write.called)
            && step.write > index
        {
            let mut evidence: Vec<Operation> = register.evidence(write).collect();
            evidence.extend(register.evidence(&register.writes[step.write]));
            evidence.push(register.operations[step.source]);
            return Err(Violation::new(Kind::VersionWentBack, register.operations[write.operation], evidence));
        }
    }
    Ok(())
}

/// The version expected by a successful compare-and-swap must directly precede its own among the key's versions.
fn swaps_exclude_others(register: &Register<'_>) -> Result<(), Violation> {
    let mut swapped: BTreeMap<Version, usize> = BTreeMap::new();
    for (index, write) in register.writes.iter().enumerate() {
        let Some(expected) = write.expected.filter(|expected| !expected.is_none()) else { continue };
        if expected >= write.version {
            return Err(register.violation(Kind::VersionWentBack, write, []));
        }
        if let Some(other) = swapped.insert(expected, index) {
            return Err(register.violation(Kind::DoubleSwap, write, [&register.writes[other]]));
        }
        let match_ = register.write_of(expected);
        if let Some(deleted) = match_.filter(|match_| !match_.present) {
            return Err(register.violation(Kind::SwapWithoutMatch, write, [deleted]));
        }
        if let Some(between) = before(register, index).filter(|between| between.version > expected) {
            return Err(register.violation(Kind::LostUpdate, write, match_.into_iter().chain([between])));
        }
    }
    Ok(())
}

/// A compare-and-swap that expected an absent key can't follow a value unless a delete or an expiry fits in between.
fn creations_match(register: &Register<'_>, versions: &Versions) -> Result<(), Violation> {
    let unknown = unknown_deletion(register);
    for (index, write) in register.writes.iter().enumerate() {
        let Some(before) = before(register, index).filter(|before| before.present) else { continue };
        if write.expected != Some(Version::NONE) {
            continue;
        }
        let gone = unknown.min(register.expiry(before.version));
        if gone > applied_by(write) || free_after(before.version, versions, register.key) >= write.version {
            let kind = if before.expected == write.expected { Kind::DoubleSwap } else { Kind::LostUpdate };
            return Err(register.violation(kind, write, [before]));
        }
    }
    Ok(())
}

/// If no answer reported an expected version, a write of unknown outcome must have created it.
fn orphans_have_a_maker(register: &Register<'_>, versions: &Versions) -> Result<(), Violation> {
    for write in &register.writes {
        let Some(expected) = write.expected.filter(|expected| !expected.is_none()) else { continue };
        let maker = register.latent.first().is_some_and(|latent| latent.called <= applied_by(write));
        let foreign = versions.is_foreign(expected, register.key);
        if register.write_of(expected).is_none() && (foreign || !maker) {
            return Err(register.violation(Kind::SwapWithoutMatch, write, []));
        }
    }
    Ok(())
}

fn before<'r>(register: &'r Register<'_>, index: usize) -> Option<&'r Write> {
    register.writes.get(index.checked_sub(1)?)
}

fn sights_are_fresh(register: &Register<'_>, frontier: &Frontier) -> Result<(), Violation> {
    for (index, write) in register.writes.iter().enumerate() {
        for sight in write.sights.iter() {
            let Some(step) = frontier.before(sight.called).filter(|step| step.write > index) else { continue };
            let newer = &register.writes[step.write];
            let kind = match (step.source == newer.operation, newer.present) {
                (false, _) => Kind::ReadWentBack,
                (true, true) => Kind::StaleRead,
                (true, false) => Kind::Resurrected,
            };
            let mut evidence: Vec<Operation> = register.evidence(write).collect();
            evidence.extend(register.evidence(newer));
            evidence.push(register.operations[step.source]);
            return Err(Violation::new(kind, register.operations[sight.operation], evidence));
        }
    }
    Ok(())
}

fn absences_have_a_reason(register: &Register<'_>, frontier: &Frontier) -> Result<(), Violation> {
    // For each index, the earliest call of an acknowledged delete or of an expiry at or after it.
    let mut deletes = vec![NEVER; register.writes.len() + 1];
    for (index, write) in register.writes.iter().enumerate().rev() {
        let gone = if write.present { register.expiry(write.version) } else { write.called };
        deletes[index] = deletes[index + 1].min(gone);
    }
    let unknown = unknown_deletion(register);
    for absence in register.absences.iter() {
        let Some(step) = frontier.before(absence.called) else { continue };
        if deletes[step.write].min(unknown) <= absence.returned {
            continue;
        }
        let mut evidence: Vec<Operation> = register.evidence(&register.writes[step.write]).collect();
        evidence.push(register.operations[step.source]);
        return Err(Violation::new(Kind::Vanished, register.operations[absence.operation], evidence));
    }
    Ok(())
}

/// The earliest call of a delete of unknown outcome, or of an expiry of a version that no answer reported.
fn unknown_deletion(register: &Register<'_>) -> u64 {
    let hidden = register.hidden_expiries().map(|(_, called)| called);
    register.deletes.first().copied().into_iter().chain(hidden).min().unwrap_or(NEVER)
}

/// The time by which the write was certainly applied.
fn applied_by(write: &Write) -> u64 {
    write.returned.min(write.sights.earliest(0))
}
