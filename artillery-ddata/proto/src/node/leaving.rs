//! How this node leaves: its chains resign, or serve again; and when a stopping node ends.

use std::collections::BTreeSet;

use super::{NodeEvent, NodeMachine, NodeOutput};
use crate::{
    ChainConfig, ChainId, Timestamp,
    control::message::Farewell,
    runner::{ChainOrder, Lease},
};

/// A stopping node ends after this many leases even if its chains may not be able to continue without it: nodes that
/// leave together would otherwise wait for each other. The last serving member of a chain keeps waiting, unless it will
/// return.
const FAREWELL_LEASES: u32 = 3;

/// A node's progress in leaving, and a leader's newest statement about its chains.
#[derive(Clone, Default, Debug)]
pub(super) struct Leaving {
    is_awaited: bool,
    /// The chains that have yet to report that they no longer use a lease.
    resigning: Option<BTreeSet<ChainId>>,
    /// When a drained node stops trying to leave, and stays.
    stays_at: Option<Timestamp>,
    /// When a stopping node ends without having left.
    ends_at: Option<Timestamp>,
    /// When a stopping node with a disk ends in any case.
    ends_by: Option<Timestamp>,
    /// Operators have been informed why the stopping node hasn't ended yet.
    has_said_why: bool,
    /// The node has asked the other members whether they are alive, since it may be the last serving member of a chain.
    has_asked_members: bool,
    /// The node has already extended its wait for its chains to resign.
    has_waited_for_chains: bool,
    /// After the request to stop, an operator chose this node to continue under a new history.
    is_kept: bool,
    /// The renewal whose answer carried the leader's newest statement: the fields below.
    word_of: u64,
    released: bool,
    /// When a leader last reported that the chains can continue without the node.
    goes_on: Option<Timestamp>,
    /// The chains end with the leaving nodes, and this one stays briefly so that the others learn it too.
    ends_soon: bool,
}

impl Leaving {
    /// Discards the leader's statement about the chains: it is no longer valid.
    pub(super) fn take_back_word(&mut self) {
        (self.goes_on, self.ends_soon) = (None, false);
    }

    /// An operator has chosen this node to continue alone.
    pub(super) fn goes_on_alone(&mut self) {
        self.is_kept = self.ends_at.is_some();
        self.take_back_word();
    }

    #[cfg(feature = "mutants")]
    pub(super) fn describe(&self, company: &super::Company, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let waits = (self.has_asked_members, self.has_waited_for_chains, self.is_kept, self.ends_by);
        let to_stop = self.ends_at.is_some().then_some((waits, company));
        let word = self.is_awaited.then_some((self.word_of, self.released, self.goes_on, self.ends_soon));
        let Self { is_awaited, resigning, stays_at, ends_at, has_said_why, .. } = self;
        write!(out, "{:?}", (is_awaited, resigning, stays_at, ends_at, has_said_why, to_stop, word))
    }
}

impl NodeMachine {
    /// Requests to leave the chains but to stay a node and a voter: the disk keeps its data, and its next incarnation
    /// returns. The node ends after [`FAREWELL_LEASES`] in any case, even as the last serving member of a chain
    /// (docs/DESIGN.md §5.8).
    pub(super) fn withdraw(&mut self, now: Timestamp) {
        let ends_by = now + self.holder.configs().timing().lease * FAREWELL_LEASES;
        self.leaving.ends_by.get_or_insert(ends_by);
        self.ask_to_leave(now, None, true);
    }

    /// Requests to leave permanently. A stopping node keeps asking until it ends, even if a drain of it times out.
    pub(super) fn leave(&mut self, now: Timestamp, until: Option<Timestamp>) {
        self.ask_to_leave(now, until, false);
    }

    fn ask_to_leave(&mut self, now: Timestamp, until: Option<Timestamp>, returns: bool) {
        let is_to_stop = self.holder.leaves().is_asked() && self.leaving.stays_at.is_none();
        self.leaving.stays_at = until.filter(|_| !is_to_stop);
        if until.is_none() && self.leaving.ends_at.is_none() {
            self.wait_on(now);
        }
        self.leaving.is_awaited = true;
        self.leaving.released = false;
        self.leaving.take_back_word();
        self.holder.leave(now, returns);
        self.see_whether_left();
        if allows!(self.guards, EndAtOnce) && self.leaving.ends_at.is_some() && self.is_last() {
            self.end(NodeEvent::EndsChain);
        }
    }

    fn wait_on(&mut self, now: Timestamp) {
        self.leaving.has_asked_members = false;
        self.leaving.ends_at = Some(now + self.holder.configs().timing().lease * FAREWELL_LEASES);
    }

    /// Whether this node is the only serving member of a chain, or the only voter.
    fn is_last(&self) -> bool {
        let serves_alone = |config: &ChainConfig| config.serving().eq([self.me]);
        self.voters.iter().eq([&self.me]) || self.holder.configs().iter().any(serves_alone)
    }

    pub(super) fn leaves_at(&self) -> Option<Timestamp> {
        let Leaving { stays_at, ends_at, ends_by, resigning, is_awaited, .. } = &self.leaving;
        let ends = [*ends_at, ends_by.filter(|_| *is_awaited)];
        stays_at.filter(|_| resigning.is_none()).into_iter().chain(ends.into_iter().flatten()).min()
    }

    /// Stays, or ends, if this node has waited long enough.
    pub(super) fn look_at_leaving(&mut self, now: Timestamp) {
        let Leaving { stays_at, resigning, .. } = &mut self.leaving;
        if resigning.is_none() && stays_at.take_if(|at| *at <= now).is_some() {
            self.stay(now);
        }
        if self.leaving.ends_by.is_some_and(|at| at <= now) {
            let why = if self.is_last() { NodeEvent::EndsChain } else { NodeEvent::GivesUp };
            return self.end(why);
        }
        if self.leaving.ends_at.is_some_and(|at| at <= now) {
            self.give_up(now);
        }
    }

    /// A confirmed leader has answered renewal `number`. Only the answer to the newest renewal is valid.
    pub(super) fn hear_word(&mut self, now: Timestamp, number: u64, released: bool, farewell: Option<Farewell>) {
        if self.leaving.is_awaited && number >= self.leaving.word_of {
            (self.leaving.word_of, self.leaving.released) = (number, released);
            self.see_whether_left();
            self.hear_farewell(now, farewell);
        }
    }

    /// Processes a leader's statement about the chains of this leaving node. While another node takes over data that
    /// only this one has, this one keeps waiting (trap 69). An answer without a statement cancels the earlier one.
    pub(super) fn hear_farewell(&mut self, now: Timestamp, farewell: Option<Farewell>) {
        if self.leaving.ends_at.is_none() {
            return;
        }
        let Some(farewell) = farewell else { return self.goes_on_waiting(now) };
        match farewell {
            Farewell::GoesOn => {
                // Another node is alive after all: it continues the chains, and this one should be removed.
                self.goes_on_waiting(now);
                self.leaving.goes_on = Some(now);
            }
            Farewell::HandsOver => {
                self.leaving.take_back_word();
                self.wait_on(now);
                self.say_once(NodeEvent::HandsOver);
            }
            // A node that gives way accepts messages of few nodes, so others may be alive unknown to it. A node that an
            // operator has chosen to continue alone must be the source for nodes that join (trap 69).
            Farewell::Ends if self.yields() || self.leaving.is_kept => self.wait_on(now),
            // Other leaving nodes must learn it too, which takes a quorum.
            Farewell::Ends if self.keeps_log() => self.end_soon(now),
            Farewell::Ends => self.end(NodeEvent::EndsChain),
        }
    }

    /// The leader's statement about the chains is no longer valid: this node doesn't end soon.
    fn goes_on_waiting(&mut self, now: Timestamp) {
        if self.leaving.ends_soon {
            self.wait_on(now);
        }
        self.leaving.take_back_word();
    }

    /// Ends this voter one lease from now, when the other leaving nodes have had time to learn the same.
    fn end_soon(&mut self, now: Timestamp) {
        if !self.leaving.ends_soon {
            self.leaving.ends_soon = true;
            self.leaving.ends_at = Some(now + self.holder.configs().timing().lease);
        }
    }

    /// The leader or the voters have changed: the other leaving nodes may have to be informed again that their chains
    /// end, and the log may need this node.
    pub(super) fn follow_voters(&mut self, now: Timestamp) {
        self.leaving.released = false;
        if std::mem::take(&mut self.leaving.ends_soon) {
            self.end_soon(now);
        }
    }

    /// The waiting time of a stopping node is over. It ends, unless it may be the last serving member of a chain.
    fn give_up(&mut self, now: Timestamp) {
        // After a pause of this node, earlier messages don't show which nodes are alive now.
        if self.leaving.ends_at.is_some_and(|at| now - at > self.holder.configs().timing().lease) {
            self.leaving.take_back_word();
            return self.wait_on(now);
        }
        if self.leaving.ends_soon {
            return self.end(NodeEvent::EndsChain);
        }
        let may_be_last = self.may_be_last(now);
        if may_be_last && !self.is_last() && !std::mem::replace(&mut self.leaving.has_asked_members, true) {
            self.leaving.ends_at = Some(now + self.holder.configs().timing().lease);
            self.ask_members(now);
        } else if may_be_last || self.is_last() {
            self.wait_on(now);
            self.say_once(NodeEvent::Waits);
        } else if self.has_late_chain() && !std::mem::replace(&mut self.leaving.has_waited_for_chains, true) {
            self.wait_on(now);
        } else {
            self.end(NodeEvent::GivesUp);
        }
    }

    /// Whether the leader has agreed, and a chain is late to resign. The log might lose its quorum with this node.
    fn has_late_chain(&self) -> bool {
        self.leaving.resigning.is_some() && self.keeps_log()
    }

    /// Whether this node's data may be lost when it ends: no leader has recently reported that its chains can continue
    /// without it, and it serves a chain of which no other member has answered a recent question. A message alone
    /// proves nothing, since it may have been delayed for long.
    fn may_be_last(&self, now: Timestamp) -> bool {
        let is_serving = |config: &&ChainConfig| config.serving().any(|id| id == self.me);
        let lately = |at: Timestamp| now - at < self.holder.configs().timing().lease * 2;
        let goes_on = |config: &ChainConfig| config.serving().any(|id| self.company.answered(id).is_some_and(lately));
        !self.leaving.goes_on.is_some_and(lately) && !self.holder.configs().iter().filter(is_serving).all(goes_on)
    }

    fn say_once(&mut self, event: NodeEvent) {
        if !self.leaving.has_said_why {
            self.leaving.has_said_why = true;
            self.outputs.push_back(NodeOutput::Event(event));
        }
    }

    /// The stopping node waits no longer.
    fn end(&mut self, why: NodeEvent) {
        self.leaving.ends_at = None;
        if self.leaving.is_awaited {
            self.leaving.is_awaited = false;
            let why = match why {
                NodeEvent::EndsChain if self.kept.is_some() => NodeEvent::ClosesChain,
                why => why,
            };
            self.outputs.extend([NodeOutput::Event(why), NodeOutput::Left]);
        }
    }

    /// The drained node stays: no leader has agreed in time, or its removal failed.
    fn stay(&mut self, now: Timestamp) {
        let had_resigned = self.holder.leaves().has_resigned();
        if !self.holder.configs().names(self.me) {
            // No chain needs this node, though perhaps no leader knows that it leaves.
            self.leaving.released |= !self.keeps_log();
            return self.see_whether_left();
        }
        self.outputs.push_back(NodeOutput::Event(NodeEvent::Stays));
        self.holder.stay(now);
        self.leaving.released = false;
        if had_resigned {
            self.serve_again();
        }
    }

    /// Notifies waiting callers that this node has left, once no configuration names it and the log can do without it.
    /// The leader must know that the node leaves, or a last copy would wait for it. A voter that will return keeps its
    /// vote while it is away; if it leads, it waits until the members know the configuration without it.
    pub(super) fn see_whether_left(&mut self) {
        let leave = self.holder.leaves();
        let is_spared = if leave.returns { !self.leads } else { !self.keeps_log() };
        let may_end = self.leaving.released || (leave.has_resigned() && is_spared);
        if self.leaving.is_awaited && may_end && !self.holder.configs().names(self.me) {
            self.leaving.is_awaited = false;
            self.leaving.ends_at = None;
            self.outputs.push_back(NodeOutput::Left);
        }
    }

    /// Whether this node knows itself as a voter. A leader that was voted out is treated as one until that is
    /// committed: then it no longer leads.
    fn keeps_log(&self) -> bool {
        self.leads || self.voters.is_empty() || self.voters.contains(&self.me)
    }

    /// Stops using the lease, so that this node can be removed without waiting for its end. Its chains resign first.
    pub(super) fn resign(&mut self, now: Timestamp) {
        if self.loads() {
            // Its chains don't use a lease yet.
            return self.has_resigned(now);
        }
        if self.leaving.resigning.is_none() {
            self.leaving.resigning = Some(self.order_all(&ChainOrder::Resign));
        }
    }

    pub(super) fn chain_resigned(&mut self, now: Timestamp, chain: ChainId) {
        let Some(waits) = &mut self.leaving.resigning else { return };
        waits.remove(&chain);
        if waits.is_empty() {
            self.leaving.resigning = None;
            self.has_resigned(now);
        }
    }

    fn has_resigned(&mut self, now: Timestamp) {
        self.holder.resign(now);
        self.see_whether_left();
    }

    /// Makes the chains use leases again, but only those granted from now on, never one from before they resigned.
    pub(super) fn serve_again(&mut self) {
        self.stretch += 1;
        let stretch = self.stretch;
        self.outputs.push_back(NodeOutput::Lease(Lease { stretch, ..Lease::default() }));
        self.order_all(&ChainOrder::Resume { stretch });
    }

    /// The directory is loaded: the chains get the orders that they could not get before.
    pub(super) fn catch_up(&mut self) {
        if self.stretch > 0 {
            self.order_all(&ChainOrder::Resume { stretch: self.stretch });
        }
        self.order_to_yield();
    }

    /// Gives all chains the same order, and returns the chains. While the directory is being loaded, no chain can
    /// execute an order.
    pub(super) fn order_all(&mut self, order: &ChainOrder) -> BTreeSet<ChainId> {
        let chains: BTreeSet<_> = self.holder.configs().iter().map(|config| config.chain).collect();
        if !self.loads() {
            self.outputs.extend(chains.iter().map(|&chain| NodeOutput::Order(chain, order.clone())));
        }
        chains
    }
}
