//! Failures in one direction (trap 51, docs/adr/0044).
//!
//! Renewals arrive on connections that the other nodes dial; answers of the log's group arrive on connections that this
//! leader dialled. So a leader that can dial but can't be dialled receives no renewal, and a quorum still confirms it.
//! Two rules follow. A member that answers the log isn't at fault for missing renewals, and is removed only after
//! `slow`. And a leader that receives renewals from no majority of the voters, although a quorum confirms it, is the
//! one that can't be reached: it removes no member that hasn't resigned, and resigns, unless it is the only voter.

use std::collections::BTreeSet;

use super::{cluster::Cluster, view::View};
use crate::{MemberId, Timestamp, control::log::Term};

/// A leader receives renewals from no majority of the voters.
#[derive(Clone, Copy, Debug)]
struct Unheard {
    /// The last round that had begun when the leader noticed this.
    round: u64,
    /// When a later round was first confirmed. Only from then on could renewals arrive: a lost quorum may just have
    /// returned.
    confirmed: Option<Timestamp>,
}

/// Whether other nodes can reach this one.
#[derive(Clone, Default, Debug)]
pub(super) struct Reach {
    unheard: Option<Unheard>,
    /// The voters that have reached this node since it resigned as leader. Set until they are a majority.
    reached_by: Option<BTreeSet<MemberId>>,
    /// The last term in which this node resigned its leadership.
    given_up: Option<Term>,
}

impl Reach {
    pub(super) fn end_term(&mut self) {
        self.unheard = None;
    }

    /// Whether this leader alone can't be reached, and must resign. `round`: the last one that has begun.
    pub(super) fn is_unreachable(&mut self, view: View<'_>, round: u64) -> bool {
        // If there is only one voter, no other node could lead.
        if view.voters().len() < 2 || view.hears_majority() {
            self.unheard = None;
            return false;
        }
        let unheard = self.unheard.get_or_insert(Unheard { round, confirmed: None });
        if view.nodes().confirmed() > unheard.round {
            unheard.confirmed.get_or_insert(view.now);
        }
        unheard.confirmed.is_some_and(|since| view.now - since >= view.settings().suspect)
            && !allows!(view.guards(), TrustOneWay)
            && !allows!(view.guards(), LeadUnreached)
    }

    /// This node resigns its leadership. A proposal of this term may still be appended. So this node leads again only
    /// in another term (trap 35).
    pub(super) fn resign(&mut self, term: Term) {
        self.given_up = Some(term);
        self.reached_by = Some(BTreeSet::new());
    }

    /// Another node has reached this one, on a connection that it dialled. Returns whether this node, which resigned,
    /// may lead again: the nodes that have reached it are, with itself, a majority of the voters.
    pub(super) fn is_restored(&mut self, cluster: &Cluster, by: MemberId) -> bool {
        let me = cluster.me();
        let votes = by != me && cluster.voters().iter().any(|voter| voter.shares_store(by));
        let Some(reached_by) = self.reached_by.as_mut().filter(|_| votes) else { return false };
        reached_by.insert(by);
        let is_reached = |id: MemberId, by: &BTreeSet<MemberId>| id == me || by.iter().any(|by| by.shares_store(id));
        self.reached_by.take_if(|by| cluster.is_majority(|id| is_reached(id, by))).is_some()
    }

    pub(super) fn has_given_up(&self, term: Term) -> bool {
        self.given_up == Some(term)
    }
}
