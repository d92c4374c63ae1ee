//! Trouble in one direction (trap 51, docs/adr/0044).
//!
//! Renewals arrive on connections that the other nodes dial; answers of the log's group arrive on connections that this leader
//! dialled. So a leader that can dial and can't be dialled receives no renewal, and a quorum confirms it all the same. Two rules
//! follow. A member that answers the log isn't silent by itself. And a leader that hears no majority of the voters, though a
//! quorum confirms it, is the one that can't be reached: it removes no member and gives up its leadership.

use std::collections::BTreeSet;

use super::{Coordinator, CoordinatorOutput, LeaderTerm, view::View, voters::is_majority};
use crate::{MemberId, Timestamp, control::log::Term};

/// A leader hears no majority of the voters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unheard {
    /// The last round that had begun by then.
    round: u64,
    /// When a later round was confirmed first. Renewals have had no time to arrive before: a lost quorum may just be back.
    confirmed: Option<Timestamp>,
}

/// The voters that have reached a node since it gave up its leadership, as others could not reach it.
#[derive(Clone, Default, Debug)]
pub(super) struct Unreachable(BTreeSet<MemberId>);

impl View<'_> {
    /// Whether the node has answered a message of the log that was sent a moment ago.
    pub(super) fn answers(&self, id: MemberId) -> bool {
        self.answered.get(&id).is_some_and(|&sent| self.now - sent < self.settings.suspect)
    }

    /// Whether the node has answered no message of the log for two suspicion times, while others answer.
    pub(super) fn is_unreached(&self, id: MemberId) -> bool {
        let sent = self.answered.get(&id).map_or(self.since, |&sent| sent.max(self.since));
        let one_answers = || self.answered.keys().any(|&other| self.answers(other));
        let is_long = self.now - sent >= self.settings.suspect * 2;
        id != self.me && is_long && one_answers() && !allows!(self.settings.guards, TrustOneWay)
    }

    /// Whether nothing was heard of the node for the suspicion time. A node that has resigned may still be heard.
    fn is_quiet(&self, id: MemberId) -> bool {
        id != self.me && self.now - self.last_heard(id) >= self.settings.suspect
    }

    /// When the node was last heard, in any life of its store.
    pub(super) fn last_heard(&self, id: MemberId) -> Timestamp {
        let lives = self.nodes.iter().filter(|(life, _)| life.shares_store(id));
        lives.map(|(_, node)| node.heard).max().unwrap_or_default().max(self.since)
    }

    /// Whether this leader hears a majority of the voters.
    pub(super) fn hears_majority(&self) -> bool {
        self.voters.is_empty() || is_majority(self.voters, |id| !self.is_quiet(id))
    }

    /// Whether the silence of a member is its own. If the member answers the log, the way from it to this leader is broken: either
    /// at this leader, which then hears no other node at all, or on that way alone. In the second case, or if no other node could lead,
    /// the member gets no lease and has to go, but not before the time after which a chain doesn't wait for a member any longer.
    pub(super) fn is_silent_by_itself(&self, id: MemberId) -> bool {
        if allows!(self.settings.guards, TrustOneWay) {
            return true;
        }
        let hears_another = || self.nodes.keys().any(|&other| other != self.me && !self.is_quiet(other));
        // No other node could lead in the place of a single voter.
        let leads_alone = self.voters.len() < 2;
        let for_long = || self.now - self.last_heard(id) >= self.settings.slow && (leads_alone || hears_another());
        self.hears_majority() && (!self.is_quiet(id) || !self.answers(id) || for_long())
    }
}

impl Coordinator {
    /// Gives up the leadership if this node alone can't be reached.
    pub(super) fn give_up_unreachable(&mut self, now: Timestamp) {
        let Some(leading) = &mut self.leading else { return };
        let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
        // A single voter has no other one that could lead.
        if self.voters.len() < 2 || view.hears_majority() {
            leading.unheard = None;
            return;
        }
        let confirmed = leading.grants.confirmed();
        let unheard = leading.unheard.get_or_insert(Unheard { round: self.rounds, confirmed: None });
        if confirmed > unheard.round {
            unheard.confirmed.get_or_insert(now);
        }
        if unheard.confirmed.is_none_or(|since| now - since < self.settings.suspect)
            || allows!(self.settings.guards, TrustOneWay)
            || allows!(self.settings.guards, LeadUnreached)
        {
            return;
        }
        let term = leading.term;
        self.end_term();
        // A proposal of this term may still come into the log. So this node leads in another term only (trap 35).
        self.given_up = Some(term);
        self.unreachable = Some(Unreachable::default());
        self.outputs.push_back(CoordinatorOutput::Resign { term });
    }

    /// Another node has reached this one, on a connection that it dialled. Once a majority of the voters has, this node may lead
    /// again.
    pub(super) fn reached(&mut self, by: MemberId) {
        let votes = self.voters.iter().any(|voter| voter.shares_store(by));
        let Some(Unreachable(reached_by)) = self.unreachable.as_mut().filter(|_| by != self.me && votes) else {
            return;
        };
        reached_by.insert(by);
        let me = self.me;
        if is_majority(&self.voters, |id| id == me || reached_by.iter().any(|by| by.shares_store(id))) {
            self.unreachable = None;
            self.outputs.push_back(CoordinatorOutput::Stand);
        }
    }

    /// Whether this node has given up its leadership in that term.
    pub(super) fn has_given_up(&self, term: Term) -> bool {
        self.given_up == Some(term)
    }
}

impl LeaderTerm {
    /// Takes in when the latest message was sent that each node of the log's group has answered.
    pub(super) fn has_answers(&mut self, answered: impl IntoIterator<Item = (MemberId, Timestamp)>) {
        for (id, sent) in answered {
            let latest = self.answered.entry(id).or_insert(sent);
            *latest = sent.max(*latest);
        }
    }
}
