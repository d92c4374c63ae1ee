//! Renewals and their answers: leases, and the next steps of the renewing nodes.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Coordinator, CoordinatorOutput, LeaderTerm, grants::PendingGrant, leave, plan, settled, view::View, voters,
};
use crate::{
    MemberId, Timestamp,
    control::message::{Close, Farewell, Leave, Renewal, Renewed, Unsettled},
};

impl Coordinator {
    pub(super) fn renewal(&mut self, now: Timestamp, from: MemberId, renewal: Renewal) {
        let waiting = PendingGrant { from, number: renewal.number, applied: renewal.applied, received: now };
        let (me, guards) = (self.cluster.me(), self.cluster.guards());
        let Some(leading) = self.leading.as_mut().filter(|_| renewal.me.id == from) else {
            // The log names an elected node as leader before that node has committed anything. Until then no quorum is
            // known to follow it, so it doesn't name itself.
            let leader = self.cluster.leader().filter(|&leader| leader != me);
            return self.answer(now, waiting, leader, None);
        };
        leading.nodes.on_renewal(now, renewal, guards);
        if allows!(guards, GrantUnconfirmed) {
            return self.say(now, waiting, true);
        }
        self.grants.add(waiting, allows!(guards, JoinRound));
        self.begin_round();
    }

    fn begin_round(&mut self) {
        let Some(term) = self.leads() else { return };
        let round = self.grants.begin_round();
        self.outputs.extend(round.map(|round| CoordinatorOutput::Confirm { round, term }));
    }

    /// `sent`: per node, when the latest message of the log that it has answered was sent.
    pub(super) fn confirmed(&mut self, now: Timestamp, round: u64, leads: bool, sent: BTreeMap<MemberId, Timestamp>) {
        let Some(leading) = &mut self.leading else { return };
        let Some(asked) = self.grants.end_round(round) else { return };
        leading.nodes.on_round(round, leads, sent);
        for waiting in asked {
            self.say(now, waiting, leads);
        }
        self.begin_round();
    }

    /// Answers a renewal after a round. A deposed leader names no leader: it doesn't know the new one.
    fn say(&mut self, now: Timestamp, waiting: PendingGrant, leads: bool) {
        if !leads {
            return self.answer(now, waiting, None, None);
        }
        let (me, settings) = (self.cluster.me(), *self.cluster.settings());
        // Check again: the member may have been fenced or removed since the renewal was received.
        let grants = self.may_have_lease(waiting);
        if let Some(seen) = self.leading.as_mut().and_then(|leading| leading.nodes.get_mut(waiting.from)) {
            seen.answered(now, waiting.number);
            if grants {
                let forgets = allows!(settings.guards, ForgetDrift);
                let runs = if forgets { settings.lease } else { settings.lease_and_drift() };
                // The member's lease began earlier: when it sent the renewal.
                seen.granted(waiting.received + runs);
            }
        }
        self.answer(now, waiting, Some(me), grants.then_some(settings.lease));
    }

    /// Whether the sender may get a lease: it serves, has applied the newest entry that made it a serving member of a
    /// chain or removed it from one, and is neither fenced nor resigned.
    fn may_have_lease(&self, waiting: PendingGrant) -> bool {
        let Some(LeaderTerm { nodes, .. }) = &self.leading else { return false };
        let goes = nodes.fence_of(waiting.from).is_some()
            || nodes.get(waiting.from).is_none_or(|seen| seen.leaver.said.has_resigned());
        let forgets = allows!(self.cluster.guards(), GrantToFormerSelf);
        let since = self.cluster.configs().serves_since(waiting.from);
        since.is_some_and(|since| waiting.applied >= since || forgets) && !goes
    }

    fn answer(&mut self, now: Timestamp, waiting: PendingGrant, leader: Option<MemberId>, lease: Option<Duration>) {
        let PendingGrant { from: to, number, applied, .. } = waiting;
        let all = self.cluster.configs();
        let configs = (all.applied() > applied).then(|| Box::new(all.clone()));
        // The log doesn't list an unknown node yet, and a node with older configurations must apply the newer ones
        // first.
        let is_part = configs.is_none() && all.node(to).is_some();
        let leads = leader == Some(self.cluster.me());
        let settled = match (leads, is_part) {
            (false, _) => Err(Unsettled::Unled),
            (true, false) => Err(Unsettled::Behind),
            (true, true) => self.settled(now),
        };
        let close = self.ask_to_close(to, number);
        let released = self.leading.as_ref().is_some_and(|leading| {
            voters::releases(View::new(now, &self.cluster, &leading.nodes), &leading.voters, to)
        });
        let leave = self.next_leave(now, to).filter(|_| leads);
        let farewell = self.farewell(now, to).filter(|_| leads);
        if let Some(seen) = self.leading.as_mut().and_then(|leading| leading.nodes.get_mut(to)) {
            seen.leaver.farewell(now, farewell == Some(Farewell::Ends));
        }
        let position = None;
        let renewed = Renewed { number, lease, leader, configs, settled, released, leave, farewell, close, position };
        self.outputs.push_back(CoordinatorOutput::Answer { to, renewed });
    }

    /// Whether any one node may be stopped now: each chain has as many serving members as the living nodes allow, no
    /// member joins or leaves, and the log keeps a quorum.
    fn settled(&self, now: Timestamp) -> Result<(), Unsettled> {
        let leading = self.leading.as_ref().ok_or(Unsettled::Unled)?;
        let view = View::new(now, &self.cluster, &leading.nodes);
        // A new leader has not yet received renewals from all living nodes (trap 67).
        if view.age() < view.settings().suspect && !allows!(view.guards(), SettleAtOnce) {
            return Err(Unsettled::Unled);
        }
        settled::nodes_settled(view, &self.suspicions)?;
        if leading.voters.is_pending() || !voters::has_voters(view) {
            return Err(Unsettled::Voters);
        }
        let changes = || plan::change(view, &leading.orders, &self.suspicions).is_some();
        if leading.proposal.is_pending() || changes() { Err(Unsettled::Changes) } else { Ok(()) }
    }

    /// The chains that `member` must close as their head, for the answer to its renewal `number`.
    fn ask_to_close(&mut self, member: MemberId, number: u64) -> Vec<Close> {
        let Some(leading) = &mut self.leading else { return Vec::new() };
        let close = leading.orders.reorder.to_close(self.cluster.configs(), member);
        let is_newest = leading.nodes.get_mut(member).is_some_and(|seen| seen.is_newest(number));
        if is_newest && !close.is_empty() {
            leading.orders.reorder.is_said(number);
        }
        close
    }

    /// The next step of a leaving node, if one is due.
    fn next_leave(&mut self, now: Timestamp, id: MemberId) -> Option<Leave> {
        let leading = self.leading.as_mut()?;
        let view = View::new(now, &self.cluster, &leading.nodes);
        let step = leave::next_step(view, id, leading.proposal.is_pending())?;
        leading.nodes.get_mut(id)?.leaver.answered(step);
        Some(step)
    }

    /// The effect on the chains of node `id` when it leaves; `None`: it doesn't ask to leave, or the effect isn't
    /// certain yet.
    fn farewell(&self, now: Timestamp, id: MemberId) -> Option<Farewell> {
        let leading = self.leading.as_ref()?;
        let view = View::new(now, &self.cluster, &leading.nodes);
        let farewell = settled::farewell(view, id).filter(|_| view.asks_to_leave(id));
        // A new voter that doesn't know yet that it votes would stop at once, and the log could never confirm anything
        // again.
        farewell.filter(|&farewell| farewell != Farewell::Ends || !leading.voters.is_added(now, id))
    }
}
