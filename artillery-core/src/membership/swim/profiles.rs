//! Distributes profiles to the members that need them.

use super::Swim;
use crate::{
    MemberId,
    membership::{
        profile::{Profile, ProfileVersion},
        wire::PacketWriter,
    },
};

impl Swim {
    pub(super) fn on_profile(&mut self, profile: Profile) {
        if profile.member.node == self.me.member.node {
            self.on_other_incarnation(profile.member, profile.incarnation_order(), profile.left);
        } else if self.views.knows(&profile.member) && !self.is_farewell_of_another(&profile) {
            self.profiles.insert_newer(profile);
        }
    }

    /// Whether this is the farewell of another process that only shares the id of a known member: two copies of a
    /// stopped directory start as the same incarnation, at different times.
    fn is_farewell_of_another(&self, profile: &Profile) -> bool {
        let known = self.views.get(&profile.member.node).map(|view| view.identity.started_at_ms);
        profile.left && known.is_some_and(|known| known != profile.started_at_ms)
    }

    /// Sends profiles that are newer here than at the sender, and requests those that are newer there.
    pub(super) fn on_versions(&mut self, from: MemberId, entries: &[ProfileVersion]) {
        let Some(to) = self.views.get(&from.node).map(|view| view.identity).filter(|to| to.member == from) else {
            return;
        };
        let mut writer = PacketWriter::new(self.settings.max_packet);
        for theirs in entries {
            let profile = if theirs.member == self.me.member {
                Some(&self.me)
            } else if self.views.knows(&theirs.member) {
                self.profiles.of(&theirs.member)
            } else {
                continue;
            };
            let version = profile.map_or(0, |profile| profile.version);
            match profile {
                Some(profile) if version > theirs.version => writer.profile(profile),
                // No other member has a newer profile of this node than the node itself.
                _ if version < theirs.version && theirs.member != self.me.member => {
                    writer.entry(ProfileVersion { member: theirs.member, version });
                }
                _ => {}
            }
        }
        if !writer.is_empty() {
            self.push(to.peer(), writer.finish(&[]));
        }
    }

    /// Sends this node's profile to all active members without waiting for requests.
    pub(super) fn push_profile(&mut self) {
        let mut writer = PacketWriter::new(self.settings.max_packet);
        writer.profile(&self.me);
        let packet = writer.finish(&[]);
        let active: Vec<_> = self.foca.iter_members().map(|known| known.id().peer()).collect();
        for to in active {
            self.push(to, packet.clone());
        }
    }
}
