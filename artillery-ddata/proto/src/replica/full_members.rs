//! Full members: a head adds nothing while a serving member has no room, on its disk or in its memory (docs/DESIGN.md §8).
//!
//! Each member says to the head what it has no room in, with every heartbeat. The head refuses what would add a value; it still
//! orders deletes, and reads go on. What a member said counts for some heartbeats only, so that nothing is refused for ever when
//! the word that takes it back is lost.

use super::Replica;
use crate::{
    MemberId, Role, Timestamp,
    api::Refusal,
    message::{ChainFrame, ChainMessage, Fullness},
    types::update::KeyChange,
};

/// What a member said of its room counts for so many heartbeats.
const COUNTS: u32 = 4;

impl Replica {
    /// The journal says whether this member's disk counts as full.
    pub(crate) fn disk_is_full(&mut self, is_full: bool) {
        if let Some(journal) = &mut self.journal {
            journal.is_full = is_full;
        }
    }

    /// What this member has no room in, if it serves.
    pub(super) fn fullness(&self) -> Fullness {
        let has_full_disk = || self.journal.as_ref().is_some_and(|journal| journal.is_full);
        let has_full_memory = || self.settings.max_memory.is_some_and(|most| self.store.bytes() >= most);
        if self.place.role != Some(Role::Serving) {
            Fullness::Nothing
        } else if has_full_disk() {
            Fullness::Disk
        } else if has_full_memory() {
            Fullness::Memory
        } else {
            Fullness::Nothing
        }
    }

    /// What the head has to hear of this member's room, if that is news.
    pub(super) fn poll_full(&mut self, to: MemberId) -> Option<ChainFrame> {
        if self.journal.is_none() && self.settings.max_memory.is_none() {
            return None;
        }
        let what = self.fullness();
        let config = self.config.clone().filter(|_| self.place.head == Some(to))?;
        let peer = self.peers.get_mut(&to).filter(|peer| peer.connected && peer.full_said != what)?;
        peer.full_said = what;
        Some(self.frame(&config, ChainMessage::Full(what)))
    }

    /// With each heartbeat: the head hears it again.
    pub(super) fn repeat_full(&mut self) {
        if self.fullness() != Fullness::Nothing
            && let Some(head) = self.place.head.and_then(|head| self.peers.get_mut(&head))
        {
            head.full_said = Fullness::Nothing;
        }
    }

    /// A member says what it has no room in.
    pub(super) fn hear_full(&mut self, now: Timestamp, from: MemberId, what: Fullness) {
        let until = now + self.settings.heartbeat * COUNTS;
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.full = (what, until);
            self.full_until = until;
        }
    }

    /// Refuses changes that would add a value while a serving member has no room.
    pub(super) fn check_room(&self, now: Timestamp, changes: &[KeyChange]) -> Result<(), Refusal> {
        if changes.iter().all(|change| change.value.is_none()) {
            return Ok(());
        }
        match self.full_member(now).filter(|_| !allows!(self.settings.guards, FillFullDisks)) {
            Some((member, Fullness::Disk)) => Err(Refusal::DiskFull { member }),
            Some((member, Fullness::Memory)) => Err(Refusal::MemoryFull { member }),
            Some((_, Fullness::Nothing)) | None => Ok(()),
        }
    }

    fn full_member(&self, now: Timestamp) -> Option<(MemberId, Fullness)> {
        let mine = self.fullness();
        if mine != Fullness::Nothing {
            return Some((self.me, mine));
        }
        if now >= self.full_until {
            return None;
        }
        let mut serving = self.config.iter().flat_map(|config| config.serving());
        serving.find_map(|id| {
            let (what, until) = self.peers.get(&id)?.full;
            (what != Fullness::Nothing && now < until).then_some((id, what))
        })
    }
}
