//! How this node leaves: its chains resign or serve again, and a stopping node determines when it may end.

use std::collections::BTreeSet;

use super::{NodeEvent, NodeOutput, base::Base, succession::Company};
use crate::{
    ChainConfig, ChainId, Timestamp,
    control::message::Farewell,
    runner::{ChainOrder, Lease},
};

/// A stopping node ends after this many leases even if its chains may not be able to continue without it: nodes that
/// leave together would otherwise wait for each other. A node that may be the last serving member of a chain, or is the
/// last voter, keeps waiting, unless it will return.
const FAREWELL_LEASES: u32 = 3;

/// A node's progress in leaving, and a leader's newest statement about its chains.
#[derive(Clone, Default, Debug)]
pub(super) struct Leaving {
    is_awaited: bool,
    /// The chains that have yet to report that they no longer use a lease.
    resigning: Option<BTreeSet<ChainId>>,
    /// When a drained node stops trying to leave, and stays.
    stays_at: Option<Timestamp>,
    /// When the wait of a stopping node is over: it ends, or waits again.
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
    /// The number of the last renewal whose answer was processed. Answers to earlier ones are ignored.
    word_of: u64,
    released: bool,
    /// When a leader last reported that the chains can continue without the node.
    goes_on: Option<Timestamp>,
    /// The chains end with the leaving nodes, and this one stays briefly so that the others learn it too.
    ends_soon: bool,
    /// The number of withdrawn resignations.
    stretch: u64,
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

    /// Requests to leave. A stopping node keeps asking until it ends, even if a drain of it times out.
    ///
    /// `returns`: the node leaves its chains but stays a node and a voter: the disk keeps its data, and its next
    /// incarnation returns. It ends after [`FAREWELL_LEASES`] in any case, even as the last serving member of a chain
    /// (docs/DESIGN.md §5.8).
    pub(super) fn leave(&mut self, now: Timestamp, until: Option<Timestamp>, returns: bool, base: &mut Base) {
        if returns {
            self.ends_by.get_or_insert(now + base.lease() * FAREWELL_LEASES);
        }
        let is_to_stop = base.holder().leaves().is_asked() && self.stays_at.is_none();
        self.stays_at = until.filter(|_| !is_to_stop);
        if until.is_none() && self.ends_at.is_none() {
            self.wait_on(now, base);
        }
        (self.is_awaited, self.released) = (true, false);
        self.take_back_word();
        base.holder_mut().leave(now, returns);
        self.see_whether_left(base);
        if allows!(base.guards(), EndAtOnce) && self.ends_at.is_some() && base.is_last() {
            self.end(NodeEvent::EndsChain, base);
        }
    }

    fn wait_on(&mut self, now: Timestamp, base: &Base) {
        self.has_asked_members = false;
        self.ends_at = Some(now + base.lease() * FAREWELL_LEASES);
    }

    pub(super) fn leaves_at(&self) -> Option<Timestamp> {
        let Leaving { stays_at, ends_at, ends_by, resigning, is_awaited, .. } = self;
        let ends = [*ends_at, ends_by.filter(|_| *is_awaited)];
        stays_at.filter(|_| resigning.is_none()).into_iter().chain(ends.into_iter().flatten()).min()
    }

    /// Stays, or ends, if this node has waited long enough.
    pub(super) fn look_at_leaving(&mut self, now: Timestamp, base: &mut Base, company: &mut Company) {
        let Leaving { stays_at, resigning, .. } = self;
        if resigning.is_none() && stays_at.take_if(|at| *at <= now).is_some() {
            self.stay(now, base);
        }
        if self.ends_by.is_some_and(|at| at <= now) {
            let why = if base.is_last() { NodeEvent::EndsChain } else { NodeEvent::GivesUp };
            return self.end(why, base);
        }
        if self.ends_at.is_some_and(|at| at <= now) {
            self.give_up(now, base, company);
        }
    }

    /// A confirmed leader has answered renewal `number`. Answers to renewals before the last one processed are ignored.
    pub(super) fn hear_word(
        &mut self,
        now: Timestamp,
        (number, released): (u64, bool),
        farewell: Option<Farewell>,
        base: &mut Base,
    ) {
        if self.is_awaited && number >= self.word_of {
            (self.word_of, self.released) = (number, released);
            self.see_whether_left(base);
            self.hear_farewell(now, farewell, base);
        }
    }

    /// Processes a leader's statement about the chains of this leaving node. While another node takes over data that
    /// only this one has, this one keeps waiting (trap 69). An answer without a statement cancels the earlier one.
    pub(super) fn hear_farewell(&mut self, now: Timestamp, farewell: Option<Farewell>, base: &mut Base) {
        if self.ends_at.is_none() {
            return;
        }
        let Some(farewell) = farewell else { return self.goes_on_waiting(now, base) };
        match farewell {
            Farewell::GoesOn => {
                // Another node is alive after all: it continues the chains, and this one should be removed.
                self.goes_on_waiting(now, base);
                self.goes_on = Some(now);
            }
            Farewell::HandsOver => {
                self.take_back_word();
                self.wait_on(now, base);
                self.say_once(NodeEvent::HandsOver, base);
            }
            // A yielding node ignores messages of most nodes, so it may not know that others are alive. A node that an
            // operator chose to continue alone must be the source for nodes that join (trap 69).
            Farewell::Ends if base.yields() || self.is_kept => self.wait_on(now, base),
            // The other leaving nodes must learn this too, and for that the log needs its quorum.
            Farewell::Ends if base.keeps_log() => self.end_soon(now, base),
            Farewell::Ends => self.end(NodeEvent::EndsChain, base),
        }
    }

    /// The leader's statement about the chains is no longer valid: this node doesn't end soon.
    fn goes_on_waiting(&mut self, now: Timestamp, base: &Base) {
        if self.ends_soon {
            self.wait_on(now, base);
        }
        self.take_back_word();
    }

    /// Ends this voter one lease from now, when the other leaving nodes have had time to learn the same.
    fn end_soon(&mut self, now: Timestamp, base: &Base) {
        if !self.ends_soon {
            self.ends_soon = true;
            self.ends_at = Some(now + base.lease());
        }
    }

    /// The leader or the voters have changed: the other leaving nodes may have to be informed again that their chains
    /// end, and the log may need this node.
    pub(super) fn follow_voters(&mut self, now: Timestamp, base: &Base) {
        self.released = false;
        if std::mem::take(&mut self.ends_soon) {
            self.end_soon(now, base);
        }
    }

    /// The waiting time of a stopping node is over. It ends, or waits again: if it was paused, may be the last serving
    /// member of a chain, or (once) has a chain that is late to resign.
    fn give_up(&mut self, now: Timestamp, base: &mut Base, company: &mut Company) {
        // After a pause of this node, earlier messages don't show which nodes are alive now.
        if self.ends_at.is_some_and(|at| now - at > base.lease()) {
            self.take_back_word();
            return self.wait_on(now, base);
        }
        if self.ends_soon {
            return self.end(NodeEvent::EndsChain, base);
        }
        // If the leader has agreed, and a chain is late to resign, the log might lose its quorum with this node.
        let has_late_chain = self.resigning.is_some() && base.keeps_log();
        let may_be_last = self.may_be_last(now, base, company);
        if may_be_last && !base.is_last() && !std::mem::replace(&mut self.has_asked_members, true) {
            self.ends_at = Some(now + base.lease());
            company.ask_members(now, base);
        } else if may_be_last || base.is_last() {
            self.wait_on(now, base);
            self.say_once(NodeEvent::Waits, base);
        } else if has_late_chain && !std::mem::replace(&mut self.has_waited_for_chains, true) {
            self.wait_on(now, base);
        } else {
            self.end(NodeEvent::GivesUp, base);
        }
    }

    /// Whether this node's data may be lost when it ends: no leader has recently reported that its chains can continue
    /// without it, and it serves a chain of which no other member has answered a recent question. A message alone
    /// proves nothing, since it may have been delayed for a long time.
    fn may_be_last(&self, now: Timestamp, base: &Base, company: &Company) -> bool {
        let is_serving = |config: &&ChainConfig| config.serving().any(|id| id == base.me());
        let lately = |at: Timestamp| now - at < base.lease() * 2;
        let goes_on = |config: &ChainConfig| config.serving().any(|id| company.answered(id).is_some_and(lately));
        !self.goes_on.is_some_and(lately) && !base.configs().iter().filter(is_serving).all(goes_on)
    }

    fn say_once(&mut self, event: NodeEvent, base: &mut Base) {
        if !self.has_said_why {
            self.has_said_why = true;
            base.event(event);
        }
    }

    /// Ends the wait of the stopping node.
    fn end(&mut self, why: NodeEvent, base: &mut Base) {
        self.ends_at = None;
        if self.is_awaited {
            self.is_awaited = false;
            let why = match why {
                NodeEvent::EndsChain if base.disk().is_some() => NodeEvent::ClosesChain,
                why => why,
            };
            base.event(why);
            base.push(NodeOutput::Left);
        }
    }

    /// The drained node stays: no leader has agreed in time, or its removal failed.
    fn stay(&mut self, now: Timestamp, base: &mut Base) {
        let had_resigned = base.holder().leaves().has_resigned();
        if !base.configs().names(base.me()) {
            // No chain needs this node, even if no leader knows that it leaves.
            self.released |= !base.keeps_log();
            return self.see_whether_left(base);
        }
        base.event(NodeEvent::Stays);
        base.holder_mut().stay(now);
        self.released = false;
        if had_resigned {
            self.serve_again(base);
        }
    }

    /// Reports that this node has left, once no configuration names it and the leader has released it. If its chains
    /// have resigned and the log can do without it, no release is needed. A node that will return keeps its vote, and
    /// only must not lead.
    pub(super) fn see_whether_left(&mut self, base: &mut Base) {
        let leave = base.holder().leaves();
        let is_spared = if leave.returns { !base.leads() } else { !base.keeps_log() };
        let may_end = self.released || (leave.has_resigned() && is_spared);
        if self.is_awaited && may_end && !base.configs().names(base.me()) {
            self.is_awaited = false;
            self.ends_at = None;
            base.push(NodeOutput::Left);
        }
    }

    /// Stops using the lease, so that this node can be removed without waiting for the lease to end. Its chains resign
    /// first.
    pub(super) fn resign(&mut self, now: Timestamp, base: &mut Base) {
        if base.loads() {
            // Its chains don't use a lease yet.
            return self.has_resigned(now, base);
        }
        if self.resigning.is_none() {
            self.resigning = Some(base.order_all(&ChainOrder::Resign));
        }
    }

    pub(super) fn chain_resigned(&mut self, now: Timestamp, chain: ChainId, base: &mut Base) {
        let Some(waits) = &mut self.resigning else { return };
        waits.remove(&chain);
        if waits.is_empty() {
            self.resigning = None;
            self.has_resigned(now, base);
        }
    }

    fn has_resigned(&mut self, now: Timestamp, base: &mut Base) {
        base.holder_mut().resign(now);
        self.see_whether_left(base);
    }

    pub(super) fn stretch(&self) -> u64 {
        self.stretch
    }

    /// Makes the chains use leases again, but only those granted from now on, never one from before they resigned.
    pub(super) fn serve_again(&mut self, base: &mut Base) {
        self.stretch += 1;
        let stretch = self.stretch;
        base.push(NodeOutput::Lease(Lease { stretch, ..Lease::default() }));
        base.order_all(&ChainOrder::Resume { stretch });
    }

    /// The directory is loaded: the chains get the orders that they could not get before.
    pub(super) fn catch_up(&mut self, base: &mut Base) {
        if self.stretch > 0 {
            base.order_all(&ChainOrder::Resume { stretch: self.stretch });
        }
    }

    #[cfg(feature = "mutants")]
    pub(super) fn describe(&self, company: &Company, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let waits = (self.has_asked_members, self.has_waited_for_chains, self.is_kept, self.ends_by);
        let to_stop = self.ends_at.is_some().then_some((waits, company));
        let word = self.is_awaited.then_some((self.word_of, self.released, self.goes_on, self.ends_soon));
        let Self { is_awaited, resigning, stays_at, ends_at, has_said_why, stretch, .. } = self;
        write!(out, "{:?}", (is_awaited, resigning, stays_at, ends_at, has_said_why, stretch, to_stop, word))
    }
}
