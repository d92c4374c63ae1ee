//! The voters of the log's group: an odd number of living nodes, none of which leaves permanently.
//!
//! Nodes that die soon after their start must not end the quorum (trap 89). So a node that isn't one of the first
//! voters gets no vote before `voter_age`, unless it takes the place of its own former incarnation; the set doesn't
//! grow while a voter is dead; and of living voters the oldest stay.

use std::{collections::BTreeSet, time::Duration};

use super::{Coordinator, CoordinatorOutput, KnownNode, LeaderTerm};
use crate::{
    MemberId, Timestamp,
    control::{
        NodeInfo,
        log::{Configs, Term},
    },
};

/// A voter is replaced after this many times `suspect` without a message.
const REPLACE_SUSPECTS: u32 = 4;

/// A living node shows an answer within this many times `suspect`.
const PROOF_SUSPECTS: u32 = 2;

/// With fewer voters the log doesn't survive the loss of any of them.
const MIN_VOTERS: usize = 3;

/// A voter whose chains end with it stays for this many leases after that notice; then it ends, unless it is only
/// drained.
const LEAVING_LEASES: u32 = 2;

impl Coordinator {
    pub(super) fn keep_voters(&mut self, now: Timestamp, term: Term) {
        let Some(voters) = self.new_voters(now) else { return };
        if let Some(leading) = &mut self.leading {
            leading.sets_voters = true;
            leading.added = voters.difference(&self.voters).copied().collect();
        }
        self.outputs.push_back(CoordinatorOutput::SetVoters { term, voters });
    }

    fn new_voters(&self, now: Timestamp) -> Option<BTreeSet<MemberId>> {
        let may_set = |leading: &&LeaderTerm| !leading.changes_voters(now);
        let leading = self.leading.as_ref().filter(may_set).filter(|_| !self.voters.is_empty())?;
        // This leader leaves, and its chains end with it. The others learn of their own end only while it keeps the
        // log.
        if self.is_ending(leading, self.me) {
            return None;
        }
        if let Some(asked) = self.left_since(leading) {
            return self.without_leavers(now, leading, asked);
        }
        let patience = self.settings.suspect * REPLACE_SUSPECTS;
        // Early in the term a living voter may not have had time to renew.
        if now - leading.since < patience {
            return None;
        }
        let lives = |id| self.lived_since(leading, id, |proven| now - proven < self.settings.suspect * PROOF_SUSPECTS);
        let there = |id: &MemberId| match self.voters.contains(id) {
            true => self.can_keep(leading, *id, now, patience) || self.will_return(leading, *id, now),
            false => {
                let is_ready = self.is_of_age(leading, *id, now) && leading.answers_lately(now, *id, patience);
                self.can_keep(leading, *id, now, patience) && lives(*id) && is_ready
            }
        };
        let others = self.wanted(leading, there)?;
        (is_majority(&self.voters, lives) && is_majority(&others, lives)).then_some(others)
    }

    /// Whether a node has been renewing for `voter_age`, or has voted before. A node that takes the place of its own
    /// former incarnation doesn't wait: a former incarnation that is still a voter is dead, and one that left on
    /// request didn't crash.
    fn is_of_age(&self, leading: &LeaderTerm, id: MemberId, now: Timestamp) -> bool {
        let has_vote = || self.voters.iter().any(|voter| voter.node == id.node);
        let left = || {
            let former = leading.nodes.iter().filter(|(other, _)| other.node == id.node && **other != id);
            former.into_iter().any(|(_, seen)| seen.leaver.is_asked())
        };
        let lived = leading.nodes.get(&id).is_some_and(|seen| now - seen.first >= self.settings.voter_age);
        lived || self.voted.contains(&id) || has_vote() || left() || allows!(self.settings.guards, VoteYoung)
    }

    fn wanted(&self, leading: &LeaderTerm, there: impl Fn(&MemberId) -> bool) -> Option<BTreeSet<MemberId>> {
        let first = |id: &MemberId| leading.nodes.get(id).map(|seen| seen.first);
        let now = self.awake;
        let lives = |id| self.lived_since(leading, id, |proven| now - proven < self.settings.suspect * PROOF_SUSPECTS);
        let grows = self.voters.iter().all(|&id| lives(id)) || allows!(self.settings.guards, VoteYoung);
        wanted(&self.configs, &self.voters, Some(self.me), self.settings.max_voters, grows, there, first)
    }

    fn asks_to_leave(&self, id: MemberId) -> bool {
        let seen = self.leading.as_ref().and_then(|leading| leading.nodes.get(&id));
        seen.is_some_and(|seen| seen.leaver.is_asked())
    }

    /// Whether a node leaves permanently and no longer has a place in a chain. Until then it may have to stay.
    fn goes(&self, id: MemberId) -> bool {
        let seen = self.leading.as_ref().and_then(|leading| leading.nodes.get(&id));
        seen.is_some_and(|seen| seen.leaver.said.is_for_good()) && !self.configs.names(id)
    }

    /// Whether a voter has left its chains and will return: it keeps its vote until it has been away for `forget`. Its
    /// next incarnation may be known here before it renews. A new leader doesn't know that it will return, and treats
    /// it as dead.
    fn will_return(&self, leading: &LeaderTerm, id: MemberId, now: Timestamp) -> bool {
        let mut lives = leading.nodes.iter().filter(|(life, _)| life.shares_store(id));
        let last = lives.next_back();
        last.is_some_and(|(_, seen)| seen.leaver.returns() && now - seen.heard < self.settings.forget)
    }

    /// Whether a node may end at any time, because it was notified that its chains end. If it shows a later answer, it
    /// is only drained. A voter stays for [`LEAVING_LEASES`] in any case, so its answer must be later by that time.
    fn is_ending(&self, leading: &LeaderTerm, id: MemberId) -> bool {
        let stays = if self.voters.contains(&id) { self.settings.lease * LEAVING_LEASES } else { Duration::ZERO };
        let ends = |seen: &KnownNode| seen.leaver.ends.is_some_and(|since| seen.proven < since + stays);
        leading.nodes.get(&id).is_some_and(ends)
    }

    /// When the latest of the leaving voters asked to leave, if any.
    fn left_since(&self, leading: &LeaderTerm) -> Option<Timestamp> {
        let leavers = self.voters.iter().filter(|&&id| self.goes(id) && !allows!(self.settings.guards, KeepLeavers));
        leavers.filter_map(|id| leading.nodes.get(id)).map(|seen| seen.leaver.asked).max()
    }

    /// Whether a node has shown an answer whose time satisfies `will_do`.
    fn lived_since(&self, leading: &LeaderTerm, id: MemberId, will_do: impl Fn(Timestamp) -> bool) -> bool {
        id == self.me || leading.nodes.get(&id).is_some_and(|seen| will_do(seen.proven))
    }

    /// The voters that remain when some leave: an odd number of nodes that were alive after the request to leave. A
    /// dead majority never confirms anything, including its own replacement (trap 60). So a majority of the current
    /// voters must have been alive since then too. The change waits a limited time for nodes that may still prove that
    /// they are alive.
    fn without_leavers(&self, now: Timestamp, leading: &LeaderTerm, asked: Timestamp) -> Option<BTreeSet<MemberId>> {
        let patience = self.settings.suspect * REPLACE_SUSPECTS;
        let lived = |id| {
            self.lived_since(leading, id, |proven| proven >= asked)
                || (allows!(self.settings.guards, KeepUnproven) && self.can_keep(leading, id, now, patience))
        };
        let heard = |id| leading.nodes.get(&id).map_or(leading.since, |seen| seen.heard.max(leading.since));
        let may_show = |id| !self.goes(id) && !lived(id) && now - heard(id) < self.settings.suspect;
        let known = self.configs.nodes().map(|founder| founder.id).filter(|id| !self.voters.contains(id));
        let known =
            known.filter(|&id| self.is_of_age(leading, id, now) || self.voters.iter().all(|&voter| self.goes(voter)));
        let others = self.voters.iter().copied().chain(known).filter(|&id| id != self.me);
        let all: Vec<_> = [self.me].into_iter().chain(others).collect();
        let waits = now - asked < self.settings.suspect * PROOF_SUSPECTS && all.iter().any(|&id| may_show(id));
        if waits || !is_majority(&self.voters, lived) {
            return None;
        }
        let stays = |id| !self.goes(id) && !self.is_ending(leading, id);
        let mut staying: Vec<_> = all.into_iter().filter(|&id| stays(id) && lived(id)).collect();
        // A node that asks to leave, but can't yet, is the last choice.
        staying.sort_by_key(|&id| id != self.me && self.asks_to_leave(id));
        let heirs = odd_number(staying.into_iter(), self.settings.max_voters);
        (!heirs.is_empty()).then_some(heirs)
    }

    /// Whether the log can do without this leaving node: it is no voter, or no node stays or may come back that could
    /// be one (trap 69). While another leaving member is alive, the log must still inform it of the effect on its
    /// chains.
    pub(super) fn releases(&self, now: Timestamp, id: MemberId) -> bool {
        let Some(leading) = &self.leading else { return false };
        let patience = self.settings.suspect * REPLACE_SUSPECTS;
        let can_keep = |founder: &NodeInfo| self.can_keep(leading, founder.id, now, patience);
        let none_stays = || {
            let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
            let is_heard = |seen: &KnownNode| now - seen.heard < self.settings.suspect;
            let is_member = |(&other, seen): (&MemberId, _)| other != id && self.configs.names(other) && is_heard(seen);
            let none_can = !self.configs.nodes().any(can_keep) && !leading.nodes.iter().any(is_member);
            let all_go = self.voters.iter().all(|&id| self.goes(id)) && !leading.changes_voters(now);
            all_go && none_can && !view.may_come_back(&self.configs, &self.voters, id)
        };
        if leading.nodes.get(&id).is_some_and(|seen| seen.leaver.returns()) {
            return !self.configs.names(id) && self.is_known_to_members(leading);
        }
        let may_vote = self.voters.contains(&id) || leading.is_added(now, id);
        self.asks_to_leave(id) && (!may_vote || none_stays())
    }

    /// Whether all serving members have applied the newest configurations. A leader that leaves earlier may leave no
    /// node behind that can send them.
    fn is_known_to_members(&self, leading: &LeaderTerm) -> bool {
        let acts = |id| leading.nodes.get(&id).is_some_and(|seen| seen.applied >= self.configs.applied());
        self.configs.iter().flat_map(|config| config.serving()).all(acts)
    }

    /// Whether the log keeps a quorum when any one node is stopped: most voters have renewed recently, and no better
    /// set of voters is needed. A dead voter is tolerated if no node can take its place, now or after `voter_age`.
    /// Three living voters are enough, even if five are wanted.
    pub(super) fn has_voters(&self, now: Timestamp) -> bool {
        let Some(leading) = &self.leading else { return false };
        let there = |id: &MemberId| self.can_keep(leading, *id, now, self.settings.suspect);
        let stays = |id: &MemberId| there(id) || (self.voters.contains(id) && self.will_return(leading, *id, now));
        let is_enough = self.voters.len() >= MIN_VOTERS && self.voters.iter().all(|id| *id == self.me || stays(id));
        (is_enough || self.wanted(leading, stays).is_none())
            && is_majority(&self.voters, |id| id == self.me || there(&id))
    }

    /// Whether a node can be a voter: it has renewed within `patience`, and stays.
    fn can_keep(&self, leading: &LeaderTerm, id: MemberId, now: Timestamp, patience: Duration) -> bool {
        let stays = !self.goes(id) && (self.voters.contains(&id) || !self.asks_to_leave(id));
        stays && leading.nodes.get(&id).is_some_and(|seen| now - seen.heard < patience)
    }
}

impl LeaderTerm {
    /// Whether the node has answered a message of the log that was sent within `patience`. A voter that this leader
    /// can't reach would delay each entry that needs it for a majority.
    fn answers_lately(&self, now: Timestamp, id: MemberId, patience: Duration) -> bool {
        let mut sent = self.answered.iter().filter(|(other, _)| other.shares_store(id));
        sent.any(|(_, &sent)| now - sent < patience)
    }

    /// Whether a change of voters is in flight, or the log may not show its outcome yet.
    pub(super) fn changes_voters(&self, now: Timestamp) -> bool {
        self.sets_voters || now < self.voters_pause
    }

    /// Whether this node may just have become a voter.
    pub(super) fn is_added(&self, now: Timestamp, id: MemberId) -> bool {
        self.changes_voters(now) && self.added.contains(&id)
    }
}

pub(super) fn is_majority(of: &BTreeSet<MemberId>, counts: impl Fn(MemberId) -> bool) -> bool {
    of.iter().filter(|&&id| counts(id)).count() * 2 > of.len()
}

/// The longest prefix of `ids` with an odd number of at most `most`. An even number doesn't survive more losses than the
/// odd one below it.
fn odd_number(ids: impl Iterator<Item = MemberId>, most: usize) -> BTreeSet<MemberId> {
    let mut first: Vec<_> = ids.take(most.max(1)).collect();
    if first.len().is_multiple_of(2) {
        first.pop();
    }
    first.into_iter().collect()
}

/// The voters that should keep the log, if they differ from the current ones: an odd number of nodes, with `me` first,
/// then living voters, then other nodes, each from the oldest, by the time of their `first` renewal. A change to fewer
/// than three gains nothing. Unless it `grows`, the set gets no larger.
pub(super) fn wanted(
    configs: &Configs,
    voters: &BTreeSet<MemberId>,
    me: Option<MemberId>,
    most: usize,
    grows: bool,
    there: impl Fn(&MemberId) -> bool,
    first: impl Fn(&MemberId) -> Option<Timestamp>,
) -> Option<BTreeSet<MemberId>> {
    let known = |id: &MemberId| configs.node(*id).is_some();
    let oldest = |ids: &mut Vec<MemberId>| ids.sort_by_key(|id| first(id).unwrap_or(Timestamp::MAX));
    let mut staying: Vec<_> = voters.iter().copied().filter(|id| Some(*id) != me && there(id) && known(id)).collect();
    oldest(&mut staying);
    let others = configs.nodes().map(|founder| founder.id).filter(|id| !voters.contains(id) && there(id));
    let mut others: Vec<_> = others.filter(|id| Some(*id) != me).collect();
    oldest(&mut others);
    let all_there = voters.iter().all(|id| Some(*id) == me || there(id));
    let most = if grows { most } else { most.min(voters.len().max(MIN_VOTERS)) };
    let wanted = odd_number(me.into_iter().chain(staying).chain(others), most);
    let better = wanted.len() >= MIN_VOTERS && (wanted.len() > voters.len() || !all_there);
    (better && wanted != *voters).then_some(wanted)
}

/// A report to operators about the voters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogWarning {
    /// If one more voter is lost, no configuration can change.
    AtRisk { missing: BTreeSet<MemberId> },
    /// A majority of the voters is silent: no configuration can change.
    Lost { missing: BTreeSet<MemberId> },
    /// The log survives the loss of another voter again.
    Safe,
}

impl Coordinator {
    /// Reports dead voters that have not been replaced.
    pub(super) fn warn_of_voters(&mut self, now: Timestamp) {
        let Some(leading) = &mut self.leading else { return };
        let patience = self.settings.suspect * REPLACE_SUSPECTS;
        let (me, voters) = (self.me, &self.voters);
        let view = leading.view(now, me, voters, &self.settings, &self.outside);
        let is_missing = |id: MemberId| id != me && now - view.last_heard(id) >= patience;
        let missing: BTreeSet<_> = voters.iter().copied().filter(|&id| is_missing(id)).collect();
        let there = voters.len() - missing.len();
        let warning = match () {
            () if missing.is_empty() || there.saturating_sub(1) * 2 > voters.len() => None,
            () if there * 2 > voters.len() => Some(LogWarning::AtRisk { missing }),
            () => Some(LogWarning::Lost { missing }),
        };
        if warning == leading.warned {
            return;
        }
        leading.warned.clone_from(&warning);
        self.outputs.push_back(CoordinatorOutput::Warn(warning.unwrap_or(LogWarning::Safe)));
    }
}
