//! The leader's memory of members that may stall their chain.

use std::{collections::btree_map::Entry, time::Duration};

use super::{CoordinatorSettings, gray_failure::SlowSuspect, reason::Why};
use crate::{Epoch, MemberId, NodeId, Timestamp, control::message::Report};

/// The first quarantine of a node, as a multiple of `slow`. It doubles each time the node soon stalls its chain again.
const FIRST_QUARANTINE_FACTOR: u32 = 5;
/// A node that behaved for this many times its last quarantine starts with the first quarantine again.
const TRUST_FACTOR: u32 = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct LastReport {
    pub(super) report: Report,
    pub(super) moved: Timestamp,
    /// When the member first reported that this epoch is open.
    pub(super) opened: Timestamp,
}

/// The leader's observations of one chain in one epoch.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) epoch: Epoch,
    pub(super) blame: Option<Suspicion>,
    /// The member that has been between slow paths, or whose disk has been slow, without a break, and since when.
    pub(super) suspect: Option<(SlowSuspect, Timestamp)>,
    /// The ends of the hop that was broken when a member was last moved out, and when that was.
    pub(super) ends: Option<([MemberId; 2], Timestamp)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Suspicion {
    pub(super) member: MemberId,
    pub(super) why: Why,
    pub(super) ends: Option<[MemberId; 2]>,
    pub(super) since: Timestamp,
}

/// The quarantine of a node that was moved out as unreached or slow: none of its reports can show its recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quarantine {
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) away: Duration,
    /// Before `until` the node may return behind any tail except this one.
    pub(super) apart: Option<MemberId>,
}

impl Quarantine {
    #[cfg(test)]
    pub(super) fn for_a_test(until: Timestamp) -> Self {
        Self { since: Timestamp::ZERO, until, away: Duration::ZERO, apart: None }
    }

    pub(super) fn may_return(&self, now: Timestamp, tail: Option<MemberId>) -> bool {
        now >= self.until || self.apart.is_some_and(|other| Some(other) != tail)
    }

    pub(super) fn again(
        entry: Entry<'_, NodeId, Self>,
        now: Timestamp,
        settings: &CoordinatorSettings,
        apart: Option<MemberId>,
        longest: u32,
    ) {
        let first = settings.slow * FIRST_QUARANTINE_FACTOR;
        let soon = match &entry {
            Entry::Occupied(known) => Some(*known.get()).filter(|known| now - known.since < known.away * TRUST_FACTOR),
            Entry::Vacant(_) => None,
        };
        let away = soon.map_or(first, |known| (known.away * 2).min(first * longest));
        let apart = apart.filter(|_| soon.is_none());
        let quarantine = Self { since: now, until: now + away, away, apart };
        entry.and_modify(|known| *known = quarantine).or_insert(quarantine);
    }
}
