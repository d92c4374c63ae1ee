//! A model of what a consensus log promises: one order, one leader a term, and nothing else.

use std::{collections::BTreeSet, sync::Arc};

use artillery_ddata::{
    MemberId,
    control::{
        Founding,
        coordinator::{Fate, Input},
        log::{Change, Configs, LogEntry, LogIndex, Term},
    },
};

use super::{Event, World};
use crate::rng::Rng;

/// How often it is looked whether the leader goes on, in nanoseconds.
const LOOK: u64 = 20_000_000;

/// The group that keeps the log.
#[derive(Debug)]
pub(super) struct Group {
    rng: Rng,
    configs: Arc<Configs>,
    voters: BTreeSet<MemberId>,
    term: u64,
    leader: Option<MemberId>,
    /// Without a leader since then.
    lost: u64,
    patience: u64,
    /// A proposal of the last leader that some may have and some not.
    limbo: Option<(Term, LogIndex, Change)>,
    /// Whom each voter was told of last.
    told: Vec<(MemberId, u64, LogIndex)>,
}

impl Group {
    pub(super) fn new(founding: &Founding, rng: Rng) -> Self {
        // As those do that keep the log in real processes: an odd number, so that of two it is one.
        let odd = |count: usize| count - usize::from(count.is_multiple_of(2));
        let voters = founding.members.iter().take(odd(founding.members.len().min(5)));
        Self {
            rng,
            configs: Arc::new(Configs::of(founding)),
            voters: voters.map(|founder| founder.id).collect(),
            term: 0,
            leader: None,
            lost: 0,
            patience: 0,
            limbo: None,
            told: Vec::new(),
        }
    }

    pub(super) fn configs(&self) -> &Configs {
        &self.configs
    }

    pub(super) fn voters(&self) -> &BTreeSet<MemberId> {
        &self.voters
    }

    pub(super) fn in_limbo(&self) -> bool {
        self.limbo.is_some()
    }

    /// Puts a change in its place, if that is free; whether it is there now.
    fn take(&mut self, term: Term, at: LogIndex, change: Change) -> bool {
        let free = at == self.configs.applied().next();
        if free {
            let mut configs = (*self.configs).clone();
            // In order, as just seen.
            drop(configs.apply(&LogEntry { index: at, term, change }));
            self.configs = Arc::new(configs);
        }
        free
    }
}

impl World {
    fn index_of(&self, id: MemberId) -> Option<usize> {
        self.ids.iter().position(|&other| other == id).filter(|&at| self.nodes[at].is_alive())
    }

    /// Whether a majority of those who keep the log can talk to this one now.
    fn reaches_majority(&self, id: MemberId) -> bool {
        let (Some(control), Some(me)) = (&self.control, self.index_of(id)) else { return false };
        let voters = control.group.voters();
        let joined = |&&voter: &&MemberId| {
            self.index_of(voter).is_some_and(|at| {
                at == me || (!self.nodes[at].paused && !self.nodes[me].paused && self.network.joins(me, at))
            })
        };
        2 * voters.iter().filter(joined).count() > voters.len()
    }

    /// Whether a node leads in this term, by a majority's word of now.
    pub(super) fn has_majority(&self, id: MemberId, term: Term) -> bool {
        let Some(control) = &self.control else { return false };
        let group = &control.group;
        let leads = group.leader == Some(id) && Term(group.term) == term;
        leads && group.voters.contains(&id) && self.reaches_majority(id)
    }

    pub(super) fn look(&mut self) {
        let now = self.now;
        self.queue.push(now + LOOK, super::super::Event::Control(Event::Look));
        let leader = self.control.as_ref().and_then(|control| control.group.leader);
        let votes = |id| self.control.as_ref().is_some_and(|control| control.group.voters.contains(&id));
        let goes_on = leader.is_some_and(|leader| votes(leader) && self.reaches_majority(leader));
        let whims = self.setup.control.map_or(0, |control| control.whims);
        let Some(control) = &mut self.control else { return };
        // Now and then there is an election for no reason.
        let whim = control.group.rng.chance(whims);
        let group = &mut control.group;
        if goes_on && !whim {
            group.lost = now;
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
            self.index_of(**id).is_some_and(|at| !self.nodes[at].paused) && self.reaches_majority(**id)
        };
        let able: Vec<_> = control.group.voters().iter().filter(able).copied().collect();
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
        // What an old leader proposed may be in the log of the new one: then it is settled before anything else is.
        if let Some((term, at, change)) = group.limbo.take()
            && group.rng.chance(500)
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

    /// Those who keep the log learn what is new, each in its own time; who is cut off from the leader doesn't.
    fn spread(&mut self) {
        let Some(control) = &self.control else { return };
        let group = &control.group;
        let Some(leader) = group.leader.and_then(|leader| self.index_of(leader)) else { return };
        let (applied, term) = (group.configs.applied(), group.term);
        let known = |id: MemberId| group.told.contains(&(id, term, applied));
        let reached = |&&id: &&MemberId| {
            self.index_of(id).is_some_and(|at| at == leader || self.network.joins(leader, at)) && !known(id)
        };
        let news: Vec<MemberId> = group.voters().iter().filter(reached).copied().collect();
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

    /// What a node that keeps the log hears of it now; nothing where it can't hear the leader, which is tried again.
    pub(super) fn said_of_log(&mut self, id: MemberId) -> Option<(Option<Term>, MemberId, Arc<Configs>)> {
        let leader = self.control.as_ref()?.group.leader?;
        let (at, leads_at) = (self.index_of(id)?, self.index_of(leader));
        let heard = leads_at.is_some_and(|leads_at| at == leads_at || self.network.joins(at, leads_at));
        let group = &mut self.control.as_mut()?.group;
        if !heard {
            group.told.retain(|&(told, ..)| told != id);
            return None;
        }
        let leads = (leader == id).then_some(Term(group.term));
        Some((leads, leader, group.configs.clone()))
    }

    pub(super) fn append(&mut self, node: usize, id: MemberId, term: Term, at: LogIndex, change: Change) {
        let leads = self.has_majority(id, term);
        let Some(control) = &mut self.control else { return };
        control.appends -= 1;
        let group = &mut control.group;
        let (known, lost) = (at <= group.configs.applied(), group.rng.chance(100));
        let fate = if leads {
            group.limbo = None;
            group.take(term, at, change);
            if lost { Fate::Unknown } else { Fate::Decided }
        } else if group.leader == Some(id) && Term(group.term) == term && !known {
            // It is in the leader's own log, and perhaps in some others'.
            group.limbo = Some((term, at, change));
            Fate::Unknown
        } else if known {
            Fate::Decided
        } else {
            Fate::Refused
        };
        let at_time = self.now + 1 + group.rng.below(20_000_000);
        self.queue.push(at_time, super::super::Event::Control(Event::Appended { node, id, at, fate }));
        self.spread();
    }

    pub(super) fn set_voters(&mut self, node: usize, id: MemberId, term: Term, voters: BTreeSet<MemberId>) {
        let living = voters.iter().filter(|&&voter| self.index_of(voter).is_some()).count();
        let leads = self.has_majority(id, term) && 2 * living > voters.len();
        let Some(control) = &mut self.control else { return };
        if leads {
            control.group.voters = voters;
        }
        let Some(control) = &mut self.control else { return };
        // All of them are to hear of it.
        control.group.told.clear();
        self.spread();
        self.tell_coordinator(node, Input::VotersSet);
    }
}
