//! A model of the guarantees of a consensus log: one order, one leader per term, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use artillery_proto::{
    ChainConfig, MemberId, Timestamp,
    control::{
        Bootstrap,
        log::{ConfigChange, Configs, LogEntry, LogIndex, Term},
    },
    node::{NodeInput, ProposalFate},
};

use super::{Event, World};
use crate::rng::Rng;

/// The interval of checks of the leader, in nanoseconds.
const LOOK: u64 = 20_000_000;

#[derive(Debug)]
pub(super) struct Group {
    rng: Rng,
    configs: Arc<Configs>,
    voters: BTreeSet<MemberId>,
    /// The next set of voters. Until the change is agreed, each decision needs a majority of both sets.
    next: Option<BTreeSet<MemberId>>,
    term: u64,
    leader: Option<MemberId>,
    /// Nodes that have resigned as leader, and are not electable.
    retired: BTreeSet<MemberId>,
    /// When the leader last had a majority.
    lost: u64,
    patience: u64,
    /// A proposal of the last leader that may be in some of the logs but not in others.
    limbo: Option<(Term, LogIndex, ConfigChange)>,
    /// For each node, the term and index of the newest notification sent to it.
    told: Vec<(MemberId, u64, LogIndex)>,
    /// The chain configurations replaced since the last check, each with its replacement.
    changes: Vec<[ChainConfig; 2]>,
    /// Choices that a test fixes instead of drawing them.
    #[cfg(test)]
    rig: tests::Settled,
}

impl Group {
    pub(super) fn new(founding: &Bootstrap, rng: Rng) -> Self {
        // As in real groups, the number of voters is odd: of two founders, only one votes.
        let odd = |count: usize| count - usize::from(count.is_multiple_of(2));
        let voters = founding.members.iter().take(odd(founding.members.len().min(5)));
        Self {
            rng,
            configs: Arc::new(Configs::of(founding)),
            voters: voters.map(|founder| founder.id).collect(),
            next: None,
            term: 0,
            leader: None,
            retired: BTreeSet::new(),
            lost: 0,
            patience: 0,
            limbo: None,
            told: Vec::new(),
            changes: Vec::new(),
            #[cfg(test)]
            rig: tests::Settled::default(),
        }
    }

    pub(super) fn configs(&self) -> &Configs {
        &self.configs
    }

    pub(super) fn voters(&self) -> BTreeSet<MemberId> {
        self.sets().flatten().copied().collect()
    }

    /// The sets of voters. A decision needs a majority of each.
    fn sets(&self) -> impl Iterator<Item = &BTreeSet<MemberId>> {
        [&self.voters].into_iter().chain(&self.next)
    }

    pub(super) fn has_majority_of(&self, counts: impl Fn(MemberId) -> bool) -> bool {
        self.sets().all(|set| 2 * set.iter().filter(|&&id| counts(id)).count() > set.len())
    }

    /// The nodes that are notified of changes: all voters, and the leader even if it is no longer a voter, since it
    /// wrote them. Other nodes learn of them later, with their lease renewals.
    fn hearers(&self) -> BTreeSet<MemberId> {
        #[cfg(test)]
        if self.rig.all_hear {
            return self.voters().into_iter().chain(self.configs.nodes().map(|node| node.id)).collect();
        }
        self.voters().into_iter().chain(self.leader).collect()
    }

    fn has_limbo(&mut self) -> bool {
        #[cfg(test)]
        if let Some(has) = self.rig.next_has_limbo {
            return has;
        }
        self.rng.chance(500)
    }

    pub(super) fn changes_voters(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn voter_sets(&self) -> Vec<BTreeSet<MemberId>> {
        self.sets().cloned().collect()
    }

    pub(super) fn term(&self) -> Term {
        Term(self.term)
    }

    /// Restarts the log after a recovery: one voter, a later term, and the configurations of that voter.
    pub(super) fn begin_anew(&mut self, now: u64, by: MemberId, configs: Arc<Configs>) {
        self.configs = configs;
        self.voters = BTreeSet::from([by]);
        (self.next, self.limbo) = (None, None);
        self.retired.clear();
        self.term += 1;
        (self.leader, self.lost) = (Some(by), now);
        self.told.clear();
    }

    /// Replaces a voter by the next incarnation of its store, which is the same voter. An incarnation leads only in
    /// terms in which it was elected (R5), unless it `leads_again`.
    pub(super) fn begins(&mut self, before: MemberId, life: MemberId, leads_again: bool) {
        if before == life || !before.shares_store(life) {
            return;
        }
        self.has_lived_on(life);
        if self.leader == Some(before) {
            self.leader = leads_again.then_some(life);
        }
        self.told.retain(|&(told, ..)| told != before);
    }

    pub(super) fn has_lived_on(&mut self, life: MemberId) {
        for set in [Some(&mut self.voters), self.next.as_mut()].into_iter().flatten() {
            let before: Vec<_> = set.iter().copied().filter(|voter| voter.shares_store(life)).collect();
            if !before.is_empty() {
                set.retain(|voter| !before.contains(voter));
                set.insert(life);
            }
        }
    }

    pub(super) fn is_retired(&self, id: MemberId) -> bool {
        self.retired.contains(&id)
    }

    pub(super) fn in_limbo(&self) -> bool {
        self.limbo.is_some()
    }

    /// Appends a change if `at` is the next index. Returns whether it was.
    fn take(&mut self, term: Term, at: LogIndex, change: ConfigChange) -> bool {
        let free = at == self.configs.applied().next();
        if free {
            let mut configs = (*self.configs).clone();
            let entry = LogEntry { index: at, term, change };
            // Can't fail: the index was just checked.
            let new = configs.apply(&entry).unwrap_or_default();
            let changes = new.into_iter().filter_map(|after| Some([self.configs.get(after.chain)?.clone(), after]));
            self.changes.extend(changes);
            self.configs = Arc::new(configs);
            #[cfg(test)]
            self.rig.entries.push(entry);
        }
        free
    }
}

impl World {
    /// The changes of chain configurations since the last call, each as the old and the new one.
    pub(in super::super) fn take_changes(&mut self) -> Vec<[ChainConfig; 2]> {
        self.control.as_mut().map(|control| std::mem::take(&mut control.group.changes)).unwrap_or_default()
    }

    fn index_of(&self, id: MemberId) -> Option<usize> {
        self.ids.iter().position(|&other| other == id).filter(|&at| self.nodes[at].is_alive())
    }

    /// Whether a majority of the voters can communicate with this node. A store that was rolled back neither votes nor
    /// gets votes: every message of the group carries the position of the sender's store.
    fn reaches_majority(&self, id: MemberId) -> bool {
        let (Some(control), Some(me)) = (&self.control, self.index_of(id)) else { return false };
        let votes = |voter| self.index_of(voter).filter(|at| !self.restored.contains(at));
        if votes(id).is_none() {
            return false;
        }
        let joined = |voter| {
            votes(voter).is_some_and(|at| {
                at == me || (!self.nodes[at].paused && !self.nodes[me].paused && self.network.calls(me, at))
            })
        };
        control.group.has_majority_of(joined)
    }

    /// The nodes that would answer `node` now, with its clock as the time of their answers.
    pub(super) fn answered(&self, node: usize) -> BTreeMap<MemberId, Timestamp> {
        let Some(control) = &self.control else { return BTreeMap::new() };
        let clock = self.nodes[node].clock(self.now);
        let known = control.group.voters().into_iter().chain(control.configs().nodes().map(|node| node.id));
        let answers = |id: &MemberId| {
            let at = self.index_of(*id).filter(|&at| at != node && !self.nodes[at].paused);
            at.is_some_and(|at| self.network.calls(node, at))
        };
        known.filter(answers).map(|id| (id, clock)).collect()
    }

    /// Lets a node resign as leader, or lead again.
    pub(super) fn may_lead(&mut self, node: usize, may: bool) {
        let id = self.ids[node];
        self.trace.line(self.now, |out| {
            use std::fmt::Write as _;
            write!(out, "n{node} {}", if may { "may lead again" } else { "resigns its leadership" })
        });
        let Some(control) = &mut self.control else { return };
        if may {
            control.group.retired.remove(&id);
            if control.group.leader == Some(id) {
                // It may lead again only in a later term.
                control.group.leader = None;
            }
        } else {
            control.group.retired.insert(id);
        }
    }

    /// Whether a node leads in this term, as confirmed by a majority now.
    pub(super) fn has_majority(&self, id: MemberId, term: Term) -> bool {
        let Some(control) = &self.control else { return false };
        let group = &control.group;
        let leads = group.leader == Some(id) && Term(group.term) == term;
        leads && group.voters().contains(&id) && self.reaches_majority(id)
    }

    pub(super) fn look(&mut self) {
        let now = self.now;
        self.queue.push(now + LOOK, super::super::Event::Control(Event::Look));
        let leader = self.control.as_ref().and_then(|control| control.group.leader);
        let votes = |id| self.control.as_ref().is_some_and(|control| control.group.voters().contains(&id));
        let stands = |id| self.control.as_ref().is_some_and(|control| !control.group.is_retired(id));
        let goes_on = leader.is_some_and(|leader| votes(leader) && stands(leader) && self.reaches_majority(leader));
        let whims = self.setup.control.filter(|_| !self.is_closing()).map_or(0, |control| control.whims);
        let Some(control) = &mut self.control else { return };
        // Occasionally there is an election without cause.
        let whim = control.group.rng.chance(whims);
        let group = &mut control.group;
        if goes_on && !whim {
            group.lost = now;
            // An entry in the leader's own log commits once a majority that follows the leader has it, even if its
            // proposer was notified of a failure. The same majority first confirms the leadership.
            if group.rng.chance(50)
                && let Some((term, at, change)) = group.limbo.take_if(|(term, ..)| *term == Term(group.term))
            {
                group.take(term, at, change);
            }
            self.end_change_of_voters();
            return self.spread();
        }
        if group.lost == now || now - group.lost < group.patience {
            return self.spread();
        }
        self.elect();
    }

    fn elect(&mut self) {
        let Some(control) = &self.control else { return };
        let able = |id: &&MemberId| {
            let stands =
                self.index_of(**id).is_some_and(|at| !self.nodes[at].paused) && !control.group.is_retired(**id);
            stands && self.reaches_majority(**id)
        };
        let voters = control.group.voters();
        let able: Vec<_> = voters.iter().filter(able).copied().collect();
        let now = self.now;
        let Some(control) = &mut self.control else { return };
        let group = &mut control.group;
        if able.is_empty() {
            return;
        }
        group.term += 1;
        group.leader = Some(group.rng.pick(&able));
        group.lost = now;
        group.patience = group.rng.between(50_000_000, 400_000_000);
        // The new leader's log may contain the old leader's proposal, which is then decided before any other.
        if let Some((term, at, change)) = group.limbo.take()
            && group.has_limbo()
        {
            group.take(term, at, change);
        }
        let (term, leader) = (group.term, group.leader);
        self.trace.line(now, |out| {
            use std::fmt::Write as _;
            write!(out, "term {term}: {leader:?} leads")
        });
        self.spread();
    }

    /// Notifies the nodes that follow the log, each after its own delay, unless they are cut off from the leader.
    pub(super) fn spread(&mut self) {
        let Some(control) = &self.control else { return };
        let group = &control.group;
        let Some(leader) = group.leader.and_then(|leader| self.index_of(leader)) else { return };
        let (applied, term) = (group.configs.applied(), group.term);
        let known = |id: MemberId| group.told.contains(&(id, term, applied));
        let reached = |&&id: &&MemberId| {
            self.index_of(id).is_some_and(|at| at == leader || self.network.calls(leader, at)) && !known(id)
        };
        let hearers = group.hearers();
        let news: Vec<MemberId> = hearers.iter().filter(reached).copied().collect();
        for id in news {
            let Some(node) = self.index_of(id) else { continue };
            let Some(control) = &mut self.control else { return };
            let late = if node == leader { 5_000_000 } else { 300_000_000 };
            let at = self.now + 1 + control.group.rng.below(late);
            control.group.told.retain(|&(told, ..)| told != id);
            control.group.told.push((id, term, applied));
            self.queue.push(at, super::super::Event::Control(Event::Log { node, id }));
        }
    }

    /// The state of the log for a node. `None` without a leader, or if the leader can't reach the node, which is then
    /// notified again later.
    pub(super) fn said_of_log(&mut self, id: MemberId) -> Option<(Option<Term>, MemberId, Arc<Configs>)> {
        let leader = self.control.as_ref()?.group.leader?;
        let (at, leads_at) = (self.index_of(id)?, self.index_of(leader));
        let heard = leads_at.is_some_and(|leads_at| at == leads_at || self.network.calls(leads_at, at));
        let group = &mut self.control.as_mut()?.group;
        if !heard {
            group.told.retain(|&(told, ..)| told != id);
            return None;
        }
        let leads = (leader == id).then_some(Term(group.term));
        Some((leads, leader, group.configs.clone()))
    }

    pub(super) fn append(&mut self, node: usize, id: MemberId, term: Term, at: LogIndex, change: ConfigChange) {
        let leads = self.has_majority(id, term);
        let Some(control) = &mut self.control else { return };
        control.appends -= 1;
        let group = &mut control.group;
        let (known, lost) = (at <= group.configs.applied(), group.rng.chance(100));
        let fate = if leads {
            if let Some((term, at, change)) = group.limbo.take_if(|(known, ..)| *known == term) {
                group.take(term, at, change);
            }
            group.limbo = None;
            group.take(term, at, change);
            if lost { ProposalFate::Unknown } else { ProposalFate::Decided }
        } else if group.leader == Some(id) && Term(group.term) == term && !known {
            // The proposal is in the leader's own log, and possibly in some others. A retry may still be refused.
            let again = group.limbo.as_ref().is_some_and(|(known, place, _)| (*known, *place) == (term, at));
            group.limbo = Some((term, at, change));
            if again && group.rng.chance(300) { ProposalFate::Refused } else { ProposalFate::Unknown }
        } else if known {
            ProposalFate::Decided
        } else {
            ProposalFate::Refused
        };
        let at_time = self.now + 1 + group.rng.below(20_000_000);
        self.queue.push(at_time, super::super::Event::Control(Event::Appended { node, id, at, fate }));
        self.spread();
    }

    pub(super) fn set_voters(&mut self, node: usize, id: MemberId, term: Term, voters: BTreeSet<MemberId>) {
        let leads = self.has_majority(id, term);
        // A voter is identified by its store, whichever incarnation the leader named.
        let present = |voter: MemberId| self.ids.iter().copied().find(|id| id.shares_store(voter)).unwrap_or(voter);
        let voters = voters.into_iter().map(present).collect();
        let Some(control) = &mut self.control else { return };
        if leads && control.group.next.is_none() {
            // The change is in the leader's log, and takes effect there at once, whether or not it will be agreed.
            control.group.next = Some(voters);
        }
        if leads && self.has_majority(id, term) {
            self.end_change_of_voters();
        }
        self.hand_in(node, NodeInput::VotersSet);
    }

    /// Completes the pending change of voters, to which both sets have agreed.
    fn end_change_of_voters(&mut self) {
        let Some(control) = &mut self.control else { return };
        if let Some(next) = control.group.next.take() {
            control.group.voters = next;
            // Notify every node again.
            control.group.told.clear();
            self.spread();
        }
    }
}

#[cfg(test)]
mod tests;
