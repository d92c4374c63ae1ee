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
    /// Stops this incarnation if a later one of this node is known. `true` if it has stopped.
    pub(super) fn yield_to_later_incarnation(&mut self) -> bool {
        let ours = self.me.member.node;
        let other = self.foca.iter_membership_state().map(|known| *known.id()).find(|id| id.member.node == ours);
        if let Some(other) = other {
            self.on_other_incarnation(other.member, other.incarnation_order());
        }
        self.stopped
    }

    /// Handles news of another incarnation of this node. The order of incarnations follows wall clocks, which may have been
    /// set back. So if no member has accepted this incarnation yet, it claims a later start, at most [`MAX_CLAIMS`] times.
    /// Otherwise this incarnation stops.
    pub(super) fn on_other_incarnation(&mut self, other: MemberId, order: IncarnationOrder) {
        if self.stopped || other == self.me.member || order <= self.me.incarnation_order() {
            return;
        }
        if self.accepted || self.claims == MAX_CLAIMS || order.0 == u64::MAX {
            self.outputs.retain(|output| matches!(output, SwimOutput::Event(_)));
            self.outputs.push_back(SwimOutput::Event(SwimEvent::Superseded { by: other }));
            self.stop();
            return;
        }
        self.claims += 1;
        self.me.started_at_ms = order.0 + 1;
        self.me.version += 1;
        let identity = SwimIdentity { started_at_ms: self.me.started_at_ms, ..*self.foca.identity() };
        if let Err(error) = self.foca.change_identity(identity, &mut self.effects) {
            debug!(%error, "SWIM refused another identity");
        }
        for peer in std::mem::take(&mut self.greeted).into_values() {
            self.greeted.insert(peer.id.node, peer);
            self.announce(SwimIdentity::of_peer(peer));
        }
    }
}
