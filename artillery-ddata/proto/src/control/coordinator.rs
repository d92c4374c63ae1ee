//! The decisions of the configuration log's leader: leases, removals, joiners and promotions. Sans-IO.
//!
//! Every node that keeps the log has a [`Coordinator`]; it acts while its node leads. Pass events to
//! [`Coordinator::handle`], take outputs from [`Coordinator::poll_output`] until it returns `None`, and pass
//! [`CoordinatorInput::Tick`] at [`Coordinator::next_tick`].
//!
//! A model showed each of these rules to be necessary (docs/DESIGN.md §5 and §6):
//!
//! - A lease is granted only once a quorum has confirmed, *after the renewal was received*, that this node still leads
//!   (module `answers`).
//! - A member is *fenced* before its removal: its lease isn't renewed until the proposal to remove it is decided. The
//!   proposal waits until the last lease has certainly expired, by this node's clock and the bound on drift, unless the
//!   member has resigned. It is valid only in the term of the fence.
//! - A new leader doesn't know the leases that others granted. So it waits for one full lease plus drift before it
//!   removes a member that hasn't resigned.
//! - A member is removed only after a quorum has confirmed this node in a round that began after the fence, unless the
//!   member itself has resigned. Otherwise this node may be the one that receives nothing, while its proposals arrive
//!   (trap 51).
//! - A leader that receives renewals from no majority of the voters removes no member that hasn't resigned, even if a
//!   quorum confirms it: the leader is the one that can't be reached (module `one_way`).
//! - A serving member is removed only while another one is proven to be alive: it has shown a recent answer of this
//!   leader, or is this node. A message alone may be old, because of a pause of this node or a delay in the network
//!   (trap 42). If no serving member is alive, only `reopen` and `accepted_loss` replace them.
//! - Every change of a chain names the epoch that it replaces, and at most one proposal is in flight.
//!
//! A coordinator consists of parts, each of which owns its state. A part receives its inputs as arguments, and calls
//! only parts below it:
//!
//! ```text
//! coordinator → plan, settled → reorder, accepted_loss, give_way, suspicion → gray_failure → quarantine, paths
//!             → voters, one_way, grants, proposal
//! all of them → leave, reopen → view → cluster, known_node
//! ```
//!
//! [`Coordinator`] alone passes effects from part to part: this file has the inputs and the order of decisions,
//! `answers` the answers to renewals. [`View`] is the knowledge at the time of a decision, which no part changes.

mod accepted_loss;
mod answers;
mod cluster;
mod give_way;
mod grants;
mod gray_failure;
mod known_node;
mod leave;
mod one_way;
mod paths;
mod plan;
mod proposal;
mod quarantine;
mod reason;
mod reopen;
mod reorder;
mod settings;
mod settled;
mod suspicion;
#[cfg(test)]
mod tests;
mod types;
mod view;
mod voters;

use std::collections::{BTreeSet, VecDeque};

pub(crate) use self::types::CoordinatorInput;
use self::{
    cluster::Cluster,
    grants::Grants,
    one_way::Reach,
    plan::{Orders, change},
    proposal::Proposal,
    suspicion::Suspicions,
    view::{Nodes, View},
    voters::VoterChange,
};
pub use self::{
    reason::{ChangeReason, Why},
    settings::CoordinatorSettings,
    types::{CoordinatorOutput, LogWarning, ProposalFate},
};
use super::{
    log::Term,
    message::{NotGivenUp, ReorderError},
    reopening::NotReopened,
};
use crate::{MemberId, NodeId, Timestamp};

/// Grants leases and changes configurations while its node leads.
#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(crate) struct Coordinator {
    cluster: Cluster,
    leading: Option<LeaderTerm>,
    grants: Grants,
    suspicions: Suspicions,
    reach: Reach,
    /// The time of the last input: after a pause this node's knowledge is out of date.
    awake: Timestamp,
    /// When the report of another cluster expires, to which this one gives way if it is empty; `None`: no report is
    /// valid.
    outranked: Option<Timestamp>,
    outputs: VecDeque<CoordinatorOutput>,
}

#[derive(Clone, Default, Debug)]
struct LeaderTerm {
    term: Term,
    nodes: Nodes,
    orders: Orders,
    proposal: Proposal,
    voters: VoterChange,
}

impl Coordinator {
    /// For a node that keeps the log, or may keep it later.
    pub(crate) fn new(me: MemberId, settings: CoordinatorSettings) -> Self {
        Self {
            cluster: Cluster::new(me, settings),
            leading: None,
            grants: Grants::default(),
            suspicions: Suspicions::default(),
            reach: Reach::default(),
            awake: Timestamp::ZERO,
            outranked: None,
            outputs: VecDeque::new(),
        }
    }

    /// Test-only: writes every field that affects behaviour, without the settings and the content of the log's entries.
    /// Two coordinators with equal output, settings and logs behave identically.
    #[cfg(feature = "mutants")]
    pub(crate) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        // Destructured, so that a new field doesn't compile until it is handled here.
        let Self { cluster, leading, grants, suspicions, reach, awake, outranked, outputs } = self;
        // Only a leader discards observations after a pause.
        let awake = leading.as_ref().map(|_| awake);
        write!(out, "{:?}", (cluster.described(), leading, grants, suspicions, reach))?;
        write!(out, "{:?}", (awake, outranked, outputs))
    }

    pub(crate) fn leads(&self) -> Option<Term> {
        self.leading.as_ref().map(|leading| leading.term)
    }

    /// Whether a proposal is in flight: neither decided nor known to be refused.
    pub(crate) fn proposes(&self) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.proposal.is_pending())
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn fences(&self, id: MemberId) -> bool {
        self.leading.as_ref().is_some_and(|leading| leading.nodes.fence_of(id).is_some())
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn highest_watermark(&self, chain: crate::ChainId, now: Timestamp) -> Option<crate::Sequence> {
        let view = View::new(now, &self.cluster, &self.leading.as_ref()?.nodes);
        Some(reopen::highest_watermark(view, view.configs().get(chain)?))
    }

    /// The quarantined nodes: they stalled a chain, and may not return behind `tail` yet (docs/DESIGN.md §5.9).
    pub(crate) fn kept_away(&self, now: Timestamp, tail: Option<MemberId>) -> impl Iterator<Item = NodeId> + '_ {
        self.suspicions.outside().kept_away(now, tail)
    }

    pub(crate) fn poll_output(&mut self) -> Option<CoordinatorOutput> {
        self.outputs.pop_front()
    }

    /// When [`CoordinatorInput::Tick`] is due, as of `now`.
    pub(crate) fn next_tick(&self, now: Timestamp) -> Option<Timestamp> {
        self.leading.as_ref().map(|_| now + self.cluster.settings().tick)
    }

    pub(crate) fn handle(&mut self, now: Timestamp, input: CoordinatorInput) {
        self.wake(now);
        match input {
            CoordinatorInput::Log { leads, leader, configs, voters } => {
                self.cluster.follow(leader, configs, voters);
                self.follow_log(now, leads);
            }
            CoordinatorInput::Renewal { from, renewal } => {
                self.reached(from);
                self.renewal(now, from, renewal);
            }
            CoordinatorInput::Confirmed { round, leads, answered } => self.confirmed(now, round, leads, answered),
            CoordinatorInput::Reached { by } => self.reached(by),
            CoordinatorInput::Outranked { by } => {
                self.outranked = by.map(|_| give_way::valid_until(now, self.cluster.settings().lease));
            }
            CoordinatorInput::Appended { at, fate } => {
                if let Some(leading) = &mut self.leading {
                    leading.proposal.appended(View::new(now, &self.cluster, &leading.nodes), at, fate);
                }
            }
            CoordinatorInput::VotersSet => {
                if let Some(leading) = &mut self.leading {
                    leading.voters.end(now + self.cluster.settings().tick);
                }
            }
            CoordinatorInput::Tick => {}
            order => self.order(now, order),
        }
        self.decide(now);
    }

    /// Begins an operator's order, or answers with the reason why it can't.
    fn order(&mut self, now: Timestamp, input: CoordinatorInput) {
        let (cluster, leader, leading) = (&self.cluster, self.cluster.leader(), self.leading.as_mut());
        let refusal = match input {
            CoordinatorInput::Reorder { token, chain, order } => {
                let result = leading.map_or(Err(ReorderError::NotLeading { leader }), |leading| {
                    leading.orders.reorder.begin(View::new(now, cluster, &leading.nodes), token, chain, order)
                });
                result.transpose().map(|result| CoordinatorOutput::Reordered { token, result })
            }
            CoordinatorInput::AcceptLoss { token, chain } => {
                let result = leading.map_or(Err(NotReopened::NotLeading { leader }), |leading| {
                    leading.orders.loss.begin(View::new(now, cluster, &leading.nodes), token, chain)
                });
                result.err().map(|why| CoordinatorOutput::Reopened { token, result: Err(why) })
            }
            CoordinatorInput::GiveUp { token } => {
                let result = leading.map_or(Err(NotGivenUp::NotLeading { leader }), |leading| {
                    leading.orders.sealing.begin(View::new(now, cluster, &leading.nodes), token)
                });
                result.err().map(|why| CoordinatorOutput::GivenUp { token, result: Err(why) })
            }
            _ => None,
        };
        self.outputs.extend(refusal);
    }

    /// During a pause this node received nothing, so the leader restarts its observation.
    fn wake(&mut self, now: Timestamp) {
        let slept = now - self.awake >= self.cluster.settings().suspect / 2;
        self.awake = now;
        if let Some(leading) = self.leading.as_mut().filter(|_| slept) {
            leading.nodes.wake(now);
        }
    }

    fn follow_log(&mut self, now: Timestamp, leads: Option<Term>) {
        let leads = leads.filter(|&term| !self.reach.has_given_up(term));
        if self.leads() != leads {
            self.end_term();
            self.leading = leads.map(|term| LeaderTerm { term, nodes: Nodes::new(now), ..LeaderTerm::default() });
        }
        if let Some(leading) = &mut self.leading {
            leading.proposal.applied(self.cluster.configs().applied());
        }
    }

    /// Ends the term and the orders in progress: their operators must ask the new leader. If a proposal is in flight,
    /// it may be the change of an order, and may still be committed under the next leader.
    fn end_term(&mut self) {
        let leader = self.cluster.leader();
        if let Some(LeaderTerm { proposal, mut orders, .. }) = self.leading.take() {
            let (reorder, loss, sealing) = match proposal.is_pending() {
                true => (ReorderError::Undecided, NotReopened::Undecided, NotGivenUp::Undecided),
                false => (
                    ReorderError::NotLeading { leader },
                    NotReopened::NotLeading { leader },
                    NotGivenUp::NotLeading { leader },
                ),
            };
            self.outputs.extend(orders.reorder.end(Err(reorder)));
            self.outputs.extend(orders.loss.end(Err(loss)));
            self.outputs.extend(orders.sealing.end(Err(sealing)));
        }
        self.grants.end_term();
        self.suspicions.end_term();
        self.reach.end_term();
    }

    fn reached(&mut self, by: MemberId) {
        if self.reach.is_restored(&self.cluster, by) {
            self.outputs.push_back(CoordinatorOutput::Stand);
        }
    }

    fn decide(&mut self, now: Timestamp) {
        let (cluster, outputs) = (&self.cluster, &mut self.outputs);
        let Some(leading) = &mut self.leading else { return };
        let term = leading.term;
        let view = View::new(now, cluster, &leading.nodes);
        if self.reach.is_unreachable(view, self.grants.rounds()) {
            self.end_term();
            self.reach.resign(term);
            return self.outputs.push_back(CoordinatorOutput::Resign { term });
        }
        let proposes = leading.proposal.is_pending();
        outputs.extend(leading.orders.reorder.follow(view, proposes));
        self.suspicions.judge(view);
        // While a proposal is in flight, no fence ends: a lease that is renewed before the decision could still run
        // after the removal (trap 35).
        let keeps_fences = proposes && !allows!(cluster.guards(), RenewWhileDeciding);
        let serving = cluster.configs().iter().flat_map(|config| config.serving());
        let gone: BTreeSet<_> = serving.filter(|&id| view.is_gone(id)).chain(self.suspicions.blamed()).collect();
        leading.nodes.fence(gone, keeps_fences, self.grants.rounds());
        let view = View::new(now, cluster, &leading.nodes);
        outputs.extend(leading.orders.loss.follow(view, proposes));
        self.outranked.take_if(|until| *until <= now);
        outputs.extend(leading.orders.sealing.follow(view, self.outranked.is_some()));
        let voters = leading.voters.begin(view);
        outputs.extend(voters.map(|voters| CoordinatorOutput::SetVoters { term, voters }));
        outputs.extend(leading.voters.warning(view).map(CoordinatorOutput::Warn));
        outputs.extend(leading.proposal.again(now));
        if !leading.proposal.may_begin(now) {
            return;
        }
        if let Some((change, why)) = change(view, &leading.orders, &self.suspicions) {
            let at = cluster.configs().applied().next();
            outputs.push_back(leading.proposal.begin(at, CoordinatorOutput::Append { term, at, change, why }));
        }
    }
}
