//! Changes of configurations, kept until the node reports them as events.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use artillery_proto::node::{ChangeReason, Why};

use crate::{ChainId, MemberId, control::Configs};

/// The most reasons that are kept. Beyond that, the oldest are dropped.
const MAX_REASONS: usize = 64;

/// Why a node was moved out of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveReason {
    /// It gave no answer.
    Silent,
    /// It left in an orderly way: it was shut down, left permanently, or was drained by an operator.
    Left,
    /// It sent messages, but received none, so it had no lease.
    Deaf,
    /// The path between it and a neighbour in the chain was broken, although both were alive.
    Unreached,
    /// It alone made the chain slow.
    Slow,
    /// Its disk alone made the chain slow, or stopped it.
    Disk,
    /// It stopped serving.
    Halted,
    /// The chain was opened again without it.
    Reopened,
}

impl MoveReason {
    /// The reason of a member's removal; `None`: the change does not remove this member.
    pub(crate) fn of(why: Why) -> Option<Self> {
        match why {
            Why::Silent => Some(Self::Silent),
            Why::Left => Some(Self::Left),
            Why::Deaf => Some(Self::Deaf),
            Why::Unreached => Some(Self::Unreached),
            Why::Slow => Some(Self::Slow),
            Why::Disk => Some(Self::Disk),
            Why::Halted => Some(Self::Halted),
            // A change that reopens a chain names the member that opens it, not the removed ones.
            _ => None,
        }
    }
}

/// The reasons of removals that this node has proposed as a leader.
#[derive(Debug, Default)]
pub(crate) struct ChangeReasons(Mutex<VecDeque<ChangeReason>>);

impl ChangeReasons {
    pub(crate) fn add(&self, reasons: &[ChangeReason]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(reasons.iter().filter(|reason| MoveReason::of(reason.why).is_some()));
        let more = all.len().saturating_sub(MAX_REASONS);
        all.drain(..more);
    }

    /// Removes all reasons for removals of this incarnation from the chain, and returns the newest. A later removal
    /// needs a new reason, since another leader may propose it.
    pub(crate) fn take_removal(&self, chain: ChainId, member: MemberId) -> Option<MoveReason> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut newest = None;
        all.retain(|reason| {
            let is_of_it = reason.chain == chain && reason.member == member;
            if is_of_it {
                newest = MoveReason::of(reason.why);
            }
            !is_of_it
        });
        newest
    }
}

/// The most configurations that wait for the tracker.
const MAX_WAITING: usize = 32;

/// The configurations by which this node's chains have begun to act, oldest first, until the tracker takes them. The
/// node's state has only the newest one, which doesn't show a member that was moved out and has returned since.
#[derive(Debug, Default)]
pub(crate) struct ConfigFeed(Mutex<VecDeque<Arc<Configs>>>);

impl ConfigFeed {
    /// Adds a newer configuration. If the queue is full, replaces the last one, so the tracker compares the new one
    /// with the one before the gap.
    pub(crate) fn add(&self, configs: &Arc<Configs>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.truncate(MAX_WAITING - 1);
        waiting.push_back(configs.clone());
    }

    /// Takes all configurations that were added since the last call.
    pub(crate) fn take(&self) -> VecDeque<Arc<Configs>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
