//! Names and payloads of members, and how they get to everybody.
//!
//! They are too large for SWIM's own packets. So every packet carries versions instead: the sender's own, the one that
//! the sender has of the receiver, and that of one member more, each in turn. Who sees that it has less asks for it by
//! saying what it has; who sees that it has more sends it. So a change reaches everybody that is reached by anything,
//! whatever is lost, also where a link is dead and others have to pass it on.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::identity::{IncarnationOrder, incarnation_order};
use crate::{MemberId, NodeId};

/// The longest name of a node, in bytes.
pub const MAX_MEMBER_NAME_BYTES: usize = 128;

/// The largest payload of a member, in bytes.
pub const MAX_MEMBER_PAYLOAD_BYTES: usize = 512;

/// A version held of some member's profile.
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
    /// Grows with every change within one life, from 1.
    pub(super) version: u64,
    /// It said farewell.
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
    /// Whose version was told last.
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

    /// Keeps `profile` if it is newer than the one held; says whether it was.
    pub(super) fn take(&mut self, profile: Profile) -> bool {
        let newer = profile.version > self.version(&profile.member);
        if newer {
            self.by_node.insert(profile.member.node, profile);
        }
        newer
    }

    /// Forgets the profiles of which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(&MemberId) -> bool) {
        self.by_node.retain(|_, profile| keep(&profile.member));
    }

    /// The version of the next member in turn, `except` passed over.
    pub(super) fn next_to_tell(&mut self, except: NodeId) -> Option<ProfileVersion> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.told.map_or(Unbounded, Excluded);
        let later = self.by_node.range((after, Unbounded)).map(|(_, profile)| profile);
        let next = later.chain(self.by_node.values()).find(|profile| profile.member.node != except)?;
        self.told = Some(next.member.node);
        Some(next.entry())
    }
}
