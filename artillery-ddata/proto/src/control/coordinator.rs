//! What the leader of the configuration log's group decides: leases, removals, joiners and promotions. Sans-IO.
//!
//! Every node that keeps the log has a [`Coordinator`]; it acts while its node leads. Hand in what happened with
//! [`Coordinator::handle`], take the outputs with [`Coordinator::poll_output`] until there are none, hand in
//! [`CoordinatorInput::Tick`] at [`Coordinator::next_tick`].
//!
//! The rules (docs/DESIGN.md §5 and §6), each found necessary by a model:
//!
//! - A lease is granted only once a quorum has confirmed, *after the renewal was received*, that this node still leads
//!   (module `grants`).
//! - A member that is to be removed is *fenced* first: its lease is not renewed, and the proposal waits until the last one
//!   has certainly expired, by this node's clock and the bound on drift. Nothing is renewed until the proposal is decided,
//!   and it counts only in the term in which the fence was made.
//! - A new leader doesn't know the leases that others granted. So it waits for one whole lease and the drift before it
//!   removes a member.
//! - A member is removed only after a quorum has confirmed this node in a round that began behind the fence, unless the
//!   member itself has resigned. It may be this node that hears no other, while its proposals are heard (trap 51).
//! - No member is removed by a leader that hears no majority of the voters, though a quorum confirms it: it is the one that
//!   can't be reached (module `one_way`).
//! - A member is removed only while another serving member is known to live: it has shown an answer that this leader gave a
//!   moment ago. A bare message may be as old as a pause of this node, or as long as the network delayed it (trap 42).
//! - Every proposal names the epoch that it replaces, and at most one is under way.

mod accepted_loss;
mod give_way;
mod grants;
mod gray_failure;
mod known_node;
mod leave;
mod leaver;
mod one_way;
mod plan;
mod reason;
mod reopen;
mod reorder;
mod settings;
mod settled;
mod suspicion;
#[cfg(test)]
mod tests;
mod view;
mod voters;
mod wish;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use self::{
    accepted_loss::LossOrder,
    give_way::{Outranked, Sealing},
    grants::Grants,
    known_node::KnownNode,
    one_way::{Unheard, Unreachable},
    suspicion::{Quarantine, Watched},
    view::View,
    wish::Wish,
};
pub use self::{
    reason::{ChangeReason, Why},
    settings::CoordinatorSettings,
    voters::LogWarning,
};
use super::{
    log::{ConfigChange, Configs, LogIndex, Term},
    message::{NotGivenUp, Renewal, Renewed, ReorderError},
    reopening::{NotReopened, Reopened},
};
use crate::{ChainId, ClusterId, Epoch, MemberId, NodeId, Timestamp};

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CoordinatorInput {
    /// This node's view of the log's group has changed.
    Log {
        /// The term in which this node leads, if it does.
        leads: Option<Term>,
        /// The leader, as far as is known.
        leader: Option<MemberId>,
        /// The configurations after the last entry applied here.
        configs: Arc<Configs>,
        /// The voters of the log's group.
        voters: BTreeSet<MemberId>,
    },
    /// A node renews.
    Renewal {
        /// The sender; the driver has checked that it is this one.
        from: MemberId,
        /// Its renewal.
        renewal: Renewal,
    },
    /// The round of [`CoordinatorOutput::Confirm`] has ended.
    Confirmed {
        /// Which round.
        round: u64,
        /// Whether a quorum has confirmed that this node still led after the round began.
        leads: bool,
        /// For each node of the log's group, when the latest message was sent that it has answered.
        answered: BTreeMap<MemberId, Timestamp>,
    },
    /// A node has sent a message of the log's group on a connection that it dialled.
    Reached {
        /// The sender.
        by: MemberId,
    },
    /// [`CoordinatorOutput::Append`] has ended.
    Appended {
        /// The place that the proposal was to take.
        at: LogIndex,
        /// What became of the proposal.
        fate: ProposalFate,
    },
    /// An operator wants the serving members of a chain in this order. Answered by [`CoordinatorOutput::Reordered`].
    Reorder {
        /// Names the request.
        token: u64,
        /// Which chain.
        chain: ChainId,
        /// All of its serving members, head first.
        order: Vec<MemberId>,
    },
    /// An operator accepts that a chain loses what no store has any more. Answered by [`CoordinatorOutput::Reopened`].
    AcceptLoss {
        /// Names the order.
        token: u64,
        /// Which chain.
        chain: ChainId,
    },
    /// Another cluster of this one's name and secret is met, to which this one gives way if it is empty; `None`: none is met. The
    /// caller repeats it: it is valid for three leases.
    Outranked {
        /// The other cluster.
        by: Option<ClusterId>,
    },
    /// An operator gives this cluster up for another one, and its data are lost. Answered by [`CoordinatorOutput::GivenUp`].
    GiveUp {
        /// Names the order.
        token: u64,
    },
    /// [`CoordinatorOutput::SetVoters`] has ended, with success or without.
    VotersSet,
    /// Time has passed.
    Tick,
}

/// What became of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProposalFate {
    /// The place is taken, by the proposal or by another entry: the log tells which.
    Decided,
    /// The proposal will never be in the log.
    Refused,
    /// The proposal may be in the log or not.
    Unknown,
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CoordinatorOutput {
    /// Answer a renewal.
    Answer {
        /// The sender of the renewal.
        to: MemberId,
        /// The answer.
        renewed: Renewed,
    },
    /// Find out, beginning now, whether this node still leads in this term. One round at a time.
    Confirm {
        /// Names the round.
        round: u64,
        /// The term.
        term: Term,
    },
    /// Propose a change. One proposal at a time.
    Append {
        /// The term in which it counts.
        term: Term,
        /// The place that it must take.
        at: LogIndex,
        /// The change.
        change: ConfigChange,
        /// Why, for operators.
        why: Vec<ChangeReason>,
    },
    /// The answer to [`CoordinatorInput::Reorder`].
    Reordered {
        /// The request's token.
        token: u64,
        /// The epoch in which the members stand in that order.
        result: Result<Epoch, ReorderError>,
    },
    /// The answer to [`CoordinatorInput::AcceptLoss`].
    Reopened {
        /// The order's token.
        token: u64,
        /// What the chain goes on with.
        result: Result<Reopened, NotReopened>,
    },
    /// The answer to [`CoordinatorInput::GiveUp`].
    GivenUp {
        /// The order's token.
        token: u64,
        /// Whether the cluster is over.
        result: Result<(), NotGivenUp>,
    },
    /// Replace the voters of the log's group. One such change at a time.
    SetVoters {
        /// The term in which it counts.
        term: Term,
        /// The new voters.
        voters: BTreeSet<MemberId>,
    },
    /// Give up the leadership in this term, and stand in no election until [`CoordinatorOutput::Stand`].
    Resign {
        /// The term.
        term: Term,
    },
    /// This node may lead again, in another term.
    Stand,
    /// Report this to operators.
    Warn(LogWarning),
}

/// Grants leases and changes configurations while its node leads.
#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(crate) struct Coordinator {
    me: MemberId,
    settings: CoordinatorSettings,
    configs: Arc<Configs>,
    leader: Option<MemberId>,
    voters: BTreeSet<MemberId>,
    leading: Option<LeaderTerm>,
    rounds: u64,
    /// When the last input came: after a pause all that this node knows is old.
    awake: Timestamp,
    /// Quarantined nodes: they were moved out because they held a chain up.
    outside: BTreeMap<NodeId, Quarantine>,
    /// This node has given up a leadership, and no majority of the voters has reached it since.
    unreachable: Option<Unreachable>,
    /// The last term in which this node has given up its leadership.
    given_up: Option<Term>,
    /// The nodes of the cluster that have been voters, as far as this node knows.
    voted: BTreeSet<MemberId>,
    /// The cluster to which this one gives way if it is empty.
    outranked: Option<Outranked>,
    outputs: VecDeque<CoordinatorOutput>,
}

/// The state of one term of leadership. None of it outlives the term.
#[derive(Clone, Debug)]
struct LeaderTerm {
    term: Term,
    since: Timestamp,
    nodes: BTreeMap<MemberId, KnownNode>,
    /// Members that are to be removed and get no lease, each with the last round that had begun before its fence.
    fenced: BTreeMap<MemberId, u64>,
    watched: BTreeMap<ChainId, Watched>,
    reorder: Option<Wish>,
    /// A loss that an operator accepts.
    loss: Option<LossOrder>,
    sealing: Sealing,
    grants: Grants,
    proposal: Option<PendingProposal>,
    /// No proposal before then: the last one was refused.
    pause: Timestamp,
    sets_voters: bool,
    /// Nodes that the last change of voters was to add. They may not know of it yet.
    added: BTreeSet<MemberId>,
    /// No change of voters before then: the log may not show yet what came of the last one.
    voters_pause: Timestamp,
    /// For each node, when the latest message of the log was sent that it has answered.
    answered: BTreeMap<MemberId, Timestamp>,
    unheard: Option<Unheard>,
    /// What operators were told last of the voters.
    warned: Option<LogWarning>,
}

#[derive(Clone, Debug)]
struct PendingProposal {
    at: LogIndex,
    change: ConfigChange,
    why: Vec<ChangeReason>,
    /// The proposal may be in the log or not: append it again then.
    ask_again: Option<Timestamp>,
    /// An append of unknown fate may have put the proposal into the log. The refusal of a later append says nothing of the first
    /// one. So the proposal stays unknown until its place is decided, or for the rest of the term (trap 66).
    unknown: bool,
}

impl Coordinator {
    /// The coordinator of a node that keeps the log, or may come to keep it.
    pub(crate) fn new(me: MemberId, settings: CoordinatorSettings) -> Self {
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
            unreachable: None,
            given_up: None,
            voted: BTreeSet::new(),
            outranked: None,
            outputs: VecDeque::new(),
        }
    }

    /// Test-only: writes down all that the coordinator's conduct depends on, except its settings and the content of the log's
    /// entries. Two coordinators that write the same and share a log go on in the same way.
    ///
    /// # Errors
    /// The error of `out`.
    #[cfg(feature = "mutants")]
    pub(crate) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        // Names every field, so that a forgotten new one doesn't compile.
        let Self {
            me,
            settings: _,
            configs,
            leader,
            voters,
            leading,
            outside,
            unreachable,
            given_up,
            voted,
            rounds,
            awake,
            outranked,
            outputs,
        } = self;
        // Only a leader has anything to forget after a pause.
        let awake = leading.as_ref().map(|_| awake);
        write!(out, "{:?}", (me, configs.applied(), leader, voters, leading, outside, unreachable, given_up, voted))?;
        write!(out, "{:?}", (rounds, awake, outranked, outputs))
    }

    /// The term in which this node leads, if it does.
    pub(crate) fn leads(&self) -> Option<Term> {
        self.leading.as_ref().map(|leading| leading.term)
    }

    /// Whether a proposal is under way: neither decided nor known to be refused.
    pub(crate) fn proposes(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.proposal.is_some())
    }

    /// Whether a member is fenced.
    #[cfg(feature = "mutants")]
    pub(crate) fn fences(&self, id: MemberId) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.fenced.contains_key(&id))
    }

    /// The next order to the driver.
    pub(crate) fn poll_output(&mut self) -> Option<CoordinatorOutput> {
        self.outputs.pop_front()
    }

    /// When [`CoordinatorInput::Tick`] is wanted, as of `now`.
    pub(crate) fn next_tick(&self, now: Timestamp) -> Option<Timestamp> {
        self.leading.as_ref().map(|_| now + self.settings.tick)
    }

    /// Takes in what happened at `now`.
    pub(crate) fn handle(&mut self, now: Timestamp, input: CoordinatorInput) {
        self.wake(now);
        match input {
            CoordinatorInput::Log { leads, leader, configs, voters } => {
                self.leader = leader;
                self.voters = voters;
                self.configs = configs;
                self.voted.extend(self.voters.iter().copied());
                self.voted.retain(|&id| self.voters.contains(&id) || self.configs.node(id).is_some());
                // A leader with a shorter lease than the others' would remove a member whose lease still runs (trap 63).
                if !allows!(self.settings.guards, KeepOwnTimes) {
                    self.settings.adopt(self.configs.timing());
                }
                self.follow_log(now, leads);
            }
            CoordinatorInput::Renewal { from, renewal } => {
                self.reached(from);
                self.renewal(now, from, renewal);
            }
            CoordinatorInput::Confirmed { round, leads, answered } => self.confirmed(now, round, leads, answered),
            CoordinatorInput::Reached { by } => self.reached(by),
            CoordinatorInput::Appended { at, fate } => self.appended(now, at, fate),
            CoordinatorInput::Reorder { token, chain, order } => self.reorder(now, token, chain, order),
            CoordinatorInput::AcceptLoss { token, chain } => self.accept_loss(now, token, chain),
            CoordinatorInput::Outranked { by } => self.outranked(now, by),
            CoordinatorInput::GiveUp { token } => self.give_up(now, token),
            CoordinatorInput::VotersSet => {
                if let Some(leading) = &mut self.leading {
                    leading.sets_voters = false;
                    leading.voters_pause = now + self.settings.tick;
                }
            }
            CoordinatorInput::Tick => {}
        }
        self.decide(now);
    }

    /// After a pause of this node no member was heard for a while, and messages that come now may be as old as the pause. So
    /// the leader starts to observe anew, as if its term had just begun (trap 42).
    fn wake(&mut self, now: Timestamp) {
        let slept = now - self.awake >= self.settings.suspect / 2;
        self.awake = now;
        if let Some(leading) = self.leading.as_mut().filter(|_| slept) {
            leading.since = now;
            leading.nodes.values_mut().for_each(|seen| seen.wake(now));
        }
    }

    fn follow_log(&mut self, now: Timestamp, leads: Option<Term>) {
        let leads = leads.filter(|&term| !self.has_given_up(term));
        let keeps = |leading: &LeaderTerm| Some(leading.term) == leads;
        if !self.leading.as_ref().is_some_and(keeps) {
            self.end_term();
            self.leading = leads.map(|term| LeaderTerm::new(term, now));
        }
        let applied = self.configs.applied();
        if let Some(leading) = &mut self.leading
            && leading.proposal.as_ref().is_some_and(|proposal| proposal.at <= applied)
        {
            leading.proposal = None;
        }
    }

    fn end_term(&mut self) {
        self.end_reorder();
        self.end_loss();
        self.end_giving_up();
        self.leading = None;
    }

    fn appended(&mut self, now: Timestamp, at: LogIndex, fate: ProposalFate) {
        let applied = self.configs.applied();
        let Some(leading) = &mut self.leading else { return };
        let Some(proposal) = leading.proposal.as_mut().filter(|proposal| proposal.at == at) else { return };
        match fate {
            // The outcome is known once the entry at that place has been applied here.
            ProposalFate::Decided if at > applied => {}
            ProposalFate::Decided => leading.proposal = None,
            ProposalFate::Refused if proposal.unknown && !allows!(self.settings.guards, ForgetUnknown) => {
                proposal.ask_again = Some(now + self.settings.tick);
            }
            ProposalFate::Refused => {
                leading.proposal = None;
                leading.pause = now + self.settings.tick;
            }
            ProposalFate::Unknown => {
                proposal.unknown = true;
                proposal.ask_again = Some(now + self.settings.tick);
            }
        }
    }

    /// Fences members, proposes the next change, and keeps the log's voters among living nodes.
    fn decide(&mut self, now: Timestamp) {
        self.give_up_unreachable(now);
        let Some(term) = self.leads() else { return };
        self.follow_reorder(now);
        self.judge(now);
        self.fence(now);
        self.follow_loss(now);
        self.follow_sealing(now);
        self.keep_voters(now, term);
        self.warn_of_voters(now);
        let Some(leading) = &mut self.leading else { return };
        if let Some(proposal) = &mut leading.proposal {
            if proposal.ask_again.take_if(|at| *at <= now).is_some() {
                let (at, change, why) = (proposal.at, proposal.change.clone(), proposal.why.clone());
                self.outputs.push_back(CoordinatorOutput::Append { term, at, change, why });
            }
            return;
        }
        if now < leading.pause {
            return;
        }
        let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
        let Some((change, why)) = view.change(&self.configs) else { return };
        let at = self.configs.applied().next();
        leading.proposal =
            Some(PendingProposal { at, change: change.clone(), why: why.clone(), ask_again: None, unknown: false });
        self.outputs.push_back(CoordinatorOutput::Append { term, at, change, why });
    }

    /// Fences members that are to be removed, and ends the fence of those that are back. While a proposal is under way no fence
    /// ends: a lease renewed meanwhile could run when the removal is decided (trap 35).
    fn fence(&mut self, now: Timestamp) {
        let Some(leading) = &mut self.leading else { return };
        let proposed = leading.proposal.is_some() && !allows!(self.settings.guards, RenewWhileDeciding);
        let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
        let serving = self.configs.iter().flat_map(|config| config.serving());
        let gone = serving.filter(|&id| view.is_gone(id));
        let gone: BTreeSet<_> = gone.chain(gray_failure::blamed(&leading.watched)).collect();
        leading.fenced.retain(|id, _| proposed || gone.contains(id));
        for id in gone {
            leading.fenced.entry(id).or_insert(self.rounds);
        }
    }
}

impl LeaderTerm {
    fn new(term: Term, now: Timestamp) -> Self {
        Self {
            term,
            since: now,
            nodes: BTreeMap::new(),
            fenced: BTreeMap::new(),
            watched: BTreeMap::new(),
            reorder: None,
            loss: None,
            sealing: Sealing::default(),
            grants: Grants::default(),
            proposal: None,
            pause: Timestamp::ZERO,
            sets_voters: false,
            added: BTreeSet::new(),
            voters_pause: Timestamp::ZERO,
            answered: BTreeMap::new(),
            unheard: None,
            warned: None,
        }
    }

    fn view<'a>(
        &'a self,
        now: Timestamp,
        me: MemberId,
        voters: &'a BTreeSet<MemberId>,
        settings: &'a CoordinatorSettings,
        outside: &'a BTreeMap<NodeId, Quarantine>,
    ) -> View<'a> {
        let Self {
            since, ref nodes, ref answered, ref fenced, ref watched, ref reorder, ref loss, ref sealing, ..
        } = *self;
        let (confirmed, reorder, loss) = (self.grants.confirmed(), reorder.as_ref(), loss.as_ref());
        View {
            now,
            me,
            voters,
            since,
            nodes,
            answered,
            fenced,
            confirmed,
            watched,
            reorder,
            loss,
            sealing,
            outside,
            settings,
        }
    }
}
