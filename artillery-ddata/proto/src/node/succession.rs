//! The behaviour of a node when no incarnation that ever served answers, and when another cluster succeeds its own
//! (docs/DESIGN.md §5.13).
//!
//! A node that never served, and has received nothing from serving members for a lease, asks one of them; after two
//! leases, all. A node that has served asks only once it knows of a cluster that succeeds its own.

use std::collections::{BTreeMap, BTreeSet};

use super::{NodeEvent, NodeOutput, Successor, Unready, base::Base, disk::Disk};
use crate::{
    ChainConfig, ClusterId, MemberId, Timestamp,
    control::{History, MAX_LINEAGE, Relation},
    runner::ChainOrder,
};

/// A node that never served treats the serving members as gone after this many leases without a message of any of them.
const ORPHANED_LEASES: u32 = 3;

/// The maximum number of nodes that are asked at a time whether they are alive.
const MAX_ASKED_NODES: usize = 4;

/// A node's knowledge of the other serving members, and of clusters that succeed its own.
#[derive(Clone, Default, Debug)]
pub(super) struct Company {
    /// When the last message of another serving member was received; before the first one, when this node began to look
    /// for one.
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
    /// Only answers to questions asked after this time show that a node is alive: earlier ones may have been delayed
    /// for a long time.
    since: Timestamp,
    /// When to decide, or check again.
    look_at: Timestamp,
    rounds: u32,
    /// The nodes that may still answer in this round.
    waits: BTreeSet<MemberId>,
}

/// Whether this node gives way now: a leader's earlier statement about its chains is no longer valid.
type Yields = bool;

impl Company {
    /// When the latest question that the serving member `id` has answered was asked. The member was alive after that,
    /// however long its answer took.
    pub(super) fn answered(&self, id: MemberId) -> Option<Timestamp> {
        self.answered.get(&id).copied()
    }

    /// Another cluster claims to succeed this node's: this node must give way, unless an answer refutes that. If the
    /// other cluster states that this node's cluster has given way to it (`gave_way`), only an answer of a confirmed
    /// leader does; otherwise an answer of any node of its own cluster.
    pub(super) fn succeeded(&mut self, now: Timestamp, (by, gave_way): (ClusterId, bool), base: &mut Base) -> Yields {
        if self.succession.is_some() || self.refused.contains(&(by, gave_way)) {
            return false;
        }
        self.succession =
            Some(Succession { by, gave_way, since: now, look_at: now, rounds: 0, waits: BTreeSet::new() });
        base.state_mut().successor = Some(Successor { by, yields: false });
        self.ask_own(now, base);
        allows!(base.guards(), YieldAtOnce) && self.give_way(now, by, base)
    }

    /// Asks all nodes that have a role, and checks again when they have had a lease to answer.
    fn ask_own(&mut self, now: Timestamp, base: &mut Base) {
        let (own, look_at) = (base.own(), now + base.configs().timing().lease_and_drift());
        base.holder_mut().ask(now, own.iter().copied().filter(|id| !self.asked.contains(id)));
        if let Some(succession) = &mut self.succession {
            (succession.look_at, succession.rounds, succession.waits) = (look_at, succession.rounds + 1, own);
        }
    }

    /// Whether another node may be asked now, in addition to the unanswered ones.
    pub(super) fn may_ask(&self) -> bool {
        self.asked.len() < MAX_ASKED_NODES
    }

    pub(super) fn asks(&mut self, id: MemberId) {
        self.asked.insert(id);
    }

    /// A renewal to node `id` has ended. Returns whether it was a question of [`asks`](Self::asks).
    pub(super) fn was_asked(&mut self, id: MemberId) -> bool {
        if let Some(succession) = &mut self.succession {
            succession.waits.remove(&id);
        }
        self.asked.remove(&id)
    }

    /// A message of another node was received.
    pub(super) fn hear_company(&mut self, now: Timestamp, from: MemberId, base: &mut Base) {
        // Later incarnations are accepted too: one that is still loading its directory reports nothing about its
        // chains.
        if base.serving().iter().any(|id| id.shares_store(from)) {
            self.quiet_since = Some(now);
            self.look_at = Some(now + base.lease());
            base.state_mut().member_heard = now;
            base.state_mut().orphaned = false;
        }
    }

    /// A node has answered the question asked at `sent`. A leader with a confirmed quorum belongs to this cluster, even
    /// if this node doesn't know it as a voter.
    pub(super) fn hear_answer(&mut self, from: MemberId, sent: Timestamp, leads: bool, base: &mut Base) {
        let serving = base.serving();
        self.answered.retain(|id, _| serving.contains(id));
        if serving.contains(&from) {
            let last = self.answered.entry(from).or_insert(sent);
            *last = sent.max(*last);
        }
        let is_own = base.is_own(from) || (leads && from != base.me());
        let any_refutes = allows!(base.guards(), AnyAnswerRefutes);
        let refutes = |known: &Succession| if known.gave_way && !any_refutes { leads } else { is_own };
        let known = self.succession.as_ref().filter(|known| refutes(known) && sent >= known.since);
        if let Some(by) = known.map(|known| known.by) {
            self.refuse(by, base);
        }
    }

    /// Refuses the other cluster permanently: it was created while this one was alive. The later fate of either cluster
    /// doesn't change that.
    fn refuse(&mut self, by: ClusterId, base: &mut Base) {
        if allows!(base.guards(), YieldAtOnce) {
            return;
        }
        let gave_way = self.succession.take().is_some_and(|known| known.gave_way);
        // In practice this limit isn't reached. If it were, the node would decide again about a forgotten one.
        if self.refused.len() >= MAX_LINEAGE {
            self.refused.pop_first();
        }
        self.refused.insert((by, gave_way));
        let yielded = base.state().successor.is_some_and(|successor| successor.yields);
        base.state_mut().successor = Some(Successor { by, yields: false });
        base.event(NodeEvent::Refuses { by });
        if yielded && base.state().parted.is_none() {
            base.order_all(&ChainOrder::Proceed);
            base.event(NodeEvent::GoesOn { by });
        }
    }

    /// An operator has chosen this node to continue under a new history: that overrides the node's own decision.
    pub(super) fn begin_history(&mut self, base: &mut Base) {
        if base.state_mut().parted.take().is_some() {
            base.order_all(&ChainOrder::Proceed);
        }
        if let Some(Successor { by, .. }) = base.state().successor {
            self.refuse(by, base);
        }
    }

    /// A new node has received no message yet: its time without a message begins now.
    pub(super) fn begin_to_look(&mut self, now: Timestamp, base: &Base) {
        self.quiet_since.get_or_insert(now);
        self.look_at.get_or_insert(now + base.lease());
    }

    pub(super) fn company_at(&self, base: &Base) -> Option<Timestamp> {
        let looks = self.look_at.filter(|_| !has_served(base));
        [looks, self.decides_at()].into_iter().flatten().min()
    }

    fn decides_at(&self) -> Option<Timestamp> {
        self.succession.as_ref().filter(|_| !self.is_over).map(|succession| succession.look_at)
    }

    /// Looks for serving members, and decides whether this node gives way to a cluster that succeeds its own.
    pub(super) fn look_for_company(&mut self, now: Timestamp, base: &mut Base) -> Yields {
        let decides = self.decides_at().is_some_and(|at| at <= now);
        let yields = decides && self.decide_on_successor(now, base);
        if !has_served(base) && self.look_at.is_some_and(|at| at <= now) {
            self.look_for_members(now, base);
        }
        yields
    }

    /// After one lease without a message of a serving member, asks one of them; after two, all; after three, treats
    /// them as gone.
    fn look_for_members(&mut self, now: Timestamp, base: &mut Base) {
        let lease = base.lease();
        if is_late(now, self.look_at, base) {
            self.quiet_since = Some(now);
        }
        let since = *self.quiet_since.get_or_insert(now);
        self.look_at = Some(now + lease);
        let serving = base.serving();
        if now - since < lease {
            return;
        }
        if now - since < lease * 2 {
            let next = serving.iter().find(|&&id| self.probed.is_none_or(|last| id > last));
            self.probed = next.or(serving.first()).copied();
            let probed = self.probed.filter(|id| !self.asked.contains(id));
            return base.holder_mut().ask(now, probed);
        }
        self.ask_members(now, base);
        if now - since >= lease * ORPHANED_LEASES && !std::mem::replace(&mut base.state_mut().orphaned, true) {
            base.state_mut().unready = Some(Unready::Orphaned);
            base.event(NodeEvent::Orphaned);
        }
    }

    /// Asks all other serving members whether they are alive.
    pub(super) fn ask_members(&mut self, now: Timestamp, base: &mut Base) {
        let serving = base.serving();
        base.holder_mut().ask(now, serving.into_iter().filter(|id| !self.asked.contains(id)));
    }

    /// Gives way once all nodes have been asked and no answer has refuted the other cluster. A node that has already
    /// given way keeps asking.
    fn decide_on_successor(&mut self, now: Timestamp, base: &mut Base) -> Yields {
        let Some(Succession { by, look_at, rounds, waits, .. }) = self.succession.clone() else { return false };
        // A pause affects at most one round. A node that never served can't undo its end, so it asks one more time.
        let rounds_wanted = if has_served(base) { 2 } else { 3 };
        if base.yields() || is_late(now, Some(look_at), base) || (waits.is_empty() && rounds < rounds_wanted) {
            self.ask_own(now, base);
        } else if !waits.is_empty() {
            let wait = base.lease() / 4;
            self.succession.as_mut().into_iter().for_each(|succession| succession.look_at = now + wait);
        } else {
            return self.give_way(now, by, base);
        }
        false
    }

    /// Gives way to the successor. A node that has served keeps its data, and serves nothing; it serves again when an
    /// answer refutes the successor. A node that never served holds no data: it may end, and join the successor. But if
    /// its cluster has a role for it, only an operator may move it there: it may just be cut off, and wouldn't return.
    ///
    /// If the other cluster states that this one has given way, a node with a role stops serving, and waits for an
    /// operator.
    fn give_way(&mut self, now: Timestamp, by: ClusterId, base: &mut Base) -> Yields {
        let gave_way = self.succession.as_ref().is_some_and(|known| known.gave_way);
        let has_place = !has_served(base) && base.has_part(base.me());
        if allows!(base.guards(), NeverYield) || (has_place && !gave_way) {
            self.succession = None;
        } else if has_served(base) || has_place {
            base.state_mut().successor = Some(Successor { by, yields: true });
            base.state_mut().unready = Some(Unready::Yields { by });
            base.order_to_yield();
            base.event(NodeEvent::Yields { by });
            self.ask_own(now, base);
            return true;
        } else {
            self.is_over = true;
            base.push(NodeOutput::Succeeded { by });
        }
        false
    }
}

/// The cluster continues in a newer history, where commits in this node's store may be missing. Neither a process
/// nor a disk can decide which of the two should survive: the node keeps its data, and serves nothing, until an
/// operator has decided.
pub(super) fn parted(by: History, base: &mut Base) -> Yields {
    if by.relation(base.configs().history()) != Relation::Newer {
        return false;
    }
    let yields = base.state_mut().parted.replace(by).is_none();
    if yields {
        base.order_to_yield();
    }
    base.state_mut().unready = Some(Unready::Parted { by });
    yields
}

/// Whether this call is so late that the node was paused: messages from the pause may still be in transit.
fn is_late(now: Timestamp, due: Option<Timestamp>, base: &Base) -> bool {
    due.is_some_and(|due| now - due > base.lease() / 2)
}

/// Whether this node may hold data that others need. Until its directory is loaded, it may.
fn has_served(base: &Base) -> bool {
    base.state().served || base.loads()
}

/// Records that this store has served: the log names it as a serving member, or it held a complete copy at the start.
pub(super) fn see_whether_serves(base: &mut Base) {
    let serves = |config: &ChainConfig| config.serving().any(|id| id.shares_store(base.me()));
    // The copy of a former member may be the best remaining one, too.
    let store_holds = base.disk().is_some_and(Disk::held_copy);
    let serves = base.configs().iter().any(serves);
    let state = base.state_mut();
    state.served |= store_holds || serves;
    state.orphaned &= !state.served;
}

#[cfg(test)]
mod tests;
