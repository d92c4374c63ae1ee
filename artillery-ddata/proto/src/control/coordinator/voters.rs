//! Who keeps the log: an odd number of nodes that live, and nobody who has said that it goes.

use std::{collections::BTreeSet, time::Duration};

use super::{Coordinator, Leading, Output, Seen};
use crate::{
    MemberId, Timestamp,
    control::{
        Founder,
        log::{Configs, Term},
    },
};

/// A voter that was not heard of for so many times the suspicion is replaced.
const PATIENCE: u32 = 4;

/// A node that lives shows an answer within so many times the suspicion.
const PROOF: u32 = 2;

/// A node that keeps the log, and was told that its chains end, is gone after so many leases unless it is only drained.
const ENDS: u32 = 2;

impl Coordinator {
    pub(super) fn keep_voters(&mut self, now: Timestamp, term: Term) {
        let Some(voters) = self.new_voters(now) else { return };
        if let Some(leading) = &mut self.leading {
            leading.sets_voters = true;
            leading.added = voters.difference(&self.voters).copied().collect();
        }
        self.outputs.push_back(Output::SetVoters { term, voters });
    }

    fn new_voters(&self, now: Timestamp) -> Option<BTreeSet<MemberId>> {
        let may_set = |leading: &&Leading| !leading.changes_voters(now);
        let leading = self.leading.as_ref().filter(may_set).filter(|_| !self.voters.is_empty())?;
        // This leader has heard that its chains end. The others can hear the same only while it keeps the log.
        if self.is_ending(leading, self.me) {
            return None;
        }
        if let Some(asked) = self.left_since(leading) {
            return self.without_leavers(now, leading, asked);
        }
        let patience = self.settings.suspect * PATIENCE;
        // Before that, whoever wasn't heard of may not have had the time to speak.
        if now - leading.since < patience {
            return None;
        }
        let lives = |id| self.lived_since(leading, id, |proven| now - proven < self.settings.suspect * PROOF);
        let there =
            |id: &MemberId| self.can_keep(leading, *id, now, patience) && (self.voters.contains(id) || lives(*id));
        let others = wanted(&self.configs, &self.voters, Some(self.me), self.settings.max_voters, there)?;
        (is_majority(&self.voters, lives) && is_majority(&others, lives)).then_some(others)
    }

    fn asks_to_leave(&self, id: MemberId) -> bool {
        let seen = self.leading.as_ref().and_then(|leading| leading.nodes.get(&id));
        seen.is_some_and(|seen| seen.leaver.is_asked())
    }

    /// Whether a node goes. It stays until its chains go on without it: it may have to stay.
    fn goes(&self, id: MemberId) -> bool {
        self.asks_to_leave(id) && !self.configs.names(id)
    }

    /// Whether a node may be gone at any moment, since it was told that its chains end. If it shows that it has heard that, it is
    /// only drained; one that keeps the log stays for a while in any case.
    fn is_ending(&self, leading: &Leading, id: MemberId) -> bool {
        let stays = if self.voters.contains(&id) { self.settings.lease * ENDS } else { Duration::ZERO };
        let ends = |seen: &Seen| seen.leaver.ends.is_some_and(|since| seen.proven < since + stays);
        leading.nodes.get(&id).is_some_and(ends)
    }

    /// When the last of the voters asked that go, if any do.
    fn left_since(&self, leading: &Leading) -> Option<Timestamp> {
        let leavers = self.voters.iter().filter(|&&id| self.goes(id) && !allows!(self.settings.guards, KeepLeavers));
        leavers.filter_map(|id| leading.nodes.get(id)).map(|seen| seen.leaver.asked).max()
    }

    /// Whether a node has shown an answer that was given at a moment which will do.
    fn lived_since(&self, leading: &Leading, id: MemberId, will_do: impl Fn(Timestamp) -> bool) -> bool {
        id == self.me || leading.nodes.get(&id).is_some_and(|seen| will_do(seen.proven))
    }

    /// Those that keep the log when some go: an odd number of nodes that have lived since that was asked for. A set with a
    /// dead majority never confirms anything, and neither does the change to it (trap 60): so a majority of those that keep
    /// the log now must have lived since, too. As long as others may yet show that they live there is no hurry.
    fn without_leavers(&self, now: Timestamp, leading: &Leading, asked: Timestamp) -> Option<BTreeSet<MemberId>> {
        let patience = self.settings.suspect * PATIENCE;
        let lived = |id| {
            self.lived_since(leading, id, |proven| proven >= asked)
                || (allows!(self.settings.guards, KeepUnproven) && self.can_keep(leading, id, now, patience))
        };
        let heard = |id| leading.nodes.get(&id).map_or(leading.since, |seen| seen.heard.max(leading.since));
        let may_show = |id| !self.goes(id) && !lived(id) && now - heard(id) < self.settings.suspect;
        let known = self.configs.nodes().map(|founder| founder.id).filter(|id| !self.voters.contains(id));
        let others = self.voters.iter().copied().chain(known).filter(|&id| id != self.me);
        let all: Vec<_> = [self.me].into_iter().chain(others).collect();
        let waits = now - asked < self.settings.suspect * PROOF && all.iter().any(|&id| may_show(id));
        if waits || !is_majority(&self.voters, lived) {
            return None;
        }
        let stays = |id| !self.goes(id) && !self.is_ending(leading, id);
        let mut staying: Vec<_> = all.into_iter().filter(|&id| stays(id) && lived(id)).collect();
        // A node that asks to leave, and can't yet, is better than none.
        staying.sort_by_key(|&id| id != self.me && self.asks_to_leave(id));
        let heirs = odd_number(staying.into_iter(), self.settings.max_voters);
        (!heirs.is_empty()).then_some(heirs)
    }

    /// Whether the log needs this node no more, which has said that it goes: as soon as it isn't among those that keep it,
    /// or no node stays that could, nor may come back (trap 69). While a member is there that leaves too, the log has to say to
    /// it what becomes of its chains.
    pub(super) fn releases(&self, now: Timestamp, id: MemberId) -> bool {
        let Some(leading) = &self.leading else { return false };
        let patience = self.settings.suspect * PATIENCE;
        let can_keep = |founder: &Founder| self.can_keep(leading, founder.id, now, patience);
        let none_stays = || {
            let view = leading.view(now, self.me, &self.settings, &self.outside);
            let is_heard = |seen: &Seen| now - seen.heard < self.settings.suspect;
            let is_member = |(&other, seen): (&MemberId, _)| other != id && self.configs.names(other) && is_heard(seen);
            let none_can = !self.configs.nodes().any(can_keep) && !leading.nodes.iter().any(is_member);
            let all_go = self.voters.iter().all(|&id| self.goes(id)) && !leading.changes_voters(now);
            all_go && none_can && !view.may_come_back(&self.configs, &self.voters, id)
        };
        let may_vote = self.voters.contains(&id) || leading.is_added(now, id);
        self.asks_to_leave(id) && (!may_vote || none_stays())
    }

    /// Whether the log keeps a quorum when any one node is stopped: nodes that were heard of a moment ago are a majority of those
    /// that keep it, and no others should. A dead one counts for nothing where nobody can take its place.
    pub(super) fn has_voters(&self, now: Timestamp) -> bool {
        let Some(leading) = &self.leading else { return false };
        let there = |id: &MemberId| self.can_keep(leading, *id, now, self.settings.suspect);
        let others = wanted(&self.configs, &self.voters, Some(self.me), self.settings.max_voters, there);
        others.is_none() && is_majority(&self.voters, |id| id == self.me || there(&id))
    }

    /// Whether a node can keep the log: it was heard of within `patience`, and stays.
    fn can_keep(&self, leading: &Leading, id: MemberId, now: Timestamp, patience: Duration) -> bool {
        let stays = !self.goes(id) && (self.voters.contains(&id) || !self.asks_to_leave(id));
        stays && leading.nodes.get(&id).is_some_and(|seen| now - seen.heard < patience)
    }
}

impl Leading {
    /// Whether a change of those that keep the log is under way, or the log may not have told yet what came of it.
    pub(super) fn changes_voters(&self, now: Timestamp) -> bool {
        self.sets_voters || now < self.voters_pause
    }

    /// Whether this node may have come to keep the log a moment ago.
    pub(super) fn is_added(&self, now: Timestamp, id: MemberId) -> bool {
        self.changes_voters(now) && self.added.contains(&id)
    }
}

fn is_majority(of: &BTreeSet<MemberId>, counts: impl Fn(MemberId) -> bool) -> bool {
    of.iter().filter(|&&id| counts(id)).count() * 2 > of.len()
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
