//! Names and payloads of members, and how they spread.
//!
//! They are too large for SWIM's own packets. So every packet of SWIM carries versions instead, as far as there is
//! room: the sender's own, the one that the sender has of the receiver, and that of one more member, each in turn. A
//! receiver that has an older version asks for the profile by sending the version it has. A receiver that has a newer
//! version sends the profile. So a change reaches every member that any packet reaches, in spite of losses, and around
//! a dead link through other members. A node also sends a changed profile of its own to all at once.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::identity::{IncarnationOrder, incarnation_order};
use crate::{MemberId, NodeId};

/// The longest name of a node, in bytes.
pub const MAX_MEMBER_NAME_BYTES: usize = 128;

/// The largest payload of a member, in bytes.
pub const MAX_MEMBER_PAYLOAD_BYTES: usize = 512;

/// The version that a node holds of a member's profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProfileVersion {
    pub(super) member: MemberId,
    pub(super) version: u64,
}

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) member: MemberId,
    pub(super) started_at_ms: u64,
    /// Grows with every change within one incarnation, from 1.
    pub(super) version: u64,
    /// The member said farewell.
    pub(super) left: bool,
    pub(super) name: String,
    pub(super) payload: Bytes,
}

impl Profile {
    pub(super) fn incarnation_order(&self) -> IncarnationOrder {
        incarnation_order(&self.member, self.started_at_ms)
    }

    pub(super) fn entry(&self) -> ProfileVersion {
        ProfileVersion { member: self.member, version: self.version }
    }
}

/// The profiles of the other members.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    by_node: BTreeMap<NodeId, Profile>,
    /// The member whose version was sent last.
    told: Option<NodeId>,
}

impl Profiles {
    pub(super) fn of(&self, member: &MemberId) -> Option<&Profile> {
        self.by_node.get(&member.node).filter(|profile| profile.member == *member)
    }

    /// The version held of `member`, 0 if none.
    pub(super) fn version(&self, member: &MemberId) -> u64 {
        self.of(member).map_or(0, |profile| profile.version)
    }

    /// Keeps `profile` if it is newer than the one held. `true` if it was.
    pub(super) fn insert_newer(&mut self, profile: Profile) -> bool {
        let newer = profile.version > self.version(&profile.member);
        if newer {
            self.by_node.insert(profile.member.node, profile);
        }
        newer
    }

    /// Forgets the profiles for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(&MemberId) -> bool) {
        self.by_node.retain(|_, profile| keep(&profile.member));
    }

    /// The version of the next member in turn, skipping `except`.
    pub(super) fn next_version(&mut self, except: NodeId) -> Option<ProfileVersion> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.told.map_or(Unbounded, Excluded);
        let later = self.by_node.range((after, Unbounded)).map(|(_, profile)| profile);
        let next = later.chain(self.by_node.values()).find(|profile| profile.member.node != except)?;
        self.told = Some(next.member.node);
        Some(next.entry())
    }
}
