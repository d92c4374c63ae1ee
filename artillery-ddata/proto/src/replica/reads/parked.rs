//! Reads that wait for an answer, a barrier, or a watermark.

use std::collections::{BTreeMap, BTreeSet};

use super::{lookup::Apart, rounds::Rounds};
use crate::{
    Sequence, Timestamp,
    api::{Query, ReadMode},
    replica::Token,
};

#[derive(Clone, Hash, Debug)]
pub(in crate::replica) struct PendingRead {
    pub(in crate::replica) token: Token,
    pub(in crate::replica) query: Query,
    pub(in crate::replica) mode: ReadMode,
    pub(in crate::replica) floor: Option<Sequence>,
    pub(in crate::replica) deadline: Timestamp,
}

#[derive(Clone, Hash, Debug)]
pub(super) struct Parked {
    pub(super) asked: PendingRead,
    /// The read waits for a barrier rather than a query.
    pub(super) through_chain: bool,
    pub(super) apart: Apart,
    /// The round that will serve the read, if any.
    pub(super) round: Option<u64>,
    /// The watermark that will serve the read: the newest version seen on arrival (trap 29), the read's barrier, or its
    /// session's floor.
    pub(super) watermark: Option<Sequence>,
}

#[derive(Clone, Hash, Debug, Default)]
pub(super) struct ParkedReads {
    next_id: u64,
    parked: BTreeMap<u64, Parked>,
    /// Pairs of a watermark and a read that waits for it.
    by_watermark: BTreeSet<(Sequence, u64)>,
    pub(super) queries: Rounds,
    pub(super) barriers: Rounds,
}

impl ParkedReads {
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }

    fn rounds(&mut self, through_chain: bool) -> &mut Rounds {
        if through_chain { &mut self.barriers } else { &mut self.queries }
    }

    pub(super) fn park(&mut self, parked: Parked) {
        let id = self.next_id;
        self.next_id += 1;
        if let Some(round) = parked.round {
            self.rounds(parked.through_chain).wait(round, id);
        }
        if let Some(watermark) = parked.watermark {
            self.by_watermark.insert((watermark, id));
        }
        self.parked.insert(id, parked);
    }

    pub(super) fn take(&mut self, id: u64) -> Option<Parked> {
        let parked = self.parked.remove(&id)?;
        if let Some(round) = parked.round {
            self.rounds(parked.through_chain).leave(round, id);
        }
        if let Some(watermark) = parked.watermark {
            self.by_watermark.remove(&(watermark, id));
        }
        Some(parked)
    }

    pub(super) fn take_all(&mut self) -> Vec<PendingRead> {
        let all: Vec<_> = self.parked.keys().copied().collect();
        all.into_iter().filter_map(|id| self.take(id)).map(|parked| parked.asked).collect()
    }

    pub(super) fn take_late(&mut self, now: Timestamp) -> Vec<PendingRead> {
        let late = self.parked.iter().filter(|(_, read)| read.asked.deadline <= now);
        let late: Vec<_> = late.map(|(&id, _)| id).collect();
        late.into_iter().filter_map(|id| self.take(id)).map(|parked| parked.asked).collect()
    }

    /// The reads whose watermark is at or below `upto`. They are still parked.
    pub(super) fn ready(&mut self, upto: Sequence) -> Vec<u64> {
        let later = self.by_watermark.split_off(&(upto.next(), 0));
        let ready = std::mem::replace(&mut self.by_watermark, later);
        ready.into_iter().map(|(_, id)| id).collect()
    }
}
