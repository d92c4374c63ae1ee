//! Points of the history that are kept for scans as snapshots, and for digests.

use std::collections::BTreeMap;

use crate::{
    MemberId, Sequence, Timestamp,
    replica::{Context, log::Log},
};

const MAX_SNAPSHOTS: usize = 64;

/// The points of the history that are preserved for scans.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Snapshots {
    kept: BTreeMap<u64, KeptSnapshot>,
    /// The highest number assigned. The numbers of two incarnations coincide only if hashes collide: a client that
    /// requests the rest of its scan from another member must not get pages of another client's snapshot.
    last: u64,
}

impl Snapshots {
    /// Starts without snapshots. Their numbers begin at a hash of the incarnation.
    pub(super) fn of(me: MemberId) -> Self {
        let node = me.node.as_bytes().iter().fold(0_u64, |mix, &byte| mix.rotate_left(7) ^ u64::from(byte));
        let store = me.incarnation.store as u64 ^ (me.incarnation.store >> 64) as u64;
        let seed =
            (node ^ store.rotate_left(17)).wrapping_add(me.incarnation.starts).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { last: seed >> 24 << 24, ..Self::default() }
    }
}

#[derive(Clone, Hash, Debug)]
struct KeptSnapshot {
    at: Sequence,
    until: Timestamp,
    /// The log's total of applied bytes when the snapshot began.
    since: u64,
}

impl Snapshots {
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Keeps a committed sequence, and all later ones, under a number. `None`: too many are kept.
    pub(super) fn keep(&mut self, cx: Context<'_>, log: &Log, at: Sequence) -> Option<u64> {
        if self.kept.len() >= MAX_SNAPSHOTS {
            return None;
        }
        log.store().pin(at);
        self.last += 1;
        let until = cx.now + cx.settings().snapshots.age;
        self.kept.insert(self.last, KeptSnapshot { at, until, since: log.applied_bytes() });
        Some(self.last)
    }

    /// The sequence that is kept under this number, whose deadline this extends.
    pub(super) fn kept_at(&mut self, cx: Context<'_>, number: u64) -> Option<Sequence> {
        let kept = self.kept.get_mut(&number)?;
        kept.until = cx.now + cx.settings().snapshots.age;
        Some(kept.at)
    }

    pub(super) fn end_all(&mut self, log: &Log) {
        self.end_those(log, |_| true);
    }

    /// Ends the snapshots whose next page wasn't requested in time.
    pub(super) fn expire(&mut self, now: Timestamp, log: &Log) {
        self.end_those(log, |kept| kept.until <= now);
    }

    /// Snapshots never block writes: a snapshot ends when more than `limit` bytes were written since it began.
    pub(super) fn end_overtaken(&mut self, log: &Log, limit: usize) {
        let applied = log.applied_bytes();
        while let Some((&number, kept)) = self.kept.first_key_value()
            && applied - kept.since > limit as u64
        {
            self.end(log, number);
        }
    }

    fn end_those(&mut self, log: &Log, ends: impl Fn(&KeptSnapshot) -> bool) {
        let ended: Vec<u64> = self.kept.iter().filter(|(_, kept)| ends(kept)).map(|(&number, _)| number).collect();
        ended.into_iter().for_each(|number| self.end(log, number));
    }

    pub(super) fn end(&mut self, log: &Log, number: u64) {
        if let Some(kept) = self.kept.remove(&number) {
            log.store().unpin(kept.at);
        }
    }
}
