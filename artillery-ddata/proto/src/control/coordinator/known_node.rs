//! A node, its reports, and its progress in leaving, as known to this term's leader.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    ChainId, Timestamp,
    control::{
        NodeInfo,
        log::LogIndex,
        message::{Leave, Promotion, Renewal, Report, StoreHolding},
    },
    guards::Guards,
};

const REMEMBERED_ANSWERS: usize = 16;

/// A node that has renewed in this term.
#[derive(Clone, Debug)]
pub(super) struct KnownNode {
    pub(super) founder: NodeInfo,
    /// When it first renewed in this term or, if it was loading its directory then, reported that the directory is
    /// loaded.
    pub(super) first: Timestamp,
    pub(super) heard: Timestamp,
    /// The last log entry that it has reported as applied.
    pub(super) applied: LogIndex,
    /// When the leases granted by this leader have certainly expired.
    pub(super) out: Timestamp,
    pub(super) leaver: Leaver,
    pub(super) promotions: Vec<Promotion>,
    pub(super) told: BTreeMap<ChainId, LastReport>,
    /// Its copies of chains that it doesn't serve, as reported by its last renewal.
    pub(super) holds: BTreeMap<ChainId, StoreHolding>,
    pub(super) loads: bool,
    /// The number of the answer, given by this leader in this term, that the last renewal shows; 0: none.
    pub(super) shown: u64,
    /// The highest number of the node's answered renewals.
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
    /// When the member first reported that this epoch is open; if it isn't, the time of the last report.
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

    /// The node has shown the answer to its renewal `number`. Returns whether this leader remembers that answer from
    /// this term.
    fn shows(&mut self, number: u64) -> bool {
        let Some(&(_, at)) = self.answered.iter().find(|&&(answered, _)| answered == number) else { return false };
        self.proven = self.proven.max(at);
        self.unshown = self.answered.iter().map(|&(_, at)| at).find(|&at| at > self.proven);
        true
    }

    /// The node gets a lease that has certainly expired at `out`.
    pub(super) fn granted(&mut self, out: Timestamp) {
        self.out = self.out.max(out);
    }

    /// Records that the node's renewal `number` is answered. Returns whether it is the newest one.
    pub(super) fn is_newest(&mut self, number: u64) -> bool {
        let is_newest = number > self.newest;
        self.newest = self.newest.max(number);
        is_newest
    }
}

/// A node's progress in leaving, as known to this term's leader.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Leaver {
    pub(super) said: Leave,
    /// When the leader received the request to leave, or last woke from a pause, whichever is later.
    pub(super) asked: Timestamp,
    /// When the leader received the resignation.
    pub(super) resigned: Timestamp,
    /// The resignation was made, or confirmed by the node, in this leader's term.
    pub(super) vouched: bool,
    /// This leader has agreed: the node may have resigned already.
    pub(super) agreed: bool,
    /// Since when this leader reports that the node's chains end with it.
    pub(super) ends: Option<Timestamp>,
}

impl Leaver {
    /// `is_fresh`: the renewal shows an answer of this term.
    ///
    /// A late message may report the resignation of a node that serves again with a running lease. The removal would
    /// not wait for that lease (trap 62). So a value below the highest one is ignored. A resignation from before this
    /// term, which may have been withdrawn under another leader, is accepted only once the node confirms it.
    pub(super) fn on_renewal(&mut self, now: Timestamp, said: Leave, is_fresh: bool, guards: Guards) {
        if said < self.said && !allows!(guards, TakeOldResignation) {
            return;
        }
        if said.number != self.said.number {
            *self = Self::default();
        }
        if said.is_asked() && !self.said.is_asked() {
            self.asked = now;
        }
        if said.has_resigned() && !self.said.has_resigned() {
            self.resigned = now;
        }
        self.said = said;
        self.vouched |= said.has_resigned() && (is_fresh || allows!(guards, TakeUnvouchedResignation));
    }

    /// The leader sends the node its next step.
    pub(super) fn answered(&mut self, step: Leave) {
        self.agreed |= step.has_resigned();
    }

    /// The leader reports to the node whether its chains end with it.
    pub(super) fn farewell(&mut self, now: Timestamp, ends: bool) {
        self.ends = ends.then(|| self.ends.unwrap_or(now));
    }

    /// Treats the request as new after a pause of the leader: other members may have died in the pause, so the answers
    /// that they had shown before prove nothing.
    pub(super) fn wake(&mut self, now: Timestamp) {
        if self.is_asked() {
            self.asked = now;
        }
    }

    pub(super) fn is_asked(&self) -> bool {
        self.said.is_asked()
    }

    /// Whether the node will return, and stays a node and a voter until then.
    pub(super) fn returns(&self) -> bool {
        self.is_asked() && self.said.returns
    }

    /// Whether the node has certainly resigned, and so uses no lease.
    pub(super) fn has_resigned(&self) -> bool {
        self.said.has_resigned() && self.vouched
    }
}
