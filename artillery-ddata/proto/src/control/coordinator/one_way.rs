//! Failures in one direction (trap 51, docs/adr/0044).
//!
//! Renewals arrive on connections that the other nodes dial; answers of the log's group arrive on connections that this
//! leader dialled. So a leader that can dial but can't be dialled receives no renewal, and a quorum still confirms it.
//! Two rules follow. A member that answers the log isn't at fault for missing renewals. And a leader that receives
//! renewals from no majority of the voters, although a quorum confirms it, is the one that can't be reached: it removes
//! no member and resigns.

use std::collections::BTreeSet;

use super::{Coordinator, CoordinatorOutput, LeaderTerm, view::View, voters::is_majority};
use crate::{MemberId, Timestamp, control::log::Term};

/// A leader receives renewals from no majority of the voters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unheard {
    /// The last round that had begun by then.
    round: u64,
    /// When a later round was first confirmed. Only from then on could renewals arrive: a lost quorum may just have
    /// returned.
    confirmed: Option<Timestamp>,
}

/// The voters that have reached a node since it resigned its leadership because others could not reach it.
#[derive(Clone, Default, Debug)]
pub(super) struct Unreachable(BTreeSet<MemberId>);

impl View<'_> {
    /// Whether the node has answered a message of the log that was sent within the suspicion time.
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

    /// Whether no renewal of the node was received for the suspicion time. A node that has resigned may still renew.
    fn is_quiet(&self, id: MemberId) -> bool {
        id != self.me && self.now - self.last_heard(id) >= self.settings.suspect
    }

    /// When the last renewal of the node, in any incarnation of its store, was received.
    pub(super) fn last_heard(&self, id: MemberId) -> Timestamp {
        let lives = self.nodes.iter().filter(|(life, _)| life.shares_store(id));
        lives.map(|(_, node)| node.heard).max().unwrap_or_default().max(self.since)
    }

    /// Whether this leader receives renewals from a majority of the voters.
    pub(super) fn hears_majority(&self) -> bool {
        self.voters.is_empty() || is_majority(self.voters, |id| !self.is_quiet(id))
    }

    /// Whether the silence of a member is its own fault. If the member answers the log, its path to this leader is
    /// broken: either at this leader, which then receives renewals from no other node at all, or on that path alone. In
    /// the second case, or if no other node could lead, the member gets no lease and must be removed, but not before
    /// the time after which a chain stops waiting for a member.
    pub(super) fn is_silent_by_itself(&self, id: MemberId) -> bool {
        if allows!(self.settings.guards, TrustOneWay) {
            return true;
        }
        let hears_another = || self.nodes.keys().any(|&other| other != self.me && !self.is_quiet(other));
        // If there is only one voter, no other node could lead.
        let leads_alone = self.voters.len() < 2;
        let for_long = || self.now - self.last_heard(id) >= self.settings.slow && (leads_alone || hears_another());
        self.hears_majority() && (!self.is_quiet(id) || !self.answers(id) || for_long())
    }
}

impl Coordinator {
    /// Resigns the leadership if this node alone can't be reached.
    pub(super) fn give_up_unreachable(&mut self, now: Timestamp) {
        let Some(leading) = &mut self.leading else { return };
        let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
        // If there is only one voter, no other node could lead.
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
        // A proposal of this term may still be appended. So this node leads in another term only (trap 35).
        self.given_up = Some(term);
        self.unreachable = Some(Unreachable::default());
        self.outputs.push_back(CoordinatorOutput::Resign { term });
    }

    /// Another node has reached this one, on a connection that it dialled. Once a majority of the voters has, this node
    /// may lead again.
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

    pub(super) fn has_given_up(&self, term: Term) -> bool {
        self.given_up == Some(term)
    }
}

impl LeaderTerm {
    /// Records, per node, when the latest message of the log that it has answered was sent.
    pub(super) fn has_answers(&mut self, answered: impl IntoIterator<Item = (MemberId, Timestamp)>) {
        for (id, sent) in answered {
            let latest = self.answered.entry(id).or_insert(sent);
            *latest = sent.max(*latest);
        }
    }
}
