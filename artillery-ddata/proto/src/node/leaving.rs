//! How this node leaves: its chains resign, or serve again. And when a node that is to stop ends.

use std::collections::BTreeSet;

use super::{Event, Node, Output};
use crate::{
    ChainConfig, ChainId, Timestamp,
    control::message::Farewell,
    runner::{Lease, Order},
};

/// A node that is to stop ends after so many times the lease though its chains may not go on without it yet: nodes that leave
/// together would wait for each other. The last that serves a chain waits on.
const FAREWELL: u32 = 3;

/// How far a node has come with leaving, and what a leader has said of its chains.
#[derive(Clone, Default, Debug)]
pub(super) struct Leaving {
    /// Callers wait for the word that the node has left.
    is_awaited: bool,
    /// The chains that have yet to say that they act by no lease.
    resigning: Option<BTreeSet<ChainId>>,
    /// A node that is drained, and couldn't leave until then, stays.
    stays_at: Option<Timestamp>,
    /// A node that is to stop, and couldn't leave until then, ends.
    ends_at: Option<Timestamp>,
    /// It has been said why the node, which is to stop, doesn't end yet.
    has_said_why: bool,
    /// The node has asked the other members whether they are there, since it may be the last that serves a chain.
    has_asked_members: bool,
    /// The node has waited once more for its chains to resign.
    has_waited_for_chains: bool,
    /// It was told to stop, and then an operator had it go on under a new history.
    is_kept: bool,
    /// The renewal whose answer brought the newest word of a leader. The fields below say what that was.
    word_of: u64,
    /// The log can do without the node.
    released: bool,
    /// When a leader said last that the chains go on without the node.
    goes_on: Option<Timestamp>,
    /// The chains end with the nodes that leave, and this one stays for a moment so that the others hear it too.
    ends_soon: bool,
}

impl Leaving {
    /// What a leader said of the chains holds no longer.
    pub(super) fn take_back_word(&mut self) {
        (self.goes_on, self.ends_soon) = (None, false);
    }

    /// An operator has the node go on alone.
    pub(super) fn goes_on_alone(&mut self) {
        self.is_kept = self.ends_at.is_some();
        self.take_back_word();
    }

    /// Writes down what the conduct of the node depends on.
    #[cfg(feature = "mutants")]
    pub(super) fn describe(&self, company: &super::Company, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let waits = (self.has_asked_members, self.has_waited_for_chains, self.is_kept);
        let to_stop = self.ends_at.is_some().then_some((waits, company));
        let word = self.is_awaited.then_some((self.word_of, self.released, self.goes_on, self.ends_soon));
        let Self { is_awaited, resigning, stays_at, ends_at, has_said_why, .. } = self;
        write!(out, "{:?}", (is_awaited, resigning, stays_at, ends_at, has_said_why, to_stop, word))
    }
}

impl Node {
    /// Asks to leave. A node that is to stop goes on asking until it ends, also when a drain of it is given up.
    pub(super) fn leave(&mut self, now: Timestamp, until: Option<Timestamp>) {
        let is_to_stop = self.holder.leaves().is_asked() && self.leaving.stays_at.is_none();
        self.leaving.stays_at = until.filter(|_| !is_to_stop);
        if until.is_none() && self.leaving.ends_at.is_none() {
            self.wait_on(now);
        }
        self.leaving.is_awaited = true;
        self.leaving.released = false;
        self.leaving.take_back_word();
        self.holder.leave(now);
        self.see_whether_left();
        if allows!(self.guards, EndAtOnce) && self.leaving.ends_at.is_some() && self.is_last() {
            self.end(Event::EndsChain);
        }
    }

    fn wait_on(&mut self, now: Timestamp) {
        self.leaving.has_asked_members = false;
        self.leaving.ends_at = Some(now + self.holder.configs().timing().lease * FAREWELL);
    }

    /// Whether it alone serves a chain, or keeps the log.
    fn is_last(&self) -> bool {
        let serves_alone = |config: &ChainConfig| config.serving().eq([self.me]);
        self.voters.iter().eq([&self.me]) || self.holder.configs().iter().any(serves_alone)
    }

    /// When to look at this next.
    pub(super) fn leaves_at(&self) -> Option<Timestamp> {
        let Leaving { stays_at, ends_at, resigning, .. } = &self.leaving;
        stays_at.filter(|_| resigning.is_none()).into_iter().chain(*ends_at).min()
    }

    /// Looks whether this node has waited for long enough.
    pub(super) fn look_at_leaving(&mut self, now: Timestamp) {
        let Leaving { stays_at, resigning, .. } = &mut self.leaving;
        if resigning.is_none() && stays_at.take_if(|at| *at <= now).is_some() {
            self.stay(now);
        }
        if self.leaving.ends_at.is_some_and(|at| at <= now) {
            self.give_up(now);
        }
    }

    /// A confirmed leader has answered the renewal of this number. The newest word counts.
    pub(super) fn hear_word(&mut self, now: Timestamp, number: u64, released: bool, farewell: Option<Farewell>) {
        if self.leaving.is_awaited && number >= self.leaving.word_of {
            (self.leaving.word_of, self.leaving.released) = (number, released);
            self.see_whether_left();
            self.hear_farewell(now, farewell);
        }
    }

    /// Takes in what a leader says of the chains of this node, which leaves: while another node takes over what this one alone
    /// has, it waits on (trap 69). A leader that knows nothing now takes back what it has said.
    pub(super) fn hear_farewell(&mut self, now: Timestamp, farewell: Option<Farewell>) {
        if self.leaving.ends_at.is_none() {
            return;
        }
        let Some(farewell) = farewell else { return self.goes_on_waiting(now) };
        match farewell {
            Farewell::GoesOn => {
                // Another node is there after all: this one is to be removed, and others keep the log.
                self.goes_on_waiting(now);
                self.leaving.goes_on = Some(now);
            }
            Farewell::HandsOver => {
                self.leaving.take_back_word();
                self.wait_on(now);
                self.say_once(Event::HandsOver);
            }
            // A node that gives way listens to few others: some may be there that it doesn't know of. A node that an
            // operator has go on alone is to be the source of the nodes that come (trap 69).
            Farewell::Ends if self.yields() || self.leaving.is_kept => self.wait_on(now),
            // Others that leave too are to hear it as well, which takes a quorum.
            Farewell::Ends if self.keeps_log() => self.end_soon(now),
            Farewell::Ends => self.end(Event::EndsChain),
        }
    }

    /// What a leader said of the chains holds no longer, so that this node doesn't end soon.
    fn goes_on_waiting(&mut self, now: Timestamp) {
        if self.leaving.ends_soon {
            self.wait_on(now);
        }
        self.leaving.take_back_word();
    }

    /// This node keeps the log, and ends when the others have had time to hear the same.
    fn end_soon(&mut self, now: Timestamp) {
        if !self.leaving.ends_soon {
            self.leaving.ends_soon = true;
            self.leaving.ends_at = Some(now + self.holder.configs().timing().lease);
        }
    }

    /// Another node leads, or others keep the log: the others may have to hear anew that their chains end, and the log may need
    /// this node.
    pub(super) fn follow_voters(&mut self, now: Timestamp) {
        self.leaving.released = false;
        if std::mem::take(&mut self.leaving.ends_soon) {
            self.end_soon(now);
        }
    }

    /// It has waited for long, and no other node is known to hold what it does if it is the last.
    fn give_up(&mut self, now: Timestamp) {
        // What it heard before a pause doesn't tell which nodes are there now.
        if self.leaving.ends_at.is_some_and(|at| now - at > self.holder.configs().timing().lease) {
            self.leaving.take_back_word();
            return self.wait_on(now);
        }
        if self.leaving.ends_soon {
            return self.end(Event::EndsChain);
        }
        let may_be_last = self.may_be_last(now);
        if may_be_last && !self.is_last() && !std::mem::replace(&mut self.leaving.has_asked_members, true) {
            self.leaving.ends_at = Some(now + self.holder.configs().timing().lease);
            self.ask_members(now);
        } else if may_be_last || self.is_last() {
            self.wait_on(now);
            self.say_once(Event::Waits);
        } else if self.has_late_chain() && !std::mem::replace(&mut self.leaving.has_waited_for_chains, true) {
            self.wait_on(now);
        } else {
            self.end(Event::GivesUp);
        }
    }

    /// Whether the leader has agreed, and a chain is late to resign. The log might lose its quorum with this node.
    fn has_late_chain(&self) -> bool {
        self.leaving.resigning.is_some() && self.keeps_log()
    }

    /// Whether no leader has said lately that the chains of this node go on without it, and it serves one of which no other
    /// member has answered what was asked lately: they may be gone, and what this node holds would end with it. A message of
    /// theirs proves nothing: it may have been long on its way.
    fn may_be_last(&self, now: Timestamp) -> bool {
        let is_serving = |config: &&ChainConfig| config.serving().any(|id| id == self.me);
        let lately = |at: Timestamp| now - at < self.holder.configs().timing().lease * 2;
        let goes_on = |config: &ChainConfig| config.serving().any(|id| self.company.answered(id).is_some_and(lately));
        !self.leaving.goes_on.is_some_and(lately) && !self.holder.configs().iter().filter(is_serving).all(goes_on)
    }

    fn say_once(&mut self, event: Event) {
        if !self.leaving.has_said_why {
            self.leaving.has_said_why = true;
            self.outputs.push_back(Output::Event(event));
        }
    }

    /// It is to stop, and waits no longer.
    fn end(&mut self, why: Event) {
        self.leaving.ends_at = None;
        if self.leaving.is_awaited {
            self.leaving.is_awaited = false;
            self.outputs.extend([Output::Event(why), Output::Left]);
        }
    }

    /// No leader has agreed in time, or the change didn't come about: this node stays.
    fn stay(&mut self, now: Timestamp) {
        let had_resigned = self.holder.leaves().has_resigned();
        if !self.holder.configs().names(self.me) {
            // Nothing needs it, though no leader may know that it leaves.
            self.leaving.released |= !self.keeps_log();
            return self.see_whether_left();
        }
        self.outputs.push_back(Output::Event(Event::Stays));
        self.holder.stay(now);
        self.leaving.released = false;
        if had_resigned {
            self.serve_again();
        }
    }

    /// Whether no configuration names this node any more and the log can do without it, for the callers that wait for that. The
    /// leader is to know that the node leaves, or a last copy would wait for it.
    pub(super) fn see_whether_left(&mut self) {
        let is_known = self.holder.leaves().has_resigned();
        let may_end = self.leaving.released || (is_known && !self.keeps_log());
        if self.leaving.is_awaited && may_end && !self.holder.configs().names(self.me) {
            self.leaving.is_awaited = false;
            self.leaving.ends_at = None;
            self.outputs.push_back(Output::Left);
        }
    }

    /// Whether this node keeps the log, as far as is known here. A leader that was voted out does until that is committed:
    /// then it leads no longer.
    fn keeps_log(&self) -> bool {
        self.leads || self.voters.is_empty() || self.voters.contains(&self.me)
    }

    /// Gives the lease up, so that this node can be removed without waiting for it; its chains first.
    pub(super) fn resign(&mut self) {
        if self.leaving.resigning.is_none() {
            self.leaving.resigning = Some(self.order_all(&Order::Resign));
        }
    }

    pub(super) fn chain_resigned(&mut self, now: Timestamp, chain: ChainId) {
        let Some(waits) = &mut self.leaving.resigning else { return };
        waits.remove(&chain);
        if waits.is_empty() {
            self.leaving.resigning = None;
            self.holder.resign(now);
            self.see_whether_left();
        }
    }

    /// Has the chains act by leases again: by those that come from now on, never by one of before they resigned.
    pub(super) fn serve_again(&mut self) {
        self.stretch += 1;
        let stretch = self.stretch;
        self.outputs.push_back(Output::Lease(Lease { stretch, ..Lease::default() }));
        self.order_all(&Order::Resume { stretch });
    }

    /// Orders all chains the same; which these are.
    pub(super) fn order_all(&mut self, order: &Order) -> BTreeSet<ChainId> {
        let chains: BTreeSet<_> = self.holder.configs().iter().map(|config| config.chain).collect();
        self.outputs.extend(chains.iter().map(|&chain| Output::Order(chain, order.clone())));
        chains
    }
}
