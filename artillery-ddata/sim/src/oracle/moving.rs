//! A chain whose members come and go. The first member that commits a sequence settles its update, and no member may
//! commit another one there. Uncommitted updates may vanish.

use std::collections::BTreeMap;

use artillery_proto::{Epoch, MemberId, Sequence, Version, replica::Status, types::update::Update};

use super::{ChainOracle, Failure, HaltText, Oracle};

/// Observations of a chain whose members come and go.
#[derive(Debug, Default)]
pub(super) struct Moving {
    /// Every update that any member ever had.
    versions: BTreeMap<Version, Update>,
    /// The present incarnation of each node.
    lives: BTreeMap<usize, Life>,
}

/// One incarnation of a node, as last observed.
#[derive(Debug)]
struct Life {
    id: MemberId,
    /// The versions above its watermark, and the newest one.
    held: BTreeMap<Sequence, Version>,
    last: Version,
    watermark: Sequence,
}

impl ChainOracle {
    /// A chain whose members come and go.
    pub fn moving() -> Self {
        Self { moving: Some(Moving::default()), ..Self::new(0) }
    }

    /// A node starts from a backup, perhaps as a life that was there before.
    pub fn forget_life(&mut self, node: usize) {
        if let Some(moving) = &mut self.moving {
            moving.lives.remove(&node);
        }
    }

    /// The first member enters `epoch`, in which an operator accepted a loss. The log ends where its copy, which ends at `last`,
    /// leaves it. Returns how many committed updates are lost by that.
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
        for update in before.iter().take(kept) {
            // The same log was taken in before.
            let _ = self.extend(update);
        }
        lost
    }

    /// Whether this very update is committed.
    pub fn has_committed(&self, version: Version) -> bool {
        let at = version.sequence.0.checked_sub(1);
        at.and_then(|at| self.log.get(at as usize)).is_some_and(|update| update.version == version)
    }

    /// Checks the replica of a node after its step.
    ///
    /// # Errors
    /// The rule that the present state of the replica breaks.
    pub fn observe_life<'a>(
        &mut self,
        node: usize,
        id: MemberId,
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
            // Only a full resync begins anew, and does so from nothing.
            if status.watermark != Sequence::ZERO {
                let what = format!("n{node}: watermark {} went back from {}", status.watermark, life.watermark);
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
                let known = moving.versions.entry(update.version).or_insert_with(|| update.clone());
                if known != update {
                    let what = format!("n{node} has {update:?} under the version of {known:?}");
                    return Err(Failure::new(Oracle::Prefix, what));
                }
            }
        }
        self.commit_life(node, status)
    }

    /// Checks what a member has newly committed: other members have committed the same, or this one is the first.
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
                    let what = format!("n{node} has committed {version} where {} is committed", known.version);
                    return Err(Failure::new(Oracle::Prefix, what));
                }
                (Some(_), _) => {}
                (None, Some(version)) => new.extend(moving.versions.get(&version).cloned()),
                // The update came, was committed and left the backlog in one step. Once it could be committed, no head
                // orders another one under its sequence. So it is the newest one there that any member ever had.
                (None, None) => match newest_at(&moving.versions, sequence) {
                    Some(update) => new.push(update.clone()),
                    None => {
                        let what = format!("n{node} has committed {sequence}, which no head ever ordered");
                        return Err(Failure::new(Oracle::Prefix, what));
                    }
                },
            }
        }
        life.watermark = status.watermark;
        new.iter().try_for_each(|update| self.extend(update))
    }

    /// The update that made a version, committed or not.
    pub(super) fn ever(&self, version: Version) -> Option<&Update> {
        self.moving.as_ref().and_then(|moving| moving.versions.get(&version))
    }

    /// All updates of `key` from `version` on that any member ever had.
    pub(super) fn ever_from(&self, version: Version) -> impl Iterator<Item = &Update> + '_ {
        self.moving.iter().flat_map(move |moving| moving.versions.range(version..).map(|(_, update)| update))
    }
}

fn newest_at(versions: &BTreeMap<Version, Update>, sequence: Sequence) -> Option<&Update> {
    versions.iter().rev().find(|(version, _)| version.sequence == sequence).map(|(_, update)| update)
}
