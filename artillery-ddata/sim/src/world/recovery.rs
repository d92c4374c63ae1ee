//! Measures the time from healing until every chain has all its members and every node that should serve has served.

use std::collections::BTreeSet;

use artillery_proto::{Mode, api::Reply};

use super::World;
use crate::{
    oracle::{Failure, Oracle},
    scenario::{RECOVERY, SECOND},
};

/// Number of operations after healing that are assumed to reach every node.
const ASKED: u64 = 100;

impl World {
    pub(super) fn note_served(&mut self, node: usize, reply: &Reply) {
        let serves = !matches!(reply, Reply::Refused(_) | Reply::Expired);
        if serves && self.now >= self.setup.healed && self.counts.recovery.is_none() {
            self.served.insert(node);
        }
    }

    /// Checks that the cluster recovers in time, until it has recovered.
    pub(super) fn check_recovery(&mut self) -> Result<(), Failure> {
        if self.now < self.setup.healed || self.counts.recovery.is_some() || self.unasked || self.is_given_up() {
            return Ok(());
        }
        let whole = self.is_settled();
        // A node that gets no requests can't show that it serves.
        let is_asked = self.counts.operations < self.setup.most;
        let lacking = |node: &usize| is_asked && !self.served.contains(node);
        let missing: BTreeSet<usize> = self.expected_to_serve().filter(lacking).collect();
        if whole && missing.is_empty() {
            self.counts.recovery = Some(self.now - self.setup.healed);
        } else if self.now > self.setup.healed + RECOVERY {
            // Clients that are far ahead of schedule pause. Clients that evict each other's sessions do nothing else.
            let starves = self.counts.expired_sessions * 4 > self.counts.operations;
            self.unasked = whole && (self.counts.healed < ASKED || starves);
            if self.unasked || !whole && self.waits_for_operator() {
                return Ok(());
            }
            let within = RECOVERY / SECOND;
            let what = match whole {
                true => format!("nodes {missing:?} served nothing within {within} virtual seconds of healing"),
                false => format!("a chain was incomplete {within} virtual seconds after healing"),
            };
            return Err(Failure::new(Oracle::Liveness, what));
        }
        Ok(())
    }

    /// The live members of the first chain that must have served: head and tail in classic mode, otherwise all.
    fn expected_to_serve(&self) -> impl Iterator<Item = usize> + '_ {
        let members = match &self.control {
            Some(_) => self.members_now(0),
            None => self.orders[0].clone(),
        };
        let middles = self.setup.mode == Mode::Craq;
        let last = members.len().saturating_sub(1);
        let places = members.into_iter().enumerate().filter(move |&(place, _)| middles || place == 0 || place == last);
        places.map(|(_, node)| node).filter(|&node| self.nodes[node].is_alive())
    }
}
