//! How far a node has come with leaving.

use crate::{Timestamp, control::message::Leave, guards::Guards};

/// How far a node has come with leaving, as this term's leader knows it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Leaver {
    pub(super) said: Leave,
    /// When the leader first heard the node ask, by this number.
    pub(super) asked: Timestamp,
    /// When the leader first heard that the node has resigned, by this number.
    pub(super) resigned: Timestamp,
    /// The resignation was made, or shown to stand, in this leader's term.
    pub(super) vouched: bool,
    /// This leader has agreed: the node may have resigned, though the leader hasn't heard it yet.
    pub(super) agreed: bool,
    /// Since when this leader says that the node's chains end with it.
    pub(super) ends: Option<Timestamp>,
}

impl Leaver {
    /// Takes in a renewal. `is_fresh`: it was sent after an answer of this term.
    ///
    /// A late message may say that a node has resigned that serves again by a running lease. The removal would not wait for
    /// that lease (trap 62). So a value below the highest one is ignored. A resignation from before this term, which another
    /// leader may have taken back, counts only once the node shows that it stands.
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

    /// Counts the request as new after a pause of the leader: other members may have died in the pause, so what they had
    /// shown before proves nothing.
    pub(super) fn wake(&mut self, now: Timestamp) {
        if self.is_asked() {
            self.asked = now;
        }
    }

    pub(super) fn is_asked(&self) -> bool {
        self.said.is_asked()
    }

    /// Whether the node comes back, and stays a node and a voter meanwhile.
    pub(super) fn returns(&self) -> bool {
        self.is_asked() && self.said.returns
    }

    /// Whether the node certainly acts by no lease.
    pub(super) fn has_resigned(&self) -> bool {
        self.said.has_resigned() && self.vouched
    }
}
