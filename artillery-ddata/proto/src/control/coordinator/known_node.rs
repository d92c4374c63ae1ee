//! A node, as known to this term's leader.

use std::collections::{BTreeMap, VecDeque};

use super::leaver::Leaver;
use crate::{
    ChainId, Timestamp,
    control::{
        NodeInfo,
        log::LogIndex,
        message::{Promotion, Renewal, Report, StoreHolding},
    },
    guards::Guards,
};

const REMEMBERED_ANSWERS: usize = 16;

/// A node that has renewed in this term.
#[derive(Clone, Debug)]
pub(super) struct KnownNode {
    pub(super) founder: NodeInfo,
    /// When it first renewed in this term, or finished loading its directory.
    pub(super) first: Timestamp,
    pub(super) heard: Timestamp,
    /// The last log entry that it has reported as applied.
    pub(super) applied: LogIndex,
    /// When the leases granted by this leader have certainly expired.
    pub(super) out: Timestamp,
    pub(super) leaver: Leaver,
    pub(super) promotions: Vec<Promotion>,
    pub(super) told: BTreeMap<ChainId, LastReport>,
    /// Its store's contents at its start, of chains in which an earlier incarnation of the store serves.
    pub(super) holds: BTreeMap<ChainId, StoreHolding>,
    pub(super) loads: bool,
    /// The answer of this leader that the last report shows; 0: none.
    pub(super) shown: u64,
    /// The highest of the node's renewals that was answered.
    newest: u64,
    /// The node's newest answered renewals, and the time of each answer.
    answered: VecDeque<(u64, Timestamp)>,
    /// The node was certainly alive after this time: it has shown an answer given then (trap 42).
    pub(super) proven: Timestamp,
    /// The time of the first answer that the node has not shown yet.
    pub(super) unshown: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LastReport {
    pub(super) report: Report,
    pub(super) moved: Timestamp,
    /// When the member first reported that this epoch is open.
    pub(super) opened: Timestamp,
}

impl KnownNode {
    pub(super) fn new(founder: NodeInfo, now: Timestamp) -> Self {
        Self {
            founder,
            first: now,
            heard: now,
            applied: LogIndex(0),
            out: Timestamp::ZERO,
            leaver: Leaver::default(),
            promotions: Vec::new(),
            told: BTreeMap::new(),
            holds: BTreeMap::new(),
            loads: false,
            shown: 0,
            newest: 0,
            answered: VecDeque::new(),
            proven: Timestamp::ZERO,
            unshown: None,
        }
    }

    /// After a pause of the leader no earlier answer proves that the node is alive.
    pub(super) fn wake(&mut self, now: Timestamp) {
        self.answered.clear();
        self.unshown = None;
        self.leaver.wake(now);
    }

    pub(super) fn on_renewal(&mut self, now: Timestamp, renewal: Renewal, guards: Guards) {
        let Renewal { answered, me, applied, leave, promotions, reports, holds, loads, .. } = renewal;
        self.heard = now;
        self.applied = self.applied.max(applied);
        let is_fresh = self.shows(answered);
        self.founder = me;
        self.leaver.on_renewal(now, leave, is_fresh, guards);
        self.reports(now, reports);
        self.holds = holds.into_iter().map(|held| (held.chain, held)).collect();
        if std::mem::replace(&mut self.loads, loads) {
            // The node reports its holdings only from now on, so the wait for other stores begins now.
            self.first = now;
        }
        // An answer given before this term doesn't acknowledge a request of this leader (trap 55).
        self.shown = if is_fresh { answered } else { 0 };
        if !allows!(guards, PromoteInAnyEpoch) {
            self.promotions.clear();
        }
        self.promotions.extend(promotions);
    }

    fn reports(&mut self, now: Timestamp, reports: Vec<Report>) {
        let before = std::mem::take(&mut self.told);
        let state = |report: &Report| (report.epoch, report.open, report.held, report.watermark);
        for report in reports {
            let known = before.get(&report.chain);
            let moved = known.filter(|told| state(&told.report) == state(&report)).map_or(now, |told| told.moved);
            let same = |told: &&LastReport| told.report.epoch == report.epoch && told.report.open && report.open;
            let opened = known.filter(same).map_or(now, |told| told.opened);
            self.told.insert(report.chain, LastReport { report, moved, opened });
        }
    }

    pub(super) fn answered(&mut self, now: Timestamp, number: u64) {
        self.unshown.get_or_insert(now);
        self.answered.push_back((number, now));
        if self.answered.len() > REMEMBERED_ANSWERS {
            self.answered.pop_front();
        }
    }

    /// The node has shown the answer to its renewal `number`. Returns whether this leader gave that answer in this
    /// term.
    fn shows(&mut self, number: u64) -> bool {
        let Some(&(_, at)) = self.answered.iter().find(|&&(answered, _)| answered == number) else { return false };
        self.proven = self.proven.max(at);
        self.unshown = self.answered.iter().map(|&(_, at)| at).find(|&at| at > self.proven);
        true
    }

    /// Records that the node's renewal `number` is answered. Returns whether it is the newest one.
    pub(super) fn is_newest(&mut self, number: u64) -> bool {
        let is_newest = number > self.newest;
        self.newest = self.newest.max(number);
        is_newest
    }
}
