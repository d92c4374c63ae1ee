use crate::{Timestamp, control::message::Leave, guards::Guards};

/// A node's progress in leaving, as known to this term's leader.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Leaver {
    pub(super) said: Leave,
    /// When the leader first received the request to leave with this number.
    pub(super) asked: Timestamp,
    /// When the leader first received the resignation with this number.
    pub(super) resigned: Timestamp,
    /// The resignation was made, or confirmed by the node, in this leader's term.
    pub(super) vouched: bool,
    /// This leader has agreed: the node may have resigned already.
    pub(super) agreed: bool,
    /// Since when this leader reports that the node's chains end with it.
    pub(super) ends: Option<Timestamp>,
}

impl Leaver {
    /// `is_fresh`: the renewal was sent after an answer of this term.
    ///
    /// A late message may report the resignation of a node that serves again with a running lease. The removal would
    /// not wait for that lease (trap 62). So a value below the highest one is ignored. A resignation from before this
    /// term, which may have been withdrawn under another leader, is accepted only once the node confirms it.
    pub(super) fn on_renewal(&mut self, now: Timestamp, said: Leave, is_fresh: bool, guards: Guards) {
        if said < self.said && !allows!(guards, TakeOldResignation) {
            return;
        }
        if said.number != self.said.number {
            *self = Self::default();
        }
        if said.is_asked() && !self.said.is_asked() {
            self.asked = now;
        }
        if said.has_resigned() && !self.said.has_resigned() {
            self.resigned = now;
        }
        self.said = said;
        self.vouched |= said.has_resigned() && (is_fresh || allows!(guards, TakeUnvouchedResignation));
    }

    /// Treats the request as new after a pause of the leader: other members may have died in the pause, so the answers
    /// that they had shown before prove nothing.
    pub(super) fn wake(&mut self, now: Timestamp) {
        if self.is_asked() {
            self.asked = now;
        }
    }

    pub(super) fn is_asked(&self) -> bool {
        self.said.is_asked()
    }

    /// Whether the node will return, and stays a node and a voter until then.
    pub(super) fn returns(&self) -> bool {
        self.is_asked() && self.said.returns
    }

    /// Whether the node certainly uses no lease.
    pub(super) fn has_resigned(&self) -> bool {
        self.said.has_resigned() && self.vouched
    }
}
