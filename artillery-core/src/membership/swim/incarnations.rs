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
    /// Records that this node belongs to a formed cluster. From now on it resumes after a later incarnation of the same
    /// store has left: such an incarnation was a copy of its directory, which the other members refused. Without a
    /// formed cluster, an accepted incarnation stops in this case, and the proof of the formation relies on this.
    pub fn belong(&mut self) {
        self.belongs = true;
    }

    /// Handles a report of another incarnation of this node. Earlier ones are ignored.
    ///
    /// Incarnations are ordered by wall clocks, which may have been set back. So an incarnation that no member has
    /// accepted claims a later start, at most [`MAX_CLAIMS`] times. It also does so, without this limit, if it belongs
    /// to a formed cluster and the other incarnation is a copy of its directory that has `left`. Otherwise it stops.
    pub(super) fn on_other_incarnation(&mut self, other: MemberId, order: IncarnationOrder, left: bool) {
        if self.stopped || other == self.me.member || order <= self.me.incarnation_order() {
            return;
        }
        let is_over = left && self.belongs && other.incarnation.store == self.me.member.incarnation.store;
        let may_claim = is_over || !self.accepted && self.claims < MAX_CLAIMS;
        if !may_claim || order.0 == u64::MAX {
            self.outputs.retain(|output| matches!(output, SwimOutput::Event(_)));
            self.outputs.push_back(SwimOutput::Event(SwimEvent::Superseded { by: other }));
            self.stop();
            return;
        }
        self.claims += u8::from(!is_over);
        self.claim_start(order.0 + 1);
    }

    /// Takes part as if this incarnation had started at `started_at_ms`.
    fn claim_start(&mut self, started_at_ms: u64) {
        self.me.started_at_ms = started_at_ms;
        self.me.version += 1;
        let identity = SwimIdentity { started_at_ms, ..*self.foca.identity() };
        if let Err(error) = self.foca.change_identity(identity, &mut self.effects) {
            debug!(%error, "foca rejected a change of identity");
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
