//! Who keeps the log: an odd number of nodes that live.

use std::{collections::BTreeSet, time::Duration};

use super::{Coordinator, Output, Seen};
use crate::{
    MemberId, Timestamp,
    control::log::{Configs, Term},
};

/// A voter that was not heard of for so many times the suspicion is replaced.
const PATIENCE: u32 = 4;

impl Coordinator {
    pub(super) fn keep_voters(&mut self, now: Timestamp, term: Term) {
        let Some(leading) = self.leading.as_mut().filter(|leading| !leading.sets_voters) else { return };
        let patience = self.settings.suspect * PATIENCE;
        if self.voters.is_empty() || now - leading.since < patience {
            return;
        }
        let there = |id: &MemberId| leading.nodes.get(id).is_some_and(|seen| seen.keeps(now, patience));
        let wanted = wanted(&self.configs, &self.voters, self.me, self.settings.max_voters, there);
        if let Some(voters) = wanted {
            leading.sets_voters = true;
            self.outputs.push_back(Output::SetVoters { term, voters });
        }
    }

    /// Whether all that keep the log were heard of a moment ago, and no others should.
    pub(super) fn has_voters(&self, now: Timestamp) -> bool {
        let Some(leading) = &self.leading else { return false };
        let is_there = |patience, id: &MemberId| leading.nodes.get(id).is_some_and(|seen| seen.keeps(now, patience));
        let there = |id: &MemberId| is_there(self.settings.suspect, id);
        let others = wanted(&self.configs, &self.voters, self.me, self.settings.max_voters, there);
        others.is_none() && self.voters.iter().all(|id| *id == self.me || there(id))
    }
}

impl Seen {
    fn keeps(&self, now: Timestamp, patience: Duration) -> bool {
        now - self.heard < patience && !self.leaving
    }
}

/// Those who should keep the log, if others should than do: voters that are there, then others, an odd number. With fewer
/// than three of them nothing is gained by a change.
pub(super) fn wanted(
    configs: &Configs,
    voters: &BTreeSet<MemberId>,
    me: MemberId,
    most: usize,
    there: impl Fn(&MemberId) -> bool,
) -> Option<BTreeSet<MemberId>> {
    let known = |id: &MemberId| configs.node(*id).is_some();
    let staying = voters.iter().copied().filter(|id| *id == me || (there(id) && known(id)));
    let others = configs.nodes().map(|founder| founder.id).filter(|id| !voters.contains(id) && there(id));
    let mut wanted: Vec<_> = staying.filter(|&id| id != me).chain(others).take(most.max(1) - 1).collect();
    if wanted.len() % 2 == 1 {
        wanted.pop();
    }
    wanted.push(me);
    let wanted: BTreeSet<_> = wanted.into_iter().collect();
    let all_there = voters.iter().all(|id| *id == me || there(id));
    let better = wanted.len() >= 3 && (wanted.len() > voters.len() || !all_there);
    (better && wanted != *voters).then_some(wanted)
}
