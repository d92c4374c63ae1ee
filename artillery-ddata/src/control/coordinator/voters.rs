//! Who keeps the log: an odd number of nodes that live, and nobody who has said that it goes.

use std::{collections::BTreeSet, time::Duration};

use super::{Coordinator, Leading, Mutant, Output};
use crate::{
    MemberId, Timestamp,
    control::log::{Configs, Term},
};

/// A voter that was not heard of for so many times the suspicion is replaced.
const PATIENCE: u32 = 4;

impl Coordinator {
    pub(super) fn keep_voters(&mut self, now: Timestamp, term: Term) {
        let Some(voters) = self.new_voters(now) else { return };
        if let Some(leading) = &mut self.leading {
            leading.sets_voters = true;
        }
        self.outputs.push_back(Output::SetVoters { term, voters });
    }

    fn new_voters(&self, now: Timestamp) -> Option<BTreeSet<MemberId>> {
        let may_set = |leading: &&Leading| !leading.sets_voters && now >= leading.voters_pause;
        let leading = self.leading.as_ref().filter(may_set).filter(|_| !self.voters.is_empty())?;
        let patience = self.settings.suspect * PATIENCE;
        let there = |id: &MemberId| leading.can_keep(*id, now, patience);
        let (me, most) = (Some(self.me).filter(|&me| !self.goes(me)), self.settings.max_voters);
        // Before that, whoever wasn't heard of may not have had the time to speak.
        let late = now - leading.since >= patience;
        let others = late.then(|| wanted(&self.configs, &self.voters, me, most, there)).flatten();
        others.or_else(|| self.without_leavers(now))
    }

    fn says_it_goes(&self, id: MemberId) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.says_it_goes(id))
    }

    /// Whether a node goes. This one stays until its chains go on without it: somebody else would have to begin that anew.
    fn goes(&self, id: MemberId) -> bool {
        self.says_it_goes(id) && (id != self.me || !self.configs.names(self.me))
    }

    /// Those of the voters that stay, if others go; where all of them go, some that never were. Where they are of an even
    /// number, as many of them have to agree as with who goes, so nothing is lost either.
    fn without_leavers(&self, now: Timestamp) -> Option<BTreeSet<MemberId>> {
        let staying: BTreeSet<_> = self.voters.iter().copied().filter(|&id| !self.goes(id)).collect();
        if staying.len() == self.voters.len() || self.is(Mutant::KeepLeavers) {
            return None;
        }
        let heirs = if staying.is_empty() { self.heirs(now) } else { staying };
        (!heirs.is_empty()).then_some(heirs)
    }

    /// Nodes that are there and stay, as many as can keep the log.
    fn heirs(&self, now: Timestamp) -> BTreeSet<MemberId> {
        let Some(leading) = &self.leading else { return BTreeSet::new() };
        let patience = self.settings.suspect * PATIENCE;
        let known = self.configs.nodes().map(|founder| founder.id);
        let others = known.filter(|&id| id != self.me && leading.can_keep(id, now, patience));
        odd_number(others, self.settings.max_voters)
    }

    /// Whether the log needs this node no more, which has said that it goes: as soon as it isn't among those that keep it,
    /// or nobody stays who could.
    pub(super) fn releases(&self, now: Timestamp, id: MemberId) -> bool {
        let nobody_stays = || self.voters.iter().all(|&id| self.says_it_goes(id)) && self.heirs(now).is_empty();
        self.says_it_goes(id) && (!self.voters.contains(&id) || nobody_stays())
    }

    /// Whether all that keep the log were heard of a moment ago, and no others should.
    pub(super) fn has_voters(&self, now: Timestamp) -> bool {
        let Some(leading) = &self.leading else { return false };
        let there = |id: &MemberId| leading.can_keep(*id, now, self.settings.suspect);
        let others = wanted(&self.configs, &self.voters, Some(self.me), self.settings.max_voters, there);
        others.is_none() && self.voters.iter().all(|id| *id == self.me || there(id))
    }
}

impl Leading {
    fn says_it_goes(&self, id: MemberId) -> bool {
        self.nodes.get(&id).is_some_and(|seen| seen.leaving)
    }

    /// Whether a node can keep the log: it was heard of within `patience`, and stays.
    fn can_keep(&self, id: MemberId, now: Timestamp, patience: Duration) -> bool {
        self.nodes.get(&id).is_some_and(|seen| now - seen.heard < patience && !seen.leaving)
    }
}

/// The first of `ids`, at most so many and an odd number: one more than an even number lets as many be lost.
fn odd_number(ids: impl Iterator<Item = MemberId>, most: usize) -> BTreeSet<MemberId> {
    let mut first: Vec<_> = ids.take(most.max(1)).collect();
    if first.len().is_multiple_of(2) {
        first.pop();
    }
    first.into_iter().collect()
}

/// Those who should keep the log, if they aren't those that do: `me`, voters that are there, then others, an odd number. With
/// fewer than three of them nothing is gained by a change.
pub(super) fn wanted(
    configs: &Configs,
    voters: &BTreeSet<MemberId>,
    me: Option<MemberId>,
    most: usize,
    there: impl Fn(&MemberId) -> bool,
) -> Option<BTreeSet<MemberId>> {
    let known = |id: &MemberId| configs.node(*id).is_some();
    let staying = voters.iter().copied().filter(|id| Some(*id) != me && there(id) && known(id));
    let others = configs.nodes().map(|founder| founder.id).filter(|id| !voters.contains(id) && there(id));
    let wanted = odd_number(me.into_iter().chain(staying).chain(others), most);
    let all_there = voters.iter().all(|id| Some(*id) == me || there(id));
    let better = wanted.len() >= 3 && (wanted.len() > voters.len() || !all_there);
    (better && wanted != *voters).then_some(wanted)
}
