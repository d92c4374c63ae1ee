//! Who keeps the log: an odd number of nodes that live, and nobody who has said that it goes.

use std::{collections::BTreeSet, time::Duration};

use super::{Coordinator, Leading, Mutant, Output, Seen};
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
        let there = |id: &MemberId| leading.nodes.get(id).is_some_and(|seen| seen.keeps(now, patience));
        let (me, most) = (Some(self.me).filter(|&me| !self.goes(me)), self.settings.max_voters);
        // Before that, whoever wasn't heard of may not have had the time to speak.
        let late = now - leading.since >= patience;
        let others = late.then(|| wanted(&self.configs, &self.voters, me, most, there)).flatten();
        others.or_else(|| self.without_leavers(now))
    }

    /// Whether a node goes. This one stays until its chains go on without it: somebody else would have to begin that anew.
    fn goes(&self, id: MemberId) -> bool {
        let seen = self.leading.as_ref().and_then(|leading| leading.nodes.get(&id));
        seen.is_some_and(|seen| seen.leaving) && (id != self.me || !self.configs.names(self.me))
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
        let stays = |id: &MemberId| leading.nodes.get(id).is_some_and(|seen| seen.keeps(now, patience));
        let known = self.configs.nodes().map(|founder| founder.id);
        let heirs: Vec<_> = known.filter(|id| *id != self.me && stays(id)).take(self.settings.max_voters).collect();
        let odd = heirs.len() - usize::from(heirs.len().is_multiple_of(2) && !heirs.is_empty());
        heirs.into_iter().take(odd).collect()
    }

    /// Whether the log needs this node no more, which has said that it goes: as soon as it isn't among those that keep it,
    /// or nobody stays who could.
    pub(super) fn releases(&self, now: Timestamp, id: MemberId) -> bool {
        let goes =
            |id| self.leading.as_ref().and_then(|leading| leading.nodes.get(&id)).is_some_and(|seen| seen.leaving);
        let nobody_stays = || self.voters.iter().all(|&id| goes(id)) && self.heirs(now).is_empty();
        goes(id) && (!self.voters.contains(&id) || nobody_stays())
    }

    /// Whether all that keep the log were heard of a moment ago, and no others should.
    pub(super) fn has_voters(&self, now: Timestamp) -> bool {
        let Some(leading) = &self.leading else { return false };
        let is_there = |patience, id: &MemberId| leading.nodes.get(id).is_some_and(|seen| seen.keeps(now, patience));
        let there = |id: &MemberId| is_there(self.settings.suspect, id);
        let others = wanted(&self.configs, &self.voters, Some(self.me), self.settings.max_voters, there);
        others.is_none() && self.voters.iter().all(|id| *id == self.me || there(id))
    }
}

impl Seen {
    fn keeps(&self, now: Timestamp, patience: Duration) -> bool {
        now - self.heard < patience && !self.leaving
    }
}

/// Those who should keep the log, if others should than do: `me`, voters that are there, then others, an odd number. With
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
    let mut wanted: Vec<_> = me.into_iter().chain(staying).chain(others).take(most.max(1)).collect();
    if wanted.len() % 2 == 0 {
        wanted.pop();
    }
    let wanted: BTreeSet<_> = wanted.into_iter().collect();
    let all_there = voters.iter().all(|id| Some(*id) == me || there(id));
    let better = wanted.len() >= 3 && (wanted.len() > voters.len() || !all_there);
    (better && wanted != *voters).then_some(wanted)
}
