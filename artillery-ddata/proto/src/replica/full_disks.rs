//! Full disks: a head adds nothing while the disk of a serving member counts as full (docs/DESIGN.md §8).
//!
//! Each member says to the head that its disk is full, with every heartbeat. The head refuses what would add a value; it still
//! orders deletes, and reads go on. What a member said counts for some heartbeats only, so that nothing is refused for ever when
//! the word that takes it back is lost.

use super::Replica;
use crate::{
    MemberId, Role, Timestamp,
    api::Refusal,
    message::{ChainFrame, ChainMessage},
    types::update::KeyChange,
};

/// What a member said of its disk counts for so many heartbeats.
const COUNTS: u32 = 4;

impl Replica {
    /// The journal says whether this member's disk counts as full.
    pub(crate) fn disk_is_full(&mut self, is_full: bool) {
        if let Some(journal) = &mut self.journal {
            journal.is_full = is_full;
        }
    }

    /// Whether this is a serving member whose disk counts as full.
    pub(super) fn has_full_disk(&self) -> bool {
        self.place.role == Some(Role::Serving) && self.journal.as_ref().is_some_and(|journal| journal.is_full)
    }

    /// What the head has to hear of this member's disk, if that is news.
    pub(super) fn poll_full(&mut self, to: MemberId) -> Option<ChainFrame> {
        self.journal.as_ref()?;
        let is_full = self.has_full_disk();
        let config = self.config.clone().filter(|_| self.place.head == Some(to))?;
        let peer = self.peers.get_mut(&to).filter(|peer| peer.connected && peer.full_said != is_full)?;
        peer.full_said = is_full;
        Some(self.frame(&config, ChainMessage::DiskFull(is_full)))
    }

    /// With each heartbeat: the head hears it again.
    pub(super) fn repeat_full(&mut self) {
        if self.has_full_disk()
            && let Some(head) = self.place.head.and_then(|head| self.peers.get_mut(&head))
        {
            head.full_said = false;
        }
    }

    /// A member says whether its disk is full.
    pub(super) fn hear_full(&mut self, now: Timestamp, from: MemberId, is_full: bool) {
        let until = now + self.settings.heartbeat * COUNTS;
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.full_until = if is_full { until } else { Timestamp::ZERO };
        }
    }

    /// Refuses changes that would add a value while a serving member's disk is full.
    pub(super) fn check_disks(&self, now: Timestamp, changes: &[KeyChange]) -> Result<(), Refusal> {
        if !self.is_durable() || changes.iter().all(|change| change.value.is_none()) {
            return Ok(());
        }
        match self.full_member(now).filter(|_| !allows!(self.settings.guards, FillFullDisks)) {
            Some(member) => Err(Refusal::DiskFull { member }),
            None => Ok(()),
        }
    }

    fn full_member(&self, now: Timestamp) -> Option<MemberId> {
        if self.has_full_disk() {
            return Some(self.me);
        }
        let mut serving = self.config.iter().flat_map(|config| config.serving());
        serving.find(|id| self.peers.get(id).is_some_and(|peer| now < peer.full_until))
    }
}
