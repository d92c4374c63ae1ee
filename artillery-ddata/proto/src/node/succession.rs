//! What a node does when no life answers that ever served, and when its cluster was given up for another one
//! (docs/DESIGN.md §5.13).
//!
//! A node that hears no other serving member for a while asks for them. One that has served itself needs none of that, until it
//! is told of a cluster that succeeds its own.

use std::collections::BTreeSet;

use super::{Event, Node, Output, Unready};
use crate::{ClusterId, MemberId, Role, Timestamp, control::Configs, runner::Order};

/// Without a word of a serving member for so many leases, a node that never served takes them for gone.
const ORPHANED: u32 = 3;

/// The cluster that succeeds the one of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Successor {
    /// Which cluster.
    pub by: ClusterId,
    /// The node gives way to it: it keeps what it holds, and serves nothing. Otherwise it goes on, and refuses the other.
    pub yields: bool,
}

/// What a node knows of the lives that serve, and of a cluster that succeeds its own.
#[derive(Clone, Default, Debug)]
pub(super) struct Company {
    /// When another serving member was heard last; before any was, when the node began.
    member_heard: Option<Timestamp>,
    /// When to look next whether they are there.
    look_at: Option<Timestamp>,
    /// The serving member that was asked last by itself.
    probed: Option<MemberId>,
    succession: Option<Succession>,
}

/// How a node decides between its cluster and the one that succeeds it.
#[derive(Clone, Debug)]
struct Succession {
    by: ClusterId,
    /// When to decide, unless somebody is heard.
    decides_at: Timestamp,
    /// All have been asked since somebody was heard last.
    asked: bool,
    /// It has been said that this node goes on.
    refused: bool,
}

impl Node {
    /// Another cluster says that it succeeds this one: it has to give way, unless a node of its own is there that may go on.
    pub(super) fn succeeded(&mut self, now: Timestamp, by: ClusterId) {
        if self.company.succession.as_ref().is_some_and(|known| known.by == by) {
            return;
        }
        let yields = self.yields();
        let decides_at = now + self.holder.configs().timing().lease_and_drift();
        self.company.succession = Some(Succession { by, decides_at, asked: true, refused: false });
        self.state.successor = Some(Successor { by, yields });
        self.ask_own(now);
        if self.yields_at_once() {
            self.give_way(by);
        }
    }

    /// Whether this node serves nothing, since another cluster succeeds its own.
    pub(super) fn yields(&self) -> bool {
        self.state.successor.is_some_and(|successor| successor.yields)
    }

    /// Whether a node has a part in the present configuration that lets this one go on: it serves, or keeps the log.
    pub(super) fn is_own(&self, id: MemberId) -> bool {
        let serves = |configs: &Configs| configs.iter().any(|config| config.role(id) == Some(Role::Serving));
        id != self.me && (serves(self.holder.configs()) || self.voters.contains(&id))
    }

    /// Whether the cluster may need this node, though it never served: it keeps the log, or joins a chain.
    fn has_part(&self) -> bool {
        self.voters.contains(&self.me) || self.holder.configs().names(self.me)
    }

    fn serving(&self) -> BTreeSet<MemberId> {
        self.holder.configs().iter().flat_map(|config| config.serving()).filter(|&id| id != self.me).collect()
    }

    fn ask_own(&mut self, now: Timestamp) {
        let voters = self.voters.iter().copied().filter(|&id| self.is_own(id));
        let own: BTreeSet<_> = self.serving().into_iter().chain(voters).collect();
        self.holder.ask(now, own);
    }

    /// Another node has said something to this one.
    pub(super) fn hear_company(&mut self, now: Timestamp, from: MemberId) {
        if self.holder.configs().iter().any(|config| config.role(from) == Some(Role::Serving)) && from != self.me {
            let lease = self.holder.configs().timing().lease;
            self.company.member_heard = Some(now);
            self.company.look_at = Some(now + lease);
            self.state.member_heard = now;
            self.state.orphaned = false;
        }
        if self.company.succession.is_some() && self.is_own(from) {
            self.go_on(now);
        }
    }

    fn go_on(&mut self, now: Timestamp) {
        let wait = self.holder.configs().timing().lease * ORPHANED;
        let Some(succession) = &mut self.company.succession else { return };
        (succession.decides_at, succession.asked) = (now + wait, false);
        let by = succession.by;
        if !std::mem::replace(&mut succession.refused, true) {
            self.outputs.push_back(Output::Event(Event::Refuses { by }));
        }
        if self.yields() && !self.yields_at_once() {
            self.state.successor = Some(Successor { by, yields: false });
            self.order_all(&Order::Proceed);
            self.outputs.push_back(Output::Event(Event::GoesOn { by }));
        }
    }

    /// A node that has just begun has heard nobody yet.
    pub(super) fn begin_to_look(&mut self, now: Timestamp) {
        self.company.member_heard.get_or_insert(now);
        self.company.look_at.get_or_insert(now + self.holder.configs().timing().lease);
    }

    /// When to look at this next.
    pub(super) fn company_at(&self) -> Option<Timestamp> {
        let looks = self.company.look_at.filter(|_| !self.state.served);
        [looks, self.decides_at()].into_iter().flatten().min()
    }

    fn decides_at(&self) -> Option<Timestamp> {
        let succession = self.company.succession.as_ref().filter(|_| !self.yields() && !self.is_over);
        succession.map(|succession| succession.decides_at)
    }

    /// Looks whether members that serve are there, and what becomes of this node if another cluster succeeds its own.
    pub(super) fn look_for_company(&mut self, now: Timestamp) {
        if self.decides_at().is_some_and(|at| at <= now) {
            self.decide_on_successor(now);
        }
        if !self.state.served && self.company.look_at.is_some_and(|at| at <= now) {
            self.look_for_members(now);
        }
    }

    /// Asks one member after a lease without a word of any, all after two, and after three calls them gone.
    fn look_for_members(&mut self, now: Timestamp) {
        let lease = self.holder.configs().timing().lease;
        let since = *self.company.member_heard.get_or_insert(now);
        self.company.look_at = Some(now + lease);
        let serving = self.serving();
        if now - since < lease {
            return;
        }
        if now - since < lease * 2 {
            let next = serving.iter().find(|&&id| self.company.probed.is_none_or(|last| id > last));
            self.company.probed = next.or(serving.first()).copied();
            return self.holder.ask(now, self.company.probed);
        }
        self.holder.ask(now, serving);
        if now - since >= lease * ORPHANED && !std::mem::replace(&mut self.state.orphaned, true) {
            self.state.unready = Some(Unready::Orphaned);
            self.outputs.push_back(Output::Event(Event::Orphaned));
        }
    }

    /// Nobody of its own was heard for long: asks all once more, and gives way if none of them answers.
    fn decide_on_successor(&mut self, now: Timestamp) {
        let (timing, has_due) = (self.holder.configs().timing(), self.holder.has_due());
        let Some(succession) = &mut self.company.succession else { return };
        // A node that was paused meanwhile, or has yet to ask, can't have heard the answers.
        let is_late = now - succession.decides_at >= timing.lease / 2;
        succession.decides_at = now + timing.lease_and_drift();
        if succession.asked && !is_late {
            let by = succession.by;
            if !has_due {
                self.give_way(by);
            }
            return;
        }
        succession.asked = true;
        self.ask_own(now);
    }

    /// What has served keeps what it holds, and serves nothing: it may go on when it hears a node of its own. Another one holds
    /// nothing: it may end, and join the successor, if the cluster doesn't need it. Otherwise an operator has to say so: this node
    /// may only be cut off, and wouldn't come back.
    fn give_way(&mut self, by: ClusterId) {
        if self.never_yields() {
            return;
        }
        if !self.state.served && self.has_part() {
            return;
        }
        if !self.state.served {
            self.is_over = true;
            return self.outputs.push_back(Output::Succeeded { by });
        }
        self.state.successor = Some(Successor { by, yields: true });
        self.state.unready = Some(Unready::Yields { by });
        self.order_all(&Order::Yield { by });
        self.outputs.push_back(Output::Event(Event::Yields { by }));
    }

    /// From now on the node counts as one that has served, if the log says so.
    pub(super) fn see_whether_serves(&mut self) {
        let serves = |configs: &Configs| configs.iter().any(|config| config.role(self.me) == Some(Role::Serving));
        self.state.served |= serves(self.holder.configs());
        self.state.orphaned &= !self.state.served;
    }

    #[cfg(not(feature = "mutants"))]
    const fn yields_at_once(&self) -> bool {
        false
    }

    #[cfg(not(feature = "mutants"))]
    const fn never_yields(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
