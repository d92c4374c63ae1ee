//! The behaviour of a node when no incarnation that ever served answers, and when another cluster succeeds its own
//! (docs/DESIGN.md §5.13).
//!
//! A node that never served, and has received nothing from serving members for a lease, asks the serving members. A
//! node that has served asks only once it learns of a cluster that succeeds its own.

use std::collections::{BTreeMap, BTreeSet};

use super::{NodeEvent, NodeMachine, NodeOutput, Successor, Unready};
use crate::{
    ChainConfig, ClusterId, MemberId, Timestamp,
    control::{History, MAX_LINEAGE, Relation, message::StoreHolding},
    runner::ChainOrder,
};

/// A node that never served treats the serving members as gone after this many leases without a message of any of them.
const ORPHANED_LEASES: u32 = 3;

/// The maximum number of nodes that are asked at a time whether they are alive.
const MAX_ASKED_NODES: usize = 4;

/// A node's knowledge of the other serving members, and of clusters that succeed its own.
#[derive(Clone, Default, Debug)]
pub(super) struct Company {
    /// The time of the last message of another serving member, or of this node's start.
    quiet_since: Option<Timestamp>,
    /// For each serving member, when the latest question that it has answered was asked.
    answered: BTreeMap<MemberId, Timestamp>,
    /// When to check next whether the serving members are alive.
    look_at: Option<Timestamp>,
    /// The serving member that was last asked alone.
    probed: Option<MemberId>,
    /// The nodes that were asked and may still answer.
    asked: BTreeSet<MemberId>,
    succession: Option<Succession>,
    /// Statements of other clusters that this node permanently refuses, since a node of its own cluster has refuted
    /// them: the cluster, and whether it stated that this node's cluster gave way.
    refused: BTreeSet<(ClusterId, bool)>,
    /// The node has reported that it may end, since another cluster succeeds its own.
    is_over: bool,
}

/// A pending decision between the node's cluster and the one that claims to succeed it.
#[derive(Clone, Debug)]
struct Succession {
    by: ClusterId,
    /// The other cluster states that this node's cluster has given way by an entry of its log. Nodes that were away
    /// don't have the entry: only a leader with a confirmed quorum refutes the statement.
    gave_way: bool,
    /// Only answers to questions asked after this time show that a node is alive: others may have been delayed for
    /// long.
    since: Timestamp,
    /// When to decide, or check again.
    look_at: Timestamp,
    rounds: u32,
    /// The nodes that may still answer in this round.
    waits: BTreeSet<MemberId>,
}

impl Company {
    /// When the latest question that the serving member `id` has answered was asked. The member was alive after that,
    /// however long its answer took.
    pub(super) fn answered(&self, id: MemberId) -> Option<Timestamp> {
        self.answered.get(&id).copied()
    }
}

impl NodeMachine {
    /// Another cluster claims to succeed this node's: this node must give way, unless another node of its own cluster
    /// answers.
    pub(super) fn succeeded(&mut self, now: Timestamp, by: ClusterId) {
        self.succeeded_by(now, by, false);
    }

    /// Another cluster states that this node's cluster has given way to it.
    pub(super) fn gave_way(&mut self, now: Timestamp, by: ClusterId) {
        self.succeeded_by(now, by, true);
    }

    fn succeeded_by(&mut self, now: Timestamp, by: ClusterId, gave_way: bool) {
        if self.company.succession.is_some() || self.company.refused.contains(&(by, gave_way)) {
            return;
        }
        self.company.succession =
            Some(Succession { by, gave_way, since: now, look_at: now, rounds: 0, waits: BTreeSet::new() });
        self.state.successor = Some(Successor { by, yields: false });
        self.ask_own(now);
        if allows!(self.guards, YieldAtOnce) {
            self.give_way(now, by);
        }
    }

    pub(super) fn yields(&self) -> bool {
        self.state.gives_way().is_some()
    }

    pub(super) fn order_to_yield(&mut self) {
        if let Some(refusal) = self.state.gives_way() {
            self.order_all(&ChainOrder::Yield { refusal });
        }
    }

    /// The cluster continues in a newer history, where commits in this node's store may be missing. Neither a process
    /// nor a disk can decide which of the two should survive: the node keeps its data, and serves nothing, until an
    /// operator has decided.
    pub(super) fn parted(&mut self, by: History) {
        if by.relation(self.holder.configs().history()) != Relation::Newer {
            return;
        }
        if self.state.parted.replace(by).is_none() {
            self.leaving.take_back_word();
            self.order_to_yield();
        }
        self.state.unready = Some(Unready::Parted { by });
    }

    /// Whether another node has a role in the current configuration: it serves, joins, or is a voter.
    pub(super) fn is_own(&self, id: MemberId) -> bool {
        id != self.me && self.has_part(id)
    }

    fn has_part(&self, id: MemberId) -> bool {
        self.holder.configs().names_store(id) || self.voters.iter().any(|voter| voter.shares_store(id))
    }

    fn serving(&self) -> BTreeSet<MemberId> {
        self.holder.configs().iter().flat_map(|config| config.serving()).filter(|&id| id != self.me).collect()
    }

    /// Asks all nodes that have a role, and checks again when they have had a lease to answer.
    fn ask_own(&mut self, now: Timestamp) {
        let configs = self.holder.configs();
        let named = configs.iter().flat_map(|config| config.members.iter().map(|member| member.id));
        let own: BTreeSet<_> = named.chain(self.voters.iter().copied()).filter(|&id| id != self.me).collect();
        let look_at = now + configs.timing().lease_and_drift();
        self.holder.ask(now, own.iter().copied().filter(|id| !self.company.asked.contains(id)));
        if let Some(succession) = &mut self.company.succession {
            (succession.look_at, succession.rounds, succession.waits) = (look_at, succession.rounds + 1, own);
        }
    }

    /// Whether another node may be asked now, in addition to the unanswered ones.
    pub(super) fn may_ask(&self) -> bool {
        self.company.asked.len() < MAX_ASKED_NODES
    }

    pub(super) fn asks(&mut self, id: MemberId) {
        self.company.asked.insert(id);
    }

    /// A renewal to node `id` has ended. Returns whether it was a question of [`asks`](Self::asks).
    pub(super) fn was_asked(&mut self, id: MemberId) -> bool {
        if let Some(succession) = &mut self.company.succession {
            succession.waits.remove(&id);
        }
        self.company.asked.remove(&id)
    }

    /// A message of another node was received.
    pub(super) fn hear_company(&mut self, now: Timestamp, from: MemberId) {
        // Later incarnations are accepted too: one that is still loading its directory reports nothing about its
        // chains.
        if self.serving().iter().any(|id| id.shares_store(from)) {
            self.company.quiet_since = Some(now);
            self.company.look_at = Some(now + self.holder.configs().timing().lease);
            self.state.member_heard = now;
            self.state.orphaned = false;
        }
    }

    /// A node has answered the question asked at `sent`. A leader with a confirmed quorum belongs to this cluster, even
    /// if this node doesn't know it as a voter.
    pub(super) fn hear_answer(&mut self, from: MemberId, sent: Timestamp, leads: bool) {
        let serving = self.serving();
        self.company.answered.retain(|id, _| serving.contains(id));
        if serving.contains(&from) {
            let last = self.company.answered.entry(from).or_insert(sent);
            *last = sent.max(*last);
        }
        let is_own = self.is_own(from) || (leads && from != self.me);
        let any_refutes = allows!(self.guards, AnyAnswerRefutes);
        let refutes = |known: &Succession| if known.gave_way && !any_refutes { leads } else { is_own };
        let known = self.company.succession.as_ref().filter(|known| refutes(known) && sent >= known.since);
        if let Some(by) = known.map(|known| known.by) {
            self.refuse(by);
        }
    }

    /// Refuses the other cluster permanently: it was created while this one was alive. The later fate of either cluster
    /// doesn't change that.
    fn refuse(&mut self, by: ClusterId) {
        if allows!(self.guards, YieldAtOnce) {
            return;
        }
        let gave_way = self.company.succession.take().is_some_and(|known| known.gave_way);
        // This many clusters are never created. If they were, the node would decide again about a forgotten one.
        if self.company.refused.len() >= MAX_LINEAGE {
            self.company.refused.pop_first();
        }
        self.company.refused.insert((by, gave_way));
        let yielded = self.state.successor.is_some_and(|successor| successor.yields);
        self.state.successor = Some(Successor { by, yields: false });
        self.outputs.push_back(NodeOutput::Event(NodeEvent::Refuses { by }));
        if yielded && self.state.parted.is_none() {
            self.order_all(&ChainOrder::Proceed);
            self.outputs.push_back(NodeOutput::Event(NodeEvent::GoesOn { by }));
        }
    }

    /// An operator has chosen this node to continue under a new history: that overrides the node's own decision.
    pub(super) fn begin_history(&mut self) {
        self.leaving.goes_on_alone();
        if self.state.parted.take().is_some() {
            self.order_all(&ChainOrder::Proceed);
        }
        if let Some(Successor { by, .. }) = self.state.successor {
            self.refuse(by);
        }
    }

    /// A new node has received no message yet: its time without a message begins now.
    pub(super) fn begin_to_look(&mut self, now: Timestamp) {
        self.company.quiet_since.get_or_insert(now);
        self.company.look_at.get_or_insert(now + self.holder.configs().timing().lease);
    }

    pub(super) fn company_at(&self) -> Option<Timestamp> {
        let looks = self.company.look_at.filter(|_| !self.has_served());
        [looks, self.decides_at()].into_iter().flatten().min()
    }

    fn decides_at(&self) -> Option<Timestamp> {
        self.company.succession.as_ref().filter(|_| !self.company.is_over).map(|succession| succession.look_at)
    }

    /// Looks for serving members, and decides whether this node gives way to a cluster that succeeds its own.
    pub(super) fn look_for_company(&mut self, now: Timestamp) {
        if self.decides_at().is_some_and(|at| at <= now) {
            self.decide_on_successor(now);
        }
        if !self.has_served() && self.company.look_at.is_some_and(|at| at <= now) {
            self.look_for_members(now);
        }
    }

    /// After one lease without a message of a serving member, asks one of them; after two, all; after three, treats
    /// them as gone.
    fn look_for_members(&mut self, now: Timestamp) {
        let lease = self.holder.configs().timing().lease;
        if self.is_late(now, self.company.look_at) {
            self.company.quiet_since = Some(now);
        }
        let since = *self.company.quiet_since.get_or_insert(now);
        self.company.look_at = Some(now + lease);
        let serving = self.serving();
        if now - since < lease {
            return;
        }
        if now - since < lease * 2 {
            let next = serving.iter().find(|&&id| self.company.probed.is_none_or(|last| id > last));
            self.company.probed = next.or(serving.first()).copied();
            let probed = self.company.probed.filter(|id| !self.company.asked.contains(id));
            return self.holder.ask(now, probed);
        }
        self.ask_members(now);
        if now - since >= lease * ORPHANED_LEASES && !std::mem::replace(&mut self.state.orphaned, true) {
            self.state.unready = Some(Unready::Orphaned);
            self.outputs.push_back(NodeOutput::Event(NodeEvent::Orphaned));
        }
    }

    /// Asks all other serving members whether they are alive.
    pub(super) fn ask_members(&mut self, now: Timestamp) {
        let serving = self.serving();
        self.holder.ask(now, serving.into_iter().filter(|id| !self.company.asked.contains(id)));
    }

    /// Whether this call is so late that the node was paused: messages of that time may still be in transit.
    fn is_late(&self, now: Timestamp, due: Option<Timestamp>) -> bool {
        due.is_some_and(|due| now - due > self.holder.configs().timing().lease / 2)
    }

    /// Gives way once all nodes have been asked and none has answered. A node that has already given way keeps asking.
    fn decide_on_successor(&mut self, now: Timestamp) {
        let Some(Succession { by, look_at, rounds, waits, .. }) = self.company.succession.clone() else { return };
        // A pause affects at most one round. A node that never served can't undo its end, so it asks one more time.
        let rounds_wanted = if self.has_served() { 2 } else { 3 };
        if self.yields() || self.is_late(now, Some(look_at)) || (waits.is_empty() && rounds < rounds_wanted) {
            self.ask_own(now);
        } else if !waits.is_empty() {
            let wait = self.holder.configs().timing().lease / 4;
            self.company.succession.as_mut().into_iter().for_each(|succession| succession.look_at = now + wait);
        } else {
            self.give_way(now, by);
        }
    }

    /// Gives way to the successor. A node that has served keeps its data, and serves nothing; it serves again when a
    /// node of its own cluster answers. A node that never served holds no data: it may end, and join the successor. But
    /// if its cluster has a role for it, only an operator may move it there: it may just be cut off, and wouldn't
    /// return.
    ///
    /// If the cluster has given way, the node waits for the operator, too: it reports that.
    fn give_way(&mut self, now: Timestamp, by: ClusterId) {
        let gave_way = self.company.succession.as_ref().is_some_and(|known| known.gave_way);
        let has_place = !self.has_served() && self.has_part(self.me);
        if allows!(self.guards, NeverYield) || (has_place && !gave_way) {
            self.company.succession = None;
        } else if self.has_served() || has_place {
            self.state.successor = Some(Successor { by, yields: true });
            self.leaving.take_back_word();
            self.state.unready = Some(Unready::Yields { by });
            self.order_to_yield();
            self.outputs.push_back(NodeOutput::Event(NodeEvent::Yields { by }));
            self.ask_own(now);
        } else {
            self.company.is_over = true;
            self.outputs.push_back(NodeOutput::Succeeded { by });
        }
    }

    /// Whether this node may hold data that others need. Until its directory is loaded, it may.
    pub(super) fn has_served(&self) -> bool {
        self.state.served || self.loads()
    }

    /// Records that this incarnation has served, from the time at which the log names it as a serving member.
    pub(super) fn see_whether_serves(&mut self) {
        let serves = |config: &ChainConfig| config.serving().any(|id| id.shares_store(self.me));
        // The copy of a former member may be the best remaining one, too.
        let holds = |held: &StoreHolding| held.whole && !held.last.is_none();
        let store_holds = self.kept.as_ref().is_some_and(|kept| kept.holds.iter().flatten().any(holds));
        self.state.served |= store_holds || self.holder.configs().iter().any(serves);
        self.state.orphaned &= !self.state.served;
    }
}

#[cfg(test)]
mod tests;
