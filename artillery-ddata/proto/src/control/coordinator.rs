//! Who may serve, and who takes the place of whom: what the leader of the configuration log's group decides. Sans-IO.
//!
//! Every node that keeps the log has a [`Coordinator`]; it acts while its node leads. Hand in what happened with
//! [`Coordinator::handle`], take the outputs with [`Coordinator::poll_output`] until there are none, hand in
//! [`Input::Tick`] at [`Coordinator::next_tick`].
//!
//! The rules (docs/DESIGN.md §5 and §6), each found necessary by a model:
//!
//! - A lease is granted only once a quorum has confirmed, *after the renewal was received*, that this node still leads
//!   (module `grants`).
//! - Whoever is to be removed is *fenced* first: no lease is renewed, and the proposal waits until the last one is
//!   certainly out, by this node's clock and the bound on drift. Until the proposal is decided nothing is renewed, and
//!   it counts only in the term in which the fence was made.
//! - A new leader knows nothing of the leases that others granted, so it waits for one whole lease and the drift before
//!   it removes anybody.
//! - Nobody is removed, but who says that it goes, until a quorum has confirmed this node in a round that began behind the
//!   fence: it may be this node that hears nobody, and what it proposes be heard (trap 51).
//! - Nobody is removed unless another serving member is known to live: by the word of one that has heard this leader a
//!   moment ago. A message alone may be as old as a pause of this node, or as the network likes (trap 42).
//! - Every proposal names the epoch that it replaces, and at most one is under way.

mod grants;
mod leave;
mod plan;
mod reorder;
mod seen;
mod settings;
mod settled;
mod slow;
#[cfg(test)]
mod tests;
mod voters;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use self::{
    grants::Grants,
    plan::View,
    reorder::Wish,
    seen::Seen,
    slow::{Outside, Watched},
};
pub use self::{
    plan::{Reason, Why},
    settings::Settings,
};
use super::{
    log::{Change, Configs, LogIndex, Term},
    message::{Renewal, Renewed, ReorderError},
};
use crate::{ChainId, Epoch, MemberId, NodeId, Timestamp};

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    /// What this node knows of the log's group has changed.
    Log {
        /// The term in which this node leads, if it does.
        leads: Option<Term>,
        /// Who leads, as far as is known.
        leader: Option<MemberId>,
        /// What the entries applied here come to.
        configs: Arc<Configs>,
        /// Who keeps the log.
        voters: BTreeSet<MemberId>,
    },
    /// A node renews; the driver vouches for who it is.
    Renewal {
        /// Who.
        from: MemberId,
        /// What it says.
        renewal: Renewal,
    },
    /// What came of the round of [`Output::Confirm`]: whether this node still led after it began.
    Confirmed {
        /// Which round.
        round: u64,
        /// Whether a quorum has said so.
        leads: bool,
    },
    /// What came of [`Output::Append`].
    Appended {
        /// The place that it was to take.
        at: LogIndex,
        /// What became of it.
        fate: Fate,
    },
    /// An operator wants the serving members of a chain in this order. Answered by [`Output::Reordered`].
    Reorder {
        /// Names the wish.
        token: u64,
        /// Which chain.
        chain: ChainId,
        /// All of its serving members, head first.
        order: Vec<MemberId>,
    },
    /// [`Output::SetVoters`] has come to its end, however.
    VotersSet,
    /// Time has passed.
    Tick,
}

/// What became of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It has its place, or another entry has: the log tells.
    Decided,
    /// It never will be in the log.
    Refused,
    /// Nobody can say.
    Unknown,
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Output {
    /// Answer a renewal.
    Answer {
        /// Whose.
        to: MemberId,
        /// What.
        renewed: Renewed,
    },
    /// Find out, beginning now, whether this node still leads in this term. One round at a time.
    Confirm {
        /// Names the round.
        round: u64,
        /// The term.
        term: Term,
    },
    /// Propose this. One proposal at a time.
    Append {
        /// The term in which it counts.
        term: Term,
        /// The place that it must take.
        at: LogIndex,
        /// What.
        change: Change,
        /// Why, for people.
        why: Vec<Reason>,
    },
    /// What came of [`Input::Reorder`].
    Reordered {
        /// Which wish.
        token: u64,
        /// The epoch in which they stand in that order.
        result: Result<Epoch, ReorderError>,
    },
    /// Have the log kept by these. One such change at a time.
    SetVoters {
        /// The term in which it counts.
        term: Term,
        /// Who.
        voters: BTreeSet<MemberId>,
    },
}

/// Decides, while its node leads.
#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(crate) struct Coordinator {
    me: MemberId,
    settings: Settings,
    configs: Arc<Configs>,
    leader: Option<MemberId>,
    voters: BTreeSet<MemberId>,
    leading: Option<Leading>,
    rounds: u64,
    /// When it last took anything in: after a pause, what it knows is old.
    awake: Timestamp,
    /// Nodes that were moved out because they held a chain up.
    outside: BTreeMap<NodeId, Outside>,
    outputs: VecDeque<Output>,
}

/// What is known in one term of leadership; nothing of it outlives the term.
#[derive(Clone, Debug)]
struct Leading {
    term: Term,
    since: Timestamp,
    nodes: BTreeMap<MemberId, Seen>,
    /// Members that are to be removed, for whom nothing is renewed, and the last round that had begun by then.
    fenced: BTreeMap<MemberId, u64>,
    watched: BTreeMap<ChainId, Watched>,
    reorder: Option<Wish>,
    grants: Grants,
    proposal: Option<Proposal>,
    /// After a refusal: not before then.
    pause: Timestamp,
    sets_voters: bool,
    /// Nodes that the last such change was to add. They may not know of it yet.
    added: BTreeSet<MemberId>,
    /// Not again before then, whatever came of it: the log may not have told yet.
    voters_pause: Timestamp,
}

#[derive(Clone, Debug)]
struct Proposal {
    at: LogIndex,
    change: Change,
    why: Vec<Reason>,
    /// It may be in the log or not: ask again then.
    ask_again: Option<Timestamp>,
    /// It may have been taken by an append whose fate was never known. A later append that is refused says nothing of that one, so
    /// it stays unknown until its place is decided, or for the rest of the term (trap 66).
    unknown: bool,
}

impl Coordinator {
    /// The coordinator of a node that keeps the log, or may come to keep it.
    pub(crate) fn new(me: MemberId, settings: Settings) -> Self {
        Self {
            me,
            settings,
            configs: Arc::default(),
            leader: None,
            voters: BTreeSet::new(),
            leading: None,
            rounds: 0,
            awake: Timestamp::ZERO,
            outside: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Test-only: writes down all that its conduct depends on, but for its settings and what the entries say that it
    /// knows of: two coordinators that write the same and share a log go on in the same way.
    ///
    /// # Errors
    /// What `out` fails with.
    #[cfg(feature = "mutants")]
    pub(crate) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        // Names every field: a new one that is forgotten here doesn't compile.
        let Self { me, settings: _, configs, leader, voters, leading, outside, rounds, awake, outputs } = self;
        // Only a leader goes by what it knew before it slept.
        let awake = leading.as_ref().map(|_| awake);
        write!(out, "{:?}", (me, configs.applied(), leader, voters, leading, outside, rounds, awake, outputs))
    }

    /// The term in which it decides, if it does.
    pub(crate) fn leads(&self) -> Option<Term> {
        self.leading.as_ref().map(|leading| leading.term)
    }

    /// Whether a proposal is under way: until it is decided, or known to be refused.
    pub(crate) fn proposes(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.proposal.is_some())
    }

    /// What the driver is to do next.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Tick`] is wanted, as of `now`.
    pub(crate) fn next_tick(&self, now: Timestamp) -> Option<Timestamp> {
        self.leading.as_ref().map(|_| now + self.settings.tick)
    }

    /// Takes in what happened at `now`.
    pub(crate) fn handle(&mut self, now: Timestamp, input: Input) {
        self.wake(now);
        match input {
            Input::Log { leads, leader, configs, voters } => {
                self.leader = leader;
                self.voters = voters;
                self.configs = configs;
                // A leader with a shorter lease than the others' would remove a member whose lease still runs (trap 63).
                if !allows!(self.settings.guards, KeepOwnTimes) {
                    self.settings.adopt(self.configs.timing());
                }
                self.follow_log(now, leads);
            }
            Input::Renewal { from, renewal } => self.renewal(now, from, renewal),
            Input::Confirmed { round, leads } => self.confirmed(now, round, leads),
            Input::Appended { at, fate } => self.appended(now, at, fate),
            Input::Reorder { token, chain, order } => self.reorder(now, token, chain, order),
            Input::VotersSet => {
                if let Some(leading) = &mut self.leading {
                    leading.sets_voters = false;
                    leading.voters_pause = now + self.settings.tick;
                }
            }
            Input::Tick => {}
        }
        self.decide(now);
    }

    /// After a pause nobody can have been heard for a while, and what is heard now may be as old as the pause: all is to
    /// be seen anew, as if this term had just begun.
    fn wake(&mut self, now: Timestamp) {
        let slept = now - self.awake >= self.settings.suspect / 2;
        self.awake = now;
        if let Some(leading) = self.leading.as_mut().filter(|_| slept) {
            leading.since = now;
            leading.nodes.values_mut().for_each(|seen| seen.wake(now));
        }
    }

    fn follow_log(&mut self, now: Timestamp, leads: Option<Term>) {
        let keeps = |leading: &Leading| Some(leading.term) == leads;
        if !self.leading.as_ref().is_some_and(keeps) {
            self.end_reorder();
            self.leading = leads.map(|term| Leading::new(term, now));
        }
        let applied = self.configs.applied();
        if let Some(leading) = &mut self.leading
            && leading.proposal.as_ref().is_some_and(|proposal| proposal.at <= applied)
        {
            leading.proposal = None;
        }
    }

    fn appended(&mut self, now: Timestamp, at: LogIndex, fate: Fate) {
        let applied = self.configs.applied();
        let Some(leading) = &mut self.leading else { return };
        let Some(proposal) = leading.proposal.as_mut().filter(|proposal| proposal.at == at) else { return };
        match fate {
            // What it came to is known once it has been applied here.
            Fate::Decided if at > applied => {}
            Fate::Decided => leading.proposal = None,
            Fate::Refused if proposal.unknown && !allows!(self.settings.guards, ForgetUnknown) => {
                proposal.ask_again = Some(now + self.settings.tick);
            }
            Fate::Refused => {
                leading.proposal = None;
                leading.pause = now + self.settings.tick;
            }
            Fate::Unknown => {
                proposal.unknown = true;
                proposal.ask_again = Some(now + self.settings.tick);
            }
        }
    }

    /// Fences, proposes, and sees to it that the log is kept by nodes that live.
    fn decide(&mut self, now: Timestamp) {
        let Some(term) = self.leads() else { return };
        self.follow_reorder(now);
        self.judge(now);
        self.fence(now);
        self.keep_voters(now, term);
        let Some(leading) = &mut self.leading else { return };
        if let Some(proposal) = &mut leading.proposal {
            if proposal.ask_again.take_if(|at| *at <= now).is_some() {
                let (at, change, why) = (proposal.at, proposal.change.clone(), proposal.why.clone());
                self.outputs.push_back(Output::Append { term, at, change, why });
            }
            return;
        }
        if now < leading.pause {
            return;
        }
        let view = leading.view(now, self.me, &self.settings, &self.outside);
        let Some((change, why)) = view.change(&self.configs) else { return };
        let at = self.configs.applied().next();
        leading.proposal =
            Some(Proposal { at, change: change.clone(), why: why.clone(), ask_again: None, unknown: false });
        self.outputs.push_back(Output::Append { term, at, change, why });
    }

    /// Stops renewing for members that are to go, and renews again for those that are there again, unless their removal
    /// has been proposed: then nothing is renewed until that is decided (trap 35).
    fn fence(&mut self, now: Timestamp) {
        let Some(leading) = &mut self.leading else { return };
        let proposed = leading.proposal.is_some() && !allows!(self.settings.guards, RenewWhileDeciding);
        let view = leading.view(now, self.me, &self.settings, &self.outside);
        let serving = self.configs.iter().flat_map(|config| config.serving());
        let gone = serving.filter(|&id| view.is_gone(id));
        let gone: BTreeSet<_> = gone.chain(slow::blamed(&leading.watched)).collect();
        leading.fenced.retain(|id, _| proposed || gone.contains(id));
        for id in gone {
            leading.fenced.entry(id).or_insert(self.rounds);
        }
    }
}

impl Leading {
    fn new(term: Term, now: Timestamp) -> Self {
        Self {
            term,
            since: now,
            nodes: BTreeMap::new(),
            fenced: BTreeMap::new(),
            watched: BTreeMap::new(),
            reorder: None,
            grants: Grants::default(),
            proposal: None,
            pause: Timestamp::ZERO,
            sets_voters: false,
            added: BTreeSet::new(),
            voters_pause: Timestamp::ZERO,
        }
    }

    fn view<'a>(
        &'a self,
        now: Timestamp,
        me: MemberId,
        settings: &'a Settings,
        outside: &'a BTreeMap<NodeId, Outside>,
    ) -> View<'a> {
        let Self { since, ref nodes, ref fenced, ref watched, ref reorder, .. } = *self;
        let (confirmed, reorder) = (self.grants.confirmed(), reorder.as_ref());
        View { now, me, since, nodes, fenced, confirmed, watched, reorder, outside, settings }
    }
}
