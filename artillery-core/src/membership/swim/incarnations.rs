//! Other incarnations of this node.

use tracing::debug;

use super::{MAX_CLAIMS, Swim};
use crate::{
    MemberId,
    membership::{
        SwimEvent, SwimOutput,
        identity::{IncarnationOrder, SwimIdentity},
    },
};

impl Swim {
    /// Stops this incarnation if a later one of this node is active. `true` if it has stopped.
    ///
    /// SWIM alone doesn't know whether one that is down said farewell. Its profile, with which members answer this incarnation,
    /// decides.
    pub(super) fn yield_to_later_incarnation(&mut self) -> bool {
        let ours = self.me.member.node;
        let other = self.foca.iter_members().map(|known| *known.id()).find(|id| id.member.node == ours);
        if let Some(other) = other {
            self.on_other_incarnation(other.member, other.incarnation_order(), false);
        }
        self.stopped
    }

    /// Handles news of another incarnation of this node. The order of incarnations follows wall clocks, which may have been
    /// set back. So if no member has accepted this incarnation yet, it claims a later start, at most [`MAX_CLAIMS`] times.
    /// It also does so if the later incarnation has `left`: that may have been an older copy of this node's directory, which
    /// the other members refused. Otherwise this incarnation stops.
    pub(super) fn on_other_incarnation(&mut self, other: MemberId, order: IncarnationOrder, left: bool) {
        if self.stopped || other == self.me.member || order <= self.me.incarnation_order() {
            return;
        }
        let may_claim = left || !self.accepted && self.claims < MAX_CLAIMS;
        if !may_claim || order.0 == u64::MAX {
            self.outputs.retain(|output| matches!(output, SwimOutput::Event(_)));
            self.outputs.push_back(SwimOutput::Event(SwimEvent::Superseded { by: other }));
            self.stop();
            return;
        }
        self.claims += u8::from(!left);
        self.claim_start(order.0 + 1);
    }

    /// Takes part as if this incarnation had started at `started_at_ms`.
    fn claim_start(&mut self, started_at_ms: u64) {
        self.me.started_at_ms = started_at_ms;
        self.me.version += 1;
        let identity = SwimIdentity { started_at_ms, ..*self.foca.identity() };
        if let Err(error) = self.foca.change_identity(identity, &mut self.effects) {
            debug!(%error, "SWIM refused another identity");
        }
        for peer in std::mem::take(&mut self.greeted).into_values() {
            self.greeted.insert(peer.id.node, peer);
            self.announce(SwimIdentity::of_peer(peer));
        }
        let active: Vec<_> = self.foca.iter_members().map(|known| *known.id()).collect();
        for known in active {
            self.announce(known);
        }
    }
}
