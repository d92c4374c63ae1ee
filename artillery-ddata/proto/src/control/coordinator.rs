//! The decisions of the configuration log's leader: leases, removals, joiners and promotions. Sans-IO.
//!
//! Every node that keeps the log has a [`Coordinator`]; it acts while its node leads. Pass events to
//! [`Coordinator::handle`], take outputs from [`Coordinator::poll_output`] until it returns `None`, and pass
//! [`CoordinatorInput::Tick`] at [`Coordinator::next_tick`].
//!
//! A model showed each of these rules to be necessary (docs/DESIGN.md §5 and §6):
//!
//! - A lease is granted only once a quorum has confirmed, *after the renewal was received*, that this node still leads
//!   (module `grants`).
//! - A member is *fenced* before its removal: its lease is not renewed, and the proposal waits until the last one has
//!   certainly expired, by this node's clock and the bound on drift. No lease of it is renewed until the proposal is
//!   decided, and the proposal is valid only in the term of the fence.
//! - A new leader doesn't know the leases that others granted. So it waits for one full lease plus drift before it
//!   removes a member.
//! - A member is removed only after a quorum has confirmed this node in a round that began after the fence, unless the
//!   member itself has resigned. Otherwise this node may be the one that receives nothing, while its proposals arrive
//!   (trap 51).
//! - A leader that receives renewals from no majority of the voters removes no member, even if a quorum confirms it:
//!   the leader is the one that can't be reached (module `one_way`).
//! - A member is removed only while another serving member is proven to be alive: it has shown a recent answer of this
//!   leader. A message alone may be old, because of a pause of this node or a delay in the network (trap 42).
//! - Every proposal names the epoch that it replaces, and at most one is in flight.

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

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CoordinatorInput {
    Log {
        /// The term in which this node leads, if it does.
        leads: Option<Term>,
        leader: Option<MemberId>,
        /// The configurations after the last entry applied here.
        configs: Arc<Configs>,
        voters: BTreeSet<MemberId>,
    },
    Renewal {
        /// The sender, verified by the driver.
        from: MemberId,
        renewal: Renewal,
    },
    /// The round of [`CoordinatorOutput::Confirm`] has ended.
    Confirmed {
        round: u64,
        /// Whether a quorum has confirmed that this node still led after the round began.
        leads: bool,
        /// Per node of the log's group: when the latest message that it has answered was sent.
        answered: BTreeMap<MemberId, Timestamp>,
    },
    /// A node has sent a message of the log's group on a connection that it dialled.
    Reached {
        by: MemberId,
    },
    /// [`CoordinatorOutput::Append`] has ended.
    Appended {
        at: LogIndex,
        fate: ProposalFate,
    },
    /// An operator's order of a chain's serving members. Answered by [`CoordinatorOutput::Reordered`].
    Reorder {
        token: u64,
        chain: ChainId,
        /// All of its serving members, head first.
        order: Vec<MemberId>,
    },
    /// An operator accepts the loss of every update of a chain that is missing from all available stores. Answered by
    /// [`CoordinatorOutput::Reopened`].
    AcceptLoss {
        token: u64,
        chain: ChainId,
    },
    /// The cluster of this one's name and secret to which this one gives way if it is empty; `None`: no such cluster is
    /// met. The caller repeats it: it is valid for three leases.
    Outranked {
        by: Option<ClusterId>,
    },
    /// An operator gives this cluster up in favour of another one, and its data are lost. Answered by
    /// [`CoordinatorOutput::GivenUp`].
    GiveUp {
        token: u64,
    },
    /// [`CoordinatorOutput::SetVoters`] has ended, successfully or not.
    VotersSet,
    Tick,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProposalFate {
    /// The index is taken, by the proposal or by another entry: read the log to find out.
    Decided,
    /// The proposal will never be in the log.
    Refused,
    /// The proposal may be in the log or not.
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CoordinatorOutput {
    Answer {
        to: MemberId,
        renewed: Renewed,
    },
    /// Check, from now on, whether this node still leads in this term. One round at a time.
    Confirm {
        round: u64,
        term: Term,
    },
    /// Propose a change. One proposal at a time.
    Append {
        /// The proposal is valid only in this term.
        term: Term,
        /// The index that it must take.
        at: LogIndex,
        change: ConfigChange,
        /// For operators.
        why: Vec<ChangeReason>,
    },
    Reordered {
        token: u64,
        /// The epoch of the configuration with that order.
        result: Result<Epoch, ReorderError>,
    },
    Reopened {
        token: u64,
        result: Result<Reopened, NotReopened>,
    },
    GivenUp {
        token: u64,
        /// `Ok`: the cluster has given way.
        result: Result<(), NotGivenUp>,
    },
    /// Replace the voters of the log's group. One such change at a time.
    SetVoters {
        /// The change is valid only in this term.
        term: Term,
        voters: BTreeSet<MemberId>,
    },
    /// Resign the leadership of this term, and be no candidate until [`CoordinatorOutput::Stand`].
    Resign {
        term: Term,
    },
    /// This node may lead again, in a later term.
    Stand,
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
    /// The time of the last input: after a pause this node's knowledge is out of date.
    awake: Timestamp,
    /// Quarantined nodes: they were moved out because they stalled a chain.
    outside: BTreeMap<NodeId, Quarantine>,
    /// Set while this node, after its resignation as leader, has not been reached by a majority of the voters.
    unreachable: Option<Unreachable>,
    /// The last term in which this node resigned its leadership.
    given_up: Option<Term>,
    /// The known nodes of the cluster that are or were voters.
    voted: BTreeSet<MemberId>,
    /// The cluster to which this one gives way if it is empty.
    outranked: Option<Outranked>,
    outputs: VecDeque<CoordinatorOutput>,
}

#[derive(Clone, Debug)]
struct LeaderTerm {
    term: Term,
    since: Timestamp,
    nodes: BTreeMap<MemberId, KnownNode>,
    /// Members to be removed, which get no lease, each with the last round that began before its fence.
    fenced: BTreeMap<MemberId, u64>,
    watched: BTreeMap<ChainId, Watched>,
    reorder: Option<Wish>,
    loss: Option<LossOrder>,
    sealing: Sealing,
    grants: Grants,
    proposal: Option<PendingProposal>,
    /// The earliest time for a proposal, after a refusal.
    pause: Timestamp,
    sets_voters: bool,
    /// Nodes that the last change of voters adds. They may not know of it yet.
    added: BTreeSet<MemberId>,
    /// The earliest time for a change of voters: the log may not show the outcome of the last one yet.
    voters_pause: Timestamp,
    /// Per node: when the latest message of the log that it has answered was sent.
    answered: BTreeMap<MemberId, Timestamp>,
    unheard: Option<Unheard>,
    warned: Option<LogWarning>,
}

#[derive(Clone, Debug)]
struct PendingProposal {
    at: LogIndex,
    change: ConfigChange,
    why: Vec<ChangeReason>,
    /// When to append the proposal again, because it may be in the log or not.
    ask_again: Option<Timestamp>,
    /// An earlier append of the proposal has an unknown outcome, which the refusal of a later append doesn't settle. So
    /// the proposal stays unknown until its index is decided, or for the rest of the term (trap 66).
    unknown: bool,
}

impl Coordinator {
    /// For a node that keeps the log, or may keep it later.
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

    /// Test-only: writes every field that affects behaviour, without the settings and the content of the log's entries.
    /// Two coordinators with equal output and the same log behave identically.
    #[cfg(feature = "mutants")]
    pub(crate) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        // Destructured, so that a new field doesn't compile until it is handled here.
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
        // Only a leader discards observations after a pause.
        let awake = leading.as_ref().map(|_| awake);
        write!(out, "{:?}", (me, configs.applied(), leader, voters, leading, outside, unreachable, given_up, voted))?;
        write!(out, "{:?}", (rounds, awake, outranked, outputs))
    }

    pub(crate) fn leads(&self) -> Option<Term> {
        self.leading.as_ref().map(|leading| leading.term)
    }

    /// Whether a proposal is in flight: neither decided nor known to be refused.
    pub(crate) fn proposes(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.proposal.is_some())
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn fences(&self, id: MemberId) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.fenced.contains_key(&id))
    }

    pub(crate) fn poll_output(&mut self) -> Option<CoordinatorOutput> {
        self.outputs.pop_front()
    }

    /// When [`CoordinatorInput::Tick`] is due, as of `now`.
    pub(crate) fn next_tick(&self, now: Timestamp) -> Option<Timestamp> {
        self.leading.as_ref().map(|_| now + self.settings.tick)
    }

    pub(crate) fn handle(&mut self, now: Timestamp, input: CoordinatorInput) {
        self.wake(now);
        match input {
            CoordinatorInput::Log { leads, leader, configs, voters } => {
                self.leader = leader;
                self.voters = voters;
                self.configs = configs;
                self.voted.extend(self.voters.iter().copied());
                self.voted.retain(|&id| self.voters.contains(&id) || self.configs.node(id).is_some());
                // A leader with a shorter lease than others would remove a member whose lease still runs (trap 63).
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

    /// During a pause this node received nothing, and messages that arrive after it may be as old as the pause. So the
    /// leader restarts its observation, as if its term had just begun (trap 42).
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
            // The outcome is known once the entry at that index has been applied here.
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

    /// Fences members that should be removed, and ends the fence of those that have recovered. While a proposal is in
    /// flight no fence ends: a lease that is renewed before the decision could still run after the removal (trap 35).
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
