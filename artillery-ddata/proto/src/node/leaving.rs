//! Has the chains of this node resign, and serve again, when it leaves.

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

impl Node {
    /// Asks to leave. A node that is to stop goes on asking until it ends, also when a drain of it is given up.
    pub(super) fn leave(&mut self, now: Timestamp, until: Option<Timestamp>) {
        let is_to_stop = self.holder.leaves().is_asked() && self.stays_at.is_none();
        self.stays_at = until.filter(|_| !is_to_stop);
        if until.is_none() && self.ends_at.is_none() {
            self.wait_on(now);
        }
        self.leaving = true;
        self.take_back_word();
        self.holder.leave(now);
        self.see_whether_left();
        if self.ends_at_once() && self.ends_at.is_some() && self.is_last() {
            self.end(Event::EndsChain);
        }
    }

    fn wait_on(&mut self, now: Timestamp) {
        self.asked_members = false;
        self.ends_at = Some(now + self.holder.configs().timing().lease * FAREWELL);
    }

    /// What a leader said of the chains of this node holds no longer.
    fn take_back_word(&mut self) {
        (self.goes_on, self.ends_soon) = (None, false);
    }

    /// Whether it alone serves a chain, or keeps the log.
    fn is_last(&self) -> bool {
        let serves_alone = |config: &ChainConfig| config.serving().eq([self.me]);
        self.voters.iter().eq([&self.me]) || self.holder.configs().iter().any(serves_alone)
    }

    /// Takes in what a leader says of the chains of this node, which leaves: while another node takes over what this one alone
    /// has, it waits on (trap 69). The newest word counts: a leader that knows nothing now takes back what it has said.
    pub(super) fn hear_farewell(&mut self, now: Timestamp, farewell: Option<Farewell>) {
        if self.ends_at.is_none() {
            return;
        }
        let Some(farewell) = farewell else { return self.take_back_word() };
        match farewell {
            Farewell::GoesOn => self.goes_on = Some(now),
            Farewell::HandsOver => {
                self.take_back_word();
                self.wait_on(now);
                self.say_once(Event::HandsOver);
            }
            // A node that gives way listens to few others: some may be there that it doesn't know of. A node that an
            // operator has go on alone is to be the source of the nodes that come (trap 69).
            Farewell::Ends if self.yields() || self.is_kept => self.wait_on(now),
            // Others that leave too are to hear it as well, which takes a quorum.
            Farewell::Ends if self.keeps_log() => self.end_soon(now),
            Farewell::Ends => self.end(Event::EndsChain),
        }
    }

    /// This node keeps the log, and ends when the others have had time for another renewal.
    fn end_soon(&mut self, now: Timestamp) {
        if !self.ends_soon {
            self.ends_soon = true;
            self.ends_at = Some(now + self.holder.configs().timing().renew() * 2);
        }
    }

    /// It has waited for long, and no other node is known to hold what it does if it is the last.
    pub(super) fn give_up(&mut self, now: Timestamp) {
        // What it heard before a pause doesn't tell which nodes are there now.
        if self.ends_at.is_some_and(|at| now - at > self.holder.configs().timing().lease) {
            self.take_back_word();
            return self.wait_on(now);
        }
        if self.ends_soon {
            return self.end(Event::EndsChain);
        }
        let may_be_last = self.may_be_last(now);
        if may_be_last && !self.is_last() && !std::mem::replace(&mut self.asked_members, true) {
            self.ends_at = Some(now + self.holder.configs().timing().lease);
            self.ask_members(now);
        } else if may_be_last || self.is_last() {
            self.wait_on(now);
            self.say_once(Event::Waits);
        } else {
            self.end(Event::GivesUp);
        }
    }

    /// Whether no leader has said lately that the chains of this node go on without it, and it serves one of which no other
    /// member has answered what was asked lately: they may be gone, and what this node holds would end with it. A message of
    /// theirs proves nothing: it may have been long on its way.
    fn may_be_last(&self, now: Timestamp) -> bool {
        let is_serving = |config: &&ChainConfig| config.serving().any(|id| id == self.me);
        let lately = |at: Timestamp| now - at < self.holder.configs().timing().lease * 2;
        let goes_on = |config: &ChainConfig| config.serving().any(|id| self.company.answered(id).is_some_and(lately));
        !self.goes_on.is_some_and(lately) && !self.holder.configs().iter().filter(is_serving).all(goes_on)
    }

    fn say_once(&mut self, event: Event) {
        if !self.waits {
            self.waits = true;
            self.outputs.push_back(Output::Event(event));
        }
    }

    /// It is to stop, and waits no longer.
    fn end(&mut self, why: Event) {
        self.ends_at = None;
        if self.leaving {
            self.leaving = false;
            self.outputs.extend([Output::Event(why), Output::Left]);
        }
    }

    /// No leader has agreed in time, or the change didn't come about: this node stays.
    pub(super) fn stay(&mut self, now: Timestamp) {
        let had_resigned = self.holder.leaves().has_resigned();
        if !self.holder.configs().names(self.me) {
            return;
        }
        self.outputs.push_back(Output::Event(Event::Stays));
        self.holder.stay(now);
        self.released = false;
        if had_resigned {
            self.serve_again();
        }
    }

    /// Whether no configuration names this node any more and the log can do without it, for the callers that wait for that.
    pub(super) fn see_whether_left(&mut self) {
        let may_end = self.released || !self.keeps_log();
        if self.leaving && may_end && !self.holder.configs().names(self.me) {
            self.leaving = false;
            self.ends_at = None;
            self.outputs.push_back(Output::Left);
        }
    }

    #[cfg(not(feature = "mutants"))]
    const fn ends_at_once(&self) -> bool {
        false
    }

    /// Whether this node keeps the log, as far as is known here. A leader that was voted out does until that is committed:
    /// then it leads no longer.
    fn keeps_log(&self) -> bool {
        self.leads || self.voters.is_empty() || self.voters.contains(&self.me)
    }

    /// Gives the lease up, so that this node can be removed without waiting for it; its chains first.
    pub(super) fn resign(&mut self) {
        self.resigning = Some(self.order_all(&Order::Resign));
    }

    pub(super) fn chain_resigned(&mut self, now: Timestamp, chain: ChainId) {
        let Some(waits) = &mut self.resigning else { return };
        waits.remove(&chain);
        if waits.is_empty() {
            self.resigning = None;
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
