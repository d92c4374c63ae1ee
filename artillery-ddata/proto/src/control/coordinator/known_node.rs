//! A node, as known to this term's leader.

use std::collections::{BTreeMap, VecDeque};

use super::{CoordinatorSettings, leaver::Leaver, suspicion::LastReport};
use crate::{
    ChainId, Timestamp,
    control::{
        NodeInfo,
        log::LogIndex,
        message::{Promotion, StoreHolding},
    },
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
    pub(super) newest: u64,
    /// The node's newest answered renewals, and the time of each answer.
    answered: VecDeque<(u64, Timestamp)>,
    /// The node was certainly alive after this time: it has shown an answer given then (trap 42).
    pub(super) proven: Timestamp,
    /// The time of the first answer that the node has not shown yet.
    pub(super) unshown: Option<Timestamp>,
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

    pub(super) fn answered(&mut self, now: Timestamp, number: u64) {
        self.unshown.get_or_insert(now);
        self.answered.push_back((number, now));
        if self.answered.len() > REMEMBERED_ANSWERS {
            self.answered.pop_front();
        }
    }

    /// The node has shown the answer to its renewal `number`. Returns whether this leader gave that answer in this
    /// term.
    pub(super) fn shows(&mut self, number: u64) -> bool {
        let Some(&(_, at)) = self.answered.iter().find(|&&(answered, _)| answered == number) else { return false };
        self.proven = self.proven.max(at);
        self.unshown = self.answered.iter().map(|&(_, at)| at).find(|&at| at > self.proven);
        true
    }

    pub(super) fn is_gone(&self, now: Timestamp, since: Timestamp, settings: &CoordinatorSettings) -> bool {
        self.leaver.has_resigned() || now - self.heard.max(since) >= settings.suspect
    }
}
