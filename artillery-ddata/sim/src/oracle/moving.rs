//! A chain whose members change. The first member that commits a sequence fixes its update, and no member may commit
//! another one there. Uncommitted updates may vanish.

use std::collections::BTreeMap;

use artillery_proto::{Epoch, MemberId, Sequence, Version, replica::Status, types::update::Update};

use super::{ChainOracle, Failure, HaltText, Oracle};

/// Milliseconds that a turn may take until its updates are observed.
const SLACK: i64 = 300;

#[derive(Debug, Default)]
pub(super) struct Moving {
    /// Every update that any member ever held.
    versions: BTreeMap<Version, Update>,
    /// When each of them was made: the virtual times of the head's clock reading, and of the first observation.
    made: BTreeMap<Version, [u64; 2]>,
    /// Nanoseconds of a millisecond by the fastest clock.
    millisecond: u64,
    /// By how much chain time is ahead of the fastest clock, at least, over all committed updates.
    lead: Option<i64>,
    lives: BTreeMap<usize, Life>,
}

#[derive(Debug)]
struct Life {
    id: MemberId,
    /// The versions above its watermark.
    held: BTreeMap<Sequence, Version>,
    last: Version,
    watermark: Sequence,
}

impl ChainOracle {
    /// An oracle for a chain whose members change. The clocks of its members are fast by at most `drift` millionths.
    pub fn moving(drift: u32) -> Self {
        let millisecond = 1_000_000 - u64::from(drift.min(500_000));
        Self { moving: Some(Moving { millisecond, ..Moving::default() }), ..Self::new(0) }
    }

    /// Forgets a node that starts from a backup, possibly as an incarnation that was observed before.
    pub fn forget_life(&mut self, node: usize) {
        if let Some(moving) = &mut self.moving {
            moving.lives.remove(&node);
        }
    }

    /// Handles an accepted loss when the first member enters its `epoch`: truncates the log to what that member holds
    /// up to `last`. Returns how many committed updates are lost.
    pub fn lose<'a>(
        &mut self,
        epoch: Epoch,
        last: Version,
        history: impl DoubleEndedIterator<Item = &'a Update>,
    ) -> usize {
        let mut kept = last.sequence.0 as usize;
        for update in history {
            let at = update.version.sequence.0 as usize - 1;
            let differs = |known: &Update| known.version != update.version;
            if update.version.epoch >= epoch || self.log.get(at).is_some_and(differs) {
                kept = kept.min(at);
            }
        }
        let before = std::mem::take(&mut self.log);
        let lost = before.len().saturating_sub(kept);
        self.by_key.clear();
        self.requests = super::Requests::default();
        if let Some(moving) = &mut self.moving {
            moving.lead = None;
        }
        for update in before.iter().take(kept) {
            // Can't fail, because the same updates were accepted before.
            let _ = self.extend(update);
        }
        lost
    }

    /// Whether exactly this update is committed.
    pub fn has_committed(&self, version: Version) -> bool {
        let at = version.sequence.0.checked_sub(1);
        at.and_then(|at| self.log.get(at as usize)).is_some_and(|update| update.version == version)
    }

    /// Checks the replica of a node after a step. `Err` has the rule that its current state breaks. `times`: the virtual
    /// times of the step's clock reading, and now.
    pub fn observe_life<'a>(
        &mut self,
        times: [u64; 2],
        (node, id): (usize, MemberId),
        status: &Status,
        history: impl DoubleEndedIterator<Item = &'a Update>,
    ) -> Result<(), Failure> {
        if let Some(halt) = &status.halted {
            return Err(Failure::new(Oracle::Halted, format!("n{node} halted: {}", HaltText(halt))));
        }
        let Some(moving) = &mut self.moving else { return Ok(()) };
        let new = || Life { id, held: BTreeMap::new(), last: Version::NONE, watermark: Sequence::ZERO };
        let life = moving.lives.entry(node).or_insert_with(new);
        if life.id != id {
            *life = new();
        }
        if status.watermark > status.last.sequence {
            let what = format!("n{node}: watermark {} is above its newest version {}", status.watermark, status.last);
            return Err(Failure::new(Oracle::Watermark, what));
        }
        if status.watermark < life.watermark {
            // Only a full resync lowers the watermark, and it starts from zero.
            if status.watermark != Sequence::ZERO {
                let what = format!("n{node}: watermark {} decreased from {}", status.watermark, life.watermark);
                return Err(Failure::new(Oracle::Watermark, what));
            }
            *life = new();
        }
        if status.last != life.last {
            life.last = status.last;
            drop(life.held.split_off(&status.last.sequence.next()));
            for update in history.rev() {
                let Version { sequence, .. } = update.version;
                if sequence <= life.watermark || life.held.get(&sequence) == Some(&update.version) {
                    break;
                }
                life.held.insert(sequence, update.version);
                moving.made.entry(update.version).or_insert(times);
                let known = moving.versions.entry(update.version).or_insert_with(|| update.clone());
                if known != update {
                    let what = format!("n{node} has {update:?} under the version of {known:?}");
                    return Err(Failure::new(Oracle::Prefix, what));
                }
            }
        }
        self.commit_life(node, status)
    }

    /// Checks newly committed updates: either other members have committed the same ones, or this member is the first.
    fn commit_life(&mut self, node: usize, status: &Status) -> Result<(), Failure> {
        let Some(moving) = &mut self.moving else { return Ok(()) };
        let Some(life) = moving.lives.get_mut(&node) else { return Ok(()) };
        if status.watermark == life.watermark {
            return Ok(());
        }
        let mut new = Vec::new();
        for sequence in (life.watermark.0 + 1..=status.watermark.0).map(Sequence) {
            let held = life.held.remove(&sequence);
            match (self.log.get(sequence.0 as usize - 1), held) {
                (Some(known), Some(version)) if known.version != version => {
                    let what = format!("n{node} committed {version}, but {} is committed there", known.version);
                    return Err(Failure::new(Oracle::Prefix, what));
                }
                (Some(_), _) => {}
                (None, Some(version)) => new.extend(moving.versions.get(&version).cloned()),
                // The update was received, committed and trimmed from the backlog in one step. Once it could be
                // committed, no head orders another update with its sequence. So it is the newest update with this
                // sequence that any member ever held.
                (None, None) => match newest_at(&moving.versions, sequence) {
                    Some(update) => new.push(update.clone()),
                    None => {
                        let what = format!("n{node} committed {sequence}, which no head ever ordered");
                        return Err(Failure::new(Oracle::Prefix, what));
                    }
                },
            }
        }
        life.watermark = status.watermark;
        new.iter().try_for_each(|update| self.extend(update))
    }

    /// Checks that chain time has risen by at most the time between this update and any earlier one, by the fastest
    /// clock.
    pub(super) fn check_chain_time(&mut self, update: &Update) -> Result<(), Failure> {
        let Some(moving) = &mut self.moving else { return Ok(()) };
        let Some(&made) = moving.made.get(&update.version) else { return Ok(()) };
        let [lead, least] = made.map(|at| update.chain_time as i64 - (at / moving.millisecond) as i64);
        let before = moving.lead.get_or_insert(lead);
        if least > *before + SLACK {
            let what = format!("chain time has risen by {} ms too much at {update:?}", least - *before);
            return Err(Failure::new(Oracle::ChainTime, what));
        }
        *before = lead.min(*before);
        Ok(())
    }

    pub(super) fn ever(&self, version: Version) -> Option<&Update> {
        self.moving.as_ref().and_then(|moving| moving.versions.get(&version))
    }

    /// All updates that any member ever held, from `version` on, whichever keys they change.
    pub(super) fn ever_from(&self, version: Version) -> impl Iterator<Item = &Update> + '_ {
        self.moving.iter().flat_map(move |moving| moving.versions.range(version..).map(|(_, update)| update))
    }
}

fn newest_at(versions: &BTreeMap<Version, Update>, sequence: Sequence) -> Option<&Update> {
    versions.iter().rev().find(|(version, _)| version.sequence == sequence).map(|(_, update)| update)
}
