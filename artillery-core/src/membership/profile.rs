//! Names and payloads of members, and their dissemination.
//!
//! Profiles are too large for SWIM's own packets. Instead, every SWIM packet carries up to three versions, as space
//! permits: of the sender's profile, of the receiver's profile as the sender knows it, and of one other member's
//! profile, taken in turn. A receiver with an older version requests the profile by sending the version it has. A
//! receiver with a newer version sends the profile. So a change reaches all connected members despite losses, and
//! bypasses a broken link through other members. A node also sends a new payload, and its departure, to all active
//! members at once.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::identity::{IncarnationOrder, incarnation_order};
use crate::{MemberId, NodeId};

/// Maximum length of a node name in bytes.
pub const MAX_MEMBER_NAME_BYTES: usize = 128;

/// Maximum size of a member's payload in bytes.
pub const MAX_MEMBER_PAYLOAD_BYTES: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProfileVersion {
    pub(super) member: MemberId,
    pub(super) version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) member: MemberId,
    pub(super) started_at_ms: u64,
    /// Starts at 1 and grows with every change within one incarnation.
    pub(super) version: u64,
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

#[derive(Debug, Default)]
pub(super) struct Profiles {
    by_node: BTreeMap<NodeId, Profile>,
    told: Option<NodeId>,
}

impl Profiles {
    pub(super) fn of(&self, member: &MemberId) -> Option<&Profile> {
        self.by_node.get(&member.node).filter(|profile| profile.member == *member)
    }

    /// The known version of a member's profile, 0 if none.
    pub(super) fn version(&self, member: &MemberId) -> u64 {
        self.of(member).map_or(0, |profile| profile.version)
    }

    /// Stores `profile` if none is known, or the known one is older or of another incarnation. Returns whether it was
    /// stored.
    pub(super) fn insert_newer(&mut self, profile: Profile) -> bool {
        let newer = profile.version > self.version(&profile.member);
        if newer {
            self.by_node.insert(profile.member.node, profile);
        }
        newer
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&MemberId) -> bool) {
        self.by_node.retain(|_, profile| keep(&profile.member));
    }

    /// The profile version of the next member in turn, skipping `except`. `None` if no other profile is known.
    pub(super) fn next_version(&mut self, except: NodeId) -> Option<ProfileVersion> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.told.map_or(Unbounded, Excluded);
        let later = self.by_node.range((after, Unbounded)).map(|(_, profile)| profile);
        let next = later.chain(self.by_node.values()).find(|profile| profile.member.node != except)?;
        self.told = Some(next.member.node);
        Some(next.entry())
    }
}
