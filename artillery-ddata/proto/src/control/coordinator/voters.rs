//! The voters of the log's group: an odd number of living nodes, none of which leaves permanently.
//!
//! Nodes that die soon after their start must not end the quorum (trap 89). So a node that has not voted before gets no
//! vote before `voter_age`, unless it takes the place of its own former incarnation, or all voters leave; the set
//! doesn't grow while a voter is dead; and of living voters the oldest stay.

use std::{collections::BTreeSet, time::Duration};

use super::{cluster::is_majority, known_node::KnownNode, leave::may_come_back, types::LogWarning, view::View};
use crate::{
    MemberId, Timestamp,
    control::{NodeInfo, log::Configs},
};

/// A voter may be replaced after this many times `suspect` without a renewal.
const REPLACE_SUSPECTS: u32 = 4;

/// A living node shows an answer within this many times `suspect`.
const PROOF_SUSPECTS: u32 = 2;

/// With fewer voters the log doesn't survive the loss of any of them.
const MIN_VOTERS: usize = 3;

/// A voter that was notified that its chains end with it is treated as staying once it shows an answer given this many
/// leases after the notice.
const LEAVING_LEASES: u32 = 2;

/// A change of voters in flight, and the last warning.
#[derive(Clone, Default, Debug)]
pub(super) struct VoterChange {
    is_pending: bool,
    /// Nodes that the last change of voters adds. They may not know of it yet.
    added: BTreeSet<MemberId>,
    /// The earliest time for a change of voters: the log may not show the outcome of the last one yet.
    pause: Timestamp,
    warned: Option<LogWarning>,
}

impl VoterChange {
    /// Begins a change to the voters that should replace the current ones, if any.
    pub(super) fn begin(&mut self, view: View<'_>) -> Option<BTreeSet<MemberId>> {
        let voters = if self.is_running(view.now) { None } else { new_voters(view) }?;
        self.add(voters.difference(view.voters()).copied().collect());
        Some(voters)
    }

    /// A change that adds these nodes is in flight.
    pub(super) fn add(&mut self, added: BTreeSet<MemberId>) {
        (self.is_pending, self.added) = (true, added);
    }

    /// The change has ended, successfully or not.
    pub(super) fn end(&mut self, pause: Timestamp) {
        (self.is_pending, self.pause) = (false, pause);
    }

    pub(super) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Whether a change is in flight, or the log may not show its outcome yet.
    fn is_running(&self, now: Timestamp) -> bool {
        self.is_pending || now < self.pause
    }

    /// Whether node `id` may just have become a voter.
    pub(super) fn is_added(&self, now: Timestamp, id: MemberId) -> bool {
        self.is_running(now) && self.added.contains(&id)
    }

    /// The warning about dead voters that have not been replaced, if it has changed.
    pub(super) fn warning(&mut self, view: View<'_>) -> Option<LogWarning> {
        let (voters, patience) = (view.voters(), view.settings().suspect * REPLACE_SUSPECTS);
        let is_missing = |id: MemberId| id != view.me() && view.now - view.last_heard(id) >= patience;
        let missing: BTreeSet<_> = voters.iter().copied().filter(|&id| is_missing(id)).collect();
        let there = voters.len() - missing.len();
        let warning = match () {
            () if missing.is_empty() || there.saturating_sub(1) * 2 > voters.len() => None,
            () if there * 2 > voters.len() => Some(LogWarning::AtRisk { missing }),
            () => Some(LogWarning::Lost { missing }),
        };
        if warning == self.warned {
            return None;
        }
        self.warned.clone_from(&warning);
        Some(warning.unwrap_or(LogWarning::Safe))
    }
}

/// The voters that should replace the current ones, if any.
fn new_voters(view: View<'_>) -> Option<BTreeSet<MemberId>> {
    // If this leader leaves, and its chains end with it, the others learn of their own end only while it keeps the log.
    if view.voters().is_empty() || is_ending(view, view.me()) {
        return None;
    }
    if let Some(asked) = left_since(view) {
        return without_leavers(view, asked);
    }
    let patience = view.settings().suspect * REPLACE_SUSPECTS;
    // Early in the term a living voter may not have had time to renew.
    if view.age() < patience {
        return None;
    }
    let lives = |id| lived_lately(view, id);
    let there = |id: &MemberId| match view.votes(*id) {
        true => can_keep(view, *id, patience) || will_return(view, *id),
        false => {
            let is_ready = is_of_age(view, *id) && view.answers_lately(*id, patience);
            can_keep(view, *id, patience) && lives(*id) && is_ready
        }
    };
    let others = better_voters(view, there)?;
    (view.is_majority(lives) && is_majority(&others, lives)).then_some(others)
}

/// Whether a node has been renewing for `voter_age`, or has voted before. A node that takes the place of its own
/// former incarnation doesn't wait: a former incarnation that is still a voter is dead, and one that left on
/// request didn't crash.
fn is_of_age(view: View<'_>, id: MemberId) -> bool {
    let has_vote = || view.voters().iter().any(|voter| voter.node == id.node);
    let left = || {
        let former = view.nodes().iter().filter(|(other, _)| other.node == id.node && *other != id);
        former.into_iter().any(|(_, seen)| seen.leaver.is_asked())
    };
    let lived = view.node(id).is_some_and(|seen| view.now - seen.first >= view.settings().voter_age);
    lived || view.has_voted(id) || has_vote() || left() || allows!(view.guards(), VoteYoung)
}

/// Whether a node has shown a recent answer.
fn lived_lately(view: View<'_>, id: MemberId) -> bool {
    lived_since(view, id, |proven| view.now - proven < view.settings().suspect * PROOF_SUSPECTS)
}

fn better_voters(view: View<'_>, there: impl Fn(&MemberId) -> bool) -> Option<BTreeSet<MemberId>> {
    let first = |id: &MemberId| view.node(*id).map(|seen| seen.first);
    let grows = view.voters().iter().all(|&id| lived_lately(view, id)) || allows!(view.guards(), VoteYoung);
    let (me, most) = (Some(view.me()), view.settings().max_voters);
    wanted(view.configs(), view.voters(), me, most, grows, there, first)
}

/// Whether a node leaves permanently and no longer has a place in a chain. While it has one, it may have to stay.
fn goes(view: View<'_>, id: MemberId) -> bool {
    view.node(id).is_some_and(|seen| seen.leaver.said.is_for_good()) && !view.configs().names(id)
}

/// Whether a voter leaves and will return: it keeps its vote until it has been away for `forget`. A new leader doesn't
/// know that it will return, and treats it as dead.
fn will_return(view: View<'_>, id: MemberId) -> bool {
    let mut lives = view.nodes().iter().filter(|(life, _)| life.shares_store(id));
    let last = lives.next_back();
    last.is_some_and(|(_, seen)| seen.leaver.returns() && view.now - seen.heard < view.settings().forget)
}

/// Whether a node may end at any time, because it was notified that its chains end. If it shows a later answer, it is
/// only drained. A voter doesn't end at once, so its answer must be given [`LEAVING_LEASES`] after the notice.
fn is_ending(view: View<'_>, id: MemberId) -> bool {
    let stays = if view.votes(id) { view.settings().lease * LEAVING_LEASES } else { Duration::ZERO };
    let ends = |seen: &KnownNode| seen.leaver.ends.is_some_and(|since| seen.proven < since + stays);
    view.node(id).is_some_and(ends)
}

/// When the latest of the leaving voters asked to leave, if any.
fn left_since(view: View<'_>) -> Option<Timestamp> {
    let leavers = view.voters().iter().filter(|&&id| goes(view, id) && !allows!(view.guards(), KeepLeavers));
    leavers.filter_map(|id| view.node(*id)).map(|seen| seen.leaver.asked).max()
}

/// Whether a node has shown an answer whose time satisfies `will_do`.
fn lived_since(view: View<'_>, id: MemberId, will_do: impl Fn(Timestamp) -> bool) -> bool {
    id == view.me() || view.node(id).is_some_and(|seen| will_do(seen.proven))
}

/// The voters that remain when some leave: an odd number of nodes that were alive after the request to leave. A dead
/// majority never confirms anything, including its own replacement (trap 60). So a majority of the current voters must
/// have been alive after the request too. The change waits a limited time for nodes that may still prove that they are
/// alive.
fn without_leavers(view: View<'_>, asked: Timestamp) -> Option<BTreeSet<MemberId>> {
    let patience = view.settings().suspect * REPLACE_SUSPECTS;
    let lived = |id| {
        lived_since(view, id, |proven| proven >= asked)
            || (allows!(view.guards(), KeepUnproven) && can_keep(view, id, patience))
    };
    let may_show = |id| !goes(view, id) && !lived(id) && view.silence(id) < view.settings().suspect;
    let known = view.configs().nodes().map(|founder| founder.id).filter(|id| !view.votes(*id));
    let known = known.filter(|&id| is_of_age(view, id) || view.voters().iter().all(|&voter| goes(view, voter)));
    let others = view.voters().iter().copied().chain(known).filter(|&id| id != view.me());
    let all: Vec<_> = [view.me()].into_iter().chain(others).collect();
    let waits = view.now - asked < view.settings().suspect * PROOF_SUSPECTS && all.iter().any(|&id| may_show(id));
    if waits || !view.is_majority(lived) {
        return None;
    }
    let stays = |id| !goes(view, id) && !is_ending(view, id);
    let mut staying: Vec<_> = all.into_iter().filter(|&id| stays(id) && lived(id)).collect();
    // A node that asks to leave, but can't yet, is the last choice.
    staying.sort_by_key(|&id| id != view.me() && view.asks_to_leave(id));
    let heirs = odd_number(staying.into_iter(), view.settings().max_voters);
    (!heirs.is_empty()).then_some(heirs)
}

/// Whether the log can do without this leaving node: it is no voter, or no node that could be one stays or may come
/// back (trap 69). A node that will return must have no place in a chain, and the serving members must know this. While
/// another leaving member is alive, the log must still inform it of the effect on its chains.
pub(super) fn releases(view: View<'_>, change: &VoterChange, id: MemberId) -> bool {
    let patience = view.settings().suspect * REPLACE_SUSPECTS;
    let none_stays = || {
        let is_heard = |seen: &KnownNode| view.now - seen.heard < view.settings().suspect;
        let is_member = |(other, seen): (MemberId, _)| other != id && view.configs().names(other) && is_heard(seen);
        let can_keep = |founder: &NodeInfo| can_keep(view, founder.id, patience);
        let none_can = !view.configs().nodes().any(can_keep) && !view.nodes().iter().any(is_member);
        let all_go = view.voters().iter().all(|&id| goes(view, id)) && !change.is_running(view.now);
        all_go && none_can && !may_come_back(view, id)
    };
    if view.returns(id) {
        return !view.configs().names(id) && is_known_to_members(view);
    }
    let may_vote = view.votes(id) || change.is_added(view.now, id);
    view.asks_to_leave(id) && (!may_vote || none_stays())
}

/// Whether all serving members have applied the newest configurations. A leader that leaves earlier may leave no
/// node behind that can send them.
fn is_known_to_members(view: View<'_>) -> bool {
    let acts = |id| view.node(id).is_some_and(|seen| seen.applied >= view.configs().applied());
    view.configs().iter().flat_map(|config| config.serving()).all(acts)
}

/// Whether the log keeps a quorum when any one node is stopped: most voters have renewed recently, and no better
/// set of voters is needed. A dead voter is tolerated if no node can take its place, now or after `voter_age`.
/// Three living voters are enough, even if five are wanted.
pub(super) fn has_voters(view: View<'_>) -> bool {
    let there = |id: &MemberId| can_keep(view, *id, view.settings().suspect);
    let stays = |id: &MemberId| there(id) || (view.votes(*id) && will_return(view, *id));
    let is_enough = view.voters().len() >= MIN_VOTERS && view.voters().iter().all(|id| *id == view.me() || stays(id));
    (is_enough || better_voters(view, stays).is_none()) && view.is_majority(|id| id == view.me() || there(&id))
}

/// Whether a node can be a voter: it has renewed within `patience`, and stays.
fn can_keep(view: View<'_>, id: MemberId, patience: Duration) -> bool {
    let stays = !goes(view, id) && (view.votes(id) || !view.asks_to_leave(id));
    stays && view.node(id).is_some_and(|seen| view.now - seen.heard < patience)
}

/// The longest prefix of `ids` with an odd number of at most `most`. An even number doesn't survive more losses than
/// the odd one below it.
fn odd_number(ids: impl Iterator<Item = MemberId>, most: usize) -> BTreeSet<MemberId> {
    let mut first: Vec<_> = ids.take(most.max(1)).collect();
    if first.len().is_multiple_of(2) {
        first.pop();
    }
    first.into_iter().collect()
}

/// The voters that should keep the log, if the set grows or a current voter isn't `there`: an odd number of nodes, with
/// `me` first, then living voters, then other nodes, each group from the oldest, by the time of their `first` renewal.
/// A change to fewer than three gains nothing. Unless it `grows`, the set gets no larger than now, or than three.
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
