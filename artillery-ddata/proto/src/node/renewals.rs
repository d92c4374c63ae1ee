//! This node's renewals: their content, and the effects of their answers on the parts of the node.

use super::{NodeEvent, NodeMachine, NodeOutput, giving_way, succession};
use crate::{
    ChainId, MemberId, Timestamp,
    control::{
        lease_client::RenewalOutcome,
        message::{Close, Renewal, Renewed, Unsettled},
    },
    replica::ChainProgress,
    runner::{ChainOrder, Lease},
};

/// The maximum number of this node's renewals in flight.
pub(super) const MAX_PENDING_RENEWALS: usize = 8;

impl NodeMachine {
    /// When the next renewal is due, and when the next question whether another node is alive.
    pub(super) fn renewals_at(&self) -> [Option<Timestamp>; 2] {
        let holder = self.base.holder();
        [self.may_renew().then(|| holder.next_tick()), holder.ask_at().filter(|_| self.may_ask())]
    }

    /// Whether this node may send messages. It stays silent until its chains act by the first configurations, unless
    /// its directory is still being loaded: that may take long.
    fn may_speak(&self) -> bool {
        self.acting.has_acted() || self.loads()
    }

    pub(super) fn may_renew(&self) -> bool {
        self.may_speak() && self.renewals < MAX_PENDING_RENEWALS
    }

    pub(super) fn may_ask(&self) -> bool {
        self.may_speak() && self.company.may_ask()
    }

    /// Adds to a renewal what this node reports of its chains and its store.
    pub(super) fn report(
        &mut self,
        now: Timestamp,
        renewal: &mut Renewal,
        progress: impl Fn(ChainId) -> Option<ChainProgress>,
    ) {
        renewal.loads = self.loads();
        if !renewal.loads {
            let chains = self.configs().iter().map(|config| config.chain);
            renewal.reports = chains.filter_map(|chain| progress(chain)?.report(chain, now)).collect();
            renewal.holds = self.base.holds(progress);
        }
        giving_way::see_whether_holds_data(renewal, &mut self.base);
        renewal.position = self.base.position();
        self.readiness.look_at_chains(&renewal.reports, &self.base);
    }

    /// A renewal to node `from` has ended.
    pub(super) fn renewed(&mut self, now: Timestamp, from: MemberId, renewed: Option<Renewed>) {
        if !self.company.was_asked(from) {
            self.renewals = self.renewals.saturating_sub(1);
        }
        let Some(renewed) = renewed else { return };
        // A leader that has forgotten its promises can't grant a lease. It learns of this when it renews with this
        // node.
        if self.base.is_true_store(now, from, renewed.position.as_deref()) {
            self.company.hear_company(now, from, &mut self.base);
            self.hear_answer(from, &renewed);
            self.answered(now, from, renewed);
        }
    }

    /// This node has answered its own renewal. The answer of a confirmed leader to itself also shows that its cluster
    /// has not given way.
    pub(super) fn answered_itself(&mut self, now: Timestamp, renewed: Renewed) {
        let me = self.base.me();
        if renewed.leader == Some(me) {
            self.hear_answer(me, &renewed);
        }
        self.answered(now, me, renewed);
    }

    fn hear_answer(&mut self, from: MemberId, renewed: &Renewed) {
        if let Some(sent) = self.base.holder().sent(renewed.number) {
            let leads = renewed.leader == Some(from);
            self.company.hear_answer(from, sent, leads, &mut self.base);
        }
    }

    fn answered(&mut self, now: Timestamp, from: MemberId, renewed: Renewed) {
        let Renewed { leader, farewell, number, .. } = renewed;
        let lease = self.base.lease();
        // An answer from before a pause of this node doesn't show the current state.
        let is_old = self.base.holder().sent(number).is_none_or(|sent| now - sent > lease);
        let settled = if is_old { Err(Unsettled::Unled) } else { renewed.settled };
        self.close(now, &renewed.close);
        let RenewalOutcome { lease, asked, configs, released, resigns, serves_again } =
            self.base.holder_mut().answered(now, from, renewed);
        let state = self.base.state_mut();
        state.lease = lease.unwrap_or(state.lease);
        state.leader = leader.or(state.leader);
        state.answered |= leader.is_some();
        // Only the leader's own answers are evidence. Another node may still name a dead leader; a leader names itself
        // only after a quorum has confirmed it.
        if leader == Some(from) {
            state.heard = now;
        }
        if let Some(until) = lease {
            let stretch = self.leaving.stretch();
            self.base.push(NodeOutput::Lease(Lease { until, asked, stretch }));
        }
        if configs.is_some() {
            succession::see_whether_serves(&mut self.base);
            self.acting.act(&mut self.base);
        }
        // Only a confirmed leader's recent answer is valid: this node may have become a voter since.
        if leader == Some(from) && !is_old {
            self.leaving.hear_word(now, (number, released), farewell, &mut self.base);
        }
        if resigns {
            self.leaving.resign(now, &mut self.base);
        }
        if serves_again {
            self.base.event(NodeEvent::ServesAgain);
            self.leaving.serve_again(&mut self.base);
        }
        // Only the leader knows whether the cluster is settled. Its last answer expires after a lease.
        if leader == Some(from) {
            self.readiness.see_whether_ready(now, settled, &mut self.base);
        } else if now - self.state().heard >= self.base.lease() {
            self.readiness.see_whether_ready(now, Err(Unsettled::Unled), &mut self.base);
        }
    }

    /// Closes the heads of these chains for one lease. The leader repeats the order in each answer. While the directory
    /// is being loaded, no chain can execute an order.
    fn close(&mut self, now: Timestamp, close: &[Close]) {
        if self.loads() {
            return;
        }
        let until = now + self.base.lease();
        for &Close { chain, epoch } in close {
            self.base.push(NodeOutput::Order(chain, ChainOrder::Close { epoch, until }));
        }
    }
}
