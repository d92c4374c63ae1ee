//! The order in which an answer to a renewal of this node acts on its parts.

use super::{NodeEvent, NodeMachine, NodeOutput, succession};
use crate::{
    MemberId, Timestamp,
    control::{
        lease_client::RenewalOutcome,
        message::{Close, Renewed, Unsettled},
    },
    runner::{ChainOrder, Lease},
};

impl NodeMachine {
    /// A renewal to node `from` has ended.
    pub(super) fn renewed(&mut self, now: Timestamp, from: MemberId, renewed: Option<Renewed>) {
        if !self.company.was_asked(from) {
            self.renewals = self.renewals.saturating_sub(1);
        }
        let Some(renewed) = renewed else { return };
        // The answers of a store that has forgotten its promises are ignored, so it grants no lease. Its node is
        // informed when it renews with this one.
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
