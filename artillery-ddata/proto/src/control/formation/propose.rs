//! The actions of a free node: it asks the members of an existing cluster, or proposes a new one.

use std::time::Duration;

use super::{Bootstrap, Formation, FormationMessage, MAX_ASKED_MEMBERS, Proposal};
use crate::{ClusterId, Timestamp};

/// The creator of a successor cluster first searches for an existing one, for this many times
/// [`FormationSettings::settle`](super::FormationSettings::settle).
const SUCCESSOR_SEARCH_WAITS: u32 = 10;

/// Newly seen nodes postpone a planned proposal only within this multiple of `settle`.
const MAX_POSTPONED_WAITS: u32 = 10;

impl Formation {
    /// Asks members of a cluster, if it sees any. Otherwise proposes a cluster when it sees enough nodes.
    pub(super) fn look_around(&mut self, now: Timestamp) {
        let members: Vec<_> = self.seen.members().collect();
        if !members.is_empty() {
            self.propose_at = None;
            if now >= self.ask_at {
                self.ask_at = now + self.settings.repeat;
                let first = self.random.below(members.len() as u64) as usize;
                for to in members.iter().cycle().skip(first).take(members.len().min(MAX_ASKED_MEMBERS)) {
                    self.send(*to, FormationMessage::Ask);
                }
            }
        } else if !self.sees_enough() || self.is_searching() {
            self.propose_at = None;
        } else {
            match self.propose_at {
                None => {
                    self.propose_at = Some(now + self.delay(now));
                    self.postpone_until = now + self.settings.settle * MAX_POSTPONED_WAITS;
                }
                Some(at) if now >= at => self.propose(now),
                Some(_) => {}
            }
            // A cluster of one, or no delay at all: propose at once.
            if self.propose_at == Some(now) {
                self.propose(now);
            }
        }
    }

    /// Postpones the planned proposal, because another free node has appeared and may know of more.
    pub(super) fn postpone(&mut self, now: Timestamp) {
        if now < self.postpone_until {
            self.propose_at = self.propose_at.map(|at| at.max(now + self.wait(now)));
        }
    }

    /// Whether this node has to search for others before it proposes.
    pub(super) fn must_search(&self) -> bool {
        let settings = &self.settings;
        settings.after.is_none() && !settings.search.is_zero() && !allows!(settings.guards, ProposeUnsearched)
    }

    /// Whether this node has not yet searched for the required time.
    pub(super) fn is_searching(&self) -> bool {
        if !self.must_search() {
            return false;
        }
        let settings = &self.settings;
        let wanted = match self.seen.free() {
            _ if self.seeds_missing => settings.search_seeds,
            0 => settings.search * 2,
            _ => settings.search,
        };
        // A seed answers before the nodes that it knows are seen.
        let must_see_more = !self.seeds_missing && !self.answered_search.is_over(settings.search);
        !self.search.is_over(wanted) || (must_see_more && !allows!(settings.guards, ProposeOnAnswer))
    }

    /// The shortest wait before a proposal: the newest node may know of others, and the node with the lowest id
    /// proposes first.
    fn wait(&self, now: Timestamp) -> Duration {
        let rank = self.seen.rank(self.me.id).min(16) as u32;
        let settles = self.settings.settle.saturating_sub(now - self.sighted_at);
        settles + self.settings.stagger * rank
    }

    /// The wait before a proposal, spread so that few nodes propose at once.
    fn delay(&mut self, now: Timestamp) -> Duration {
        if self.settings.after.is_some() {
            // A successor may already exist: then this node joins it.
            return self.settings.settle * SUCCESSOR_SEARCH_WAITS;
        }
        if self.seen.free() == 0 {
            return Duration::ZERO;
        }
        let spread = self.settings.stagger * (1 << self.failures.min(5));
        self.wait(now) + self.random.up_to(spread)
    }

    fn propose(&mut self, now: Timestamp) {
        self.attempts += 1;
        let members = match self.settings.after {
            Some(_) => vec![self.me.clone()],
            None => self.seen.founders(&self.me, usize::from(self.needed()), self.settings.guards),
        };
        let founding = Bootstrap {
            cluster: ClusterId(self.random.draw()),
            name: self.settings.name.clone(),
            members,
            settings: self.settings.chains,
            timing: self.settings.timing,
            succeeds: self.settings.after.as_ref().map(|after| after.lineage.clone()).unwrap_or_default(),
        };
        let Some(me) = founding.position(self.me.id) else { return };
        self.answered.insert(self.me.id, self.attempts);
        self.accept(now, Proposal { proposer: self.me.id, attempt: self.attempts, founding }, me);
        self.advance(now);
    }
}
