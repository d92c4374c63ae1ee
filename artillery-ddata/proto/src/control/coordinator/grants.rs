//! Granting leases, and tracking their end.

use std::{collections::BTreeMap, time::Duration};

use super::{Coordinator, CoordinatorOutput, KnownNode, LeaderTerm};
use crate::{
    MemberId, Timestamp,
    control::{
        log::LogIndex,
        message::{Farewell, Renewal, Renewed, Unsettled},
    },
};

/// Renewals that wait for a round that confirms this leader.
#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    /// Renewals received before the current round began.
    asked: Vec<PendingGrant>,
    /// Renewals received since then: the next round answers them.
    next: Vec<PendingGrant>,
    round: Option<u64>,
    confirmed: u64,
}

impl Grants {
    /// The newest round in which a quorum has confirmed that this node leads; 0: none in this term.
    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed
    }
}

#[derive(Clone, Copy, Debug)]
struct PendingGrant {
    from: MemberId,
    number: u64,
    applied: LogIndex,
    received: Timestamp,
}

/// The maximum number of renewals that wait for the next round. Each node has one or two in flight.
const MAX_PENDING_GRANTS: usize = 4096;

impl Coordinator {
    pub(super) fn renewal(&mut self, now: Timestamp, from: MemberId, renewal: Renewal) {
        let Renewal { number, answered, me, applied, leave, promotions, reports, holds, position: _, loads } = renewal;
        let Some(leading) = self.leading.as_mut().filter(|_| me.id == from) else {
            // The log names an elected node as leader before that node has committed anything. Until then no quorum is
            // known to follow it, so it doesn't name itself.
            let leader = self.leader.filter(|&leader| leader != self.me);
            return self.answer(now, from, number, applied, leader, None);
        };
        let seen = leading.nodes.entry(from).or_insert_with(|| KnownNode::new(me.clone(), now));
        seen.heard = now;
        seen.applied = seen.applied.max(applied);
        let is_fresh = seen.shows(answered);
        seen.founder = me;
        seen.leaver.on_renewal(now, leave, is_fresh, self.settings.guards);
        seen.reports(now, reports);
        seen.holds = holds.into_iter().map(|held| (held.chain, held)).collect();
        if std::mem::replace(&mut seen.loads, loads) {
            // The node reports its holdings only from now on, so the wait for other stores begins now.
            seen.first = now;
        }
        // An answer given before this term doesn't acknowledge a request of this leader (trap 55).
        seen.shown = if is_fresh { answered } else { 0 };
        if allows!(self.settings.guards, PromoteInAnyEpoch) {
            seen.promotions.extend(promotions);
        } else {
            seen.promotions = promotions;
        }
        let waiting = PendingGrant { from, number, applied, received: now };
        if allows!(self.settings.guards, GrantUnconfirmed) {
            return self.say(now, waiting, true);
        }
        let Some(LeaderTerm { grants, .. }) = &mut self.leading else { return };
        if grants.next.len() < MAX_PENDING_GRANTS {
            let joins = allows!(self.settings.guards, JoinRound);
            let queue = if joins && grants.round.is_some() { &mut grants.asked } else { &mut grants.next };
            queue.push(waiting);
        }
        self.confirm();
    }

    /// Answers a renewal after a round. A deposed leader names no leader: it doesn't know the new one.
    fn say(&mut self, now: Timestamp, waiting: PendingGrant, leads: bool) {
        let PendingGrant { from, number, applied, .. } = waiting;
        if !leads {
            return self.answer(now, from, number, applied, None, None);
        }
        if let Some(seen) = self.leading.as_mut().and_then(|leading| leading.nodes.get_mut(&from)) {
            seen.answered(now, number);
        }
        // Check again: the member may have been fenced or removed since the renewal was received.
        if self.may_have_lease(waiting) {
            self.grant(now, waiting);
        } else {
            self.answer(now, from, number, applied, Some(self.me), None);
        }
    }

    /// Whether the sender may get a lease: it serves, has applied the entry that made it a serving member, and should
    /// not be removed.
    fn may_have_lease(&self, waiting: PendingGrant) -> bool {
        let Some(leading) = &self.leading else { return false };
        let goes = leading.fenced.contains_key(&waiting.from)
            || leading.nodes.get(&waiting.from).is_none_or(|seen| seen.leaver.said.has_resigned());
        let since = self.configs.serves_since(waiting.from);
        let acts =
            since.is_some_and(|since| waiting.applied >= since || allows!(self.settings.guards, GrantToFormerSelf));
        acts && !goes
    }

    fn confirm(&mut self) {
        let Some(leading) = &mut self.leading else { return };
        let grants = &mut leading.grants;
        if grants.round.is_some() || grants.next.is_empty() {
            return;
        }
        self.rounds += 1;
        grants.round = Some(self.rounds);
        grants.asked = std::mem::take(&mut grants.next);
        self.outputs.push_back(CoordinatorOutput::Confirm { round: self.rounds, term: leading.term });
    }

    pub(super) fn confirmed(
        &mut self,
        now: Timestamp,
        round: u64,
        leads: bool,
        answered: BTreeMap<MemberId, Timestamp>,
    ) {
        let Some(leading) = self.leading.as_mut().filter(|leading| leading.grants.round == Some(round)) else { return };
        leading.has_answers(answered);
        leading.grants.round = None;
        if leads {
            leading.grants.confirmed = round;
        }
        for waiting in std::mem::take(&mut leading.grants.asked) {
            self.say(now, waiting, leads);
        }
        self.confirm();
    }

    fn grant(&mut self, now: Timestamp, waiting: PendingGrant) {
        let PendingGrant { from, number, applied, received } = waiting;
        let runs = if allows!(self.settings.guards, ForgetDrift) {
            self.settings.lease
        } else {
            self.settings.lease_and_drift()
        };
        if let Some(seen) = self.leading.as_mut().and_then(|leading| leading.nodes.get_mut(&from)) {
            // The member's lease began earlier: when it sent the renewal.
            seen.out = seen.out.max(received + runs);
        }
        self.answer(now, from, number, applied, Some(self.me), Some(self.settings.lease));
    }

    fn answer(
        &mut self,
        now: Timestamp,
        to: MemberId,
        number: u64,
        applied: LogIndex,
        leader: Option<MemberId>,
        lease: Option<Duration>,
    ) {
        let configs = (self.configs.applied() > applied).then(|| Box::new((*self.configs).clone()));
        // An unknown node, or one with an older configuration, is about to change something.
        let is_part = configs.is_none() && self.configs.node(to).is_some();
        let settled = match (leader == Some(self.me), is_part) {
            (false, _) => Err(Unsettled::Unled),
            (true, false) => Err(Unsettled::Behind),
            (true, true) => self.settled(now),
        };
        let close = self.to_close(to);
        self.says_close(to, number, &close);
        let released = self.releases(now, to);
        let leave = self.next_leave(now, to).filter(|_| leader == Some(self.me));
        let farewell = self.farewell(now, to).filter(|_| leader == Some(self.me));
        if let Some(seen) = self.leading.as_mut().and_then(|leading| leading.nodes.get_mut(&to)) {
            let ends = (farewell == Some(Farewell::Ends)).then_some(now);
            seen.leaver.ends = ends.and(seen.leaver.ends).or(ends);
        }
        let position = None;
        let renewed = Renewed { number, lease, leader, configs, settled, released, leave, farewell, close, position };
        self.outputs.push_back(CoordinatorOutput::Answer { to, renewed });
    }
}
