//! Members as applications see them.

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    error::{ConnectError, PayloadError},
    id::{ClusterId, MemberId},
    membership::{self, MemberState},
};

/// Bytes that may stand before the payload: a tag and the cluster id.
const CLUSTER_ID_LEN: usize = 17;

/// Another member, as it seems to be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The node, in one of its incarnations.
    pub id: MemberId,
    /// Its stable name.
    pub name: String,
    /// Where it can be dialled.
    pub addr: SocketAddr,
    /// What it says of itself.
    pub payload: Bytes,
    /// How it seems to be.
    pub state: MemberState,
    /// The formation that it belongs to, once that is known here.
    pub cluster_id: Option<ClusterId>,
}

/// A change of the membership, or of how this node takes part in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberEvent {
    /// A member was seen for the first time in this incarnation. Its state follows as the next event.
    Joined(Member),
    /// The member answers, for the first time or again.
    Up(Member),
    /// The member did not answer in time. It may still refute the suspicion.
    Suspect(Member),
    /// The member is taken for dead, or its node runs in a later incarnation.
    Down(Member),
    /// The member said farewell.
    Left(Member),
    /// The member changed its payload.
    Payload(Member),
    /// The member joined a formation, or another one.
    Formed(Member),
    /// A seed refused this node. Reported once for each reason.
    SeedRefused {
        /// The seed as it was given.
        seed: String,
        /// The address that refused.
        addr: SocketAddr,
        /// Its reason.
        reason: ConnectError,
    },
    /// A later incarnation of this node is a member. This one has stopped taking part.
    Superseded {
        /// The later incarnation.
        by: MemberId,
    },
    /// This reader was too slow. Events were lost, but its view of the members is right again.
    Lagged {
        /// How many events were lost.
        missed: u64,
    },
}

pub(super) fn check(payload: &Bytes) -> Result<(), PayloadError> {
    let (len, limit) = (payload.len(), Member::MAX_PAYLOAD);
    if len > limit { Err(PayloadError::TooLarge { len, limit }) } else { Ok(()) }
}

/// What the membership carries as the payload: one byte 0, or 1 and a cluster id of 16 bytes (big endian); then the
/// payload.
pub(super) fn wrap(cluster_id: Option<ClusterId>, payload: &Bytes) -> Bytes {
    let mut wrapped = BytesMut::with_capacity(CLUSTER_ID_LEN + payload.len());
    match cluster_id {
        None => wrapped.put_u8(0),
        Some(id) => {
            wrapped.put_u8(1);
            wrapped.put_u128(id.0);
        }
    }
    wrapped.extend_from_slice(payload);
    wrapped.freeze()
}

/// The inverse of [`wrap`]. Anything else is the payload of a member without a formation.
fn unwrap(wrapped: &Bytes) -> (Option<ClusterId>, Bytes) {
    match wrapped.split_first() {
        Some((0, _)) => (None, wrapped.slice(1..)),
        Some((1, rest)) => match rest.first_chunk() {
            Some(id) => (Some(ClusterId(u128::from_be_bytes(*id))), wrapped.slice(CLUSTER_ID_LEN..)),
            None => (None, wrapped.clone()),
        },
        _ => (None, wrapped.clone()),
    }
}

impl Member {
    /// The largest payload of a member, in bytes: what a membership packet takes, less the cluster id.
    pub const MAX_PAYLOAD: usize = membership::MAX_MEMBER_PAYLOAD_BYTES - CLUSTER_ID_LEN;

    pub(super) fn from_swim(member: membership::SwimMember) -> Self {
        let (cluster_id, payload) = unwrap(&member.payload);
        let membership::SwimMember { id, name, addr, state, .. } = member;
        Self { id, name, addr, payload, state, cluster_id }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_payload_fits() {
        let wrapped = wrap(Some(ClusterId(u128::MAX)), &vec![0; Member::MAX_PAYLOAD].into());
        assert_eq!(wrapped.len(), membership::MAX_MEMBER_PAYLOAD_BYTES);
        let limit = Member::MAX_PAYLOAD;
        assert_eq!(check(&vec![0; limit + 1].into()), Err(PayloadError::TooLarge { len: limit + 1, limit }));
    }

    proptest! {
        #[test]
        fn wrapping_is_undone(id: Option<u128>, payload: Vec<u8>) {
            let (id, payload) = (id.map(ClusterId), Bytes::from(payload));
            prop_assert_eq!(unwrap(&wrap(id, &payload)), (id, payload));
        }

        #[test]
        fn anything_can_be_unwrapped(wrapped: Vec<u8>) {
            unwrap(&wrapped.into());
        }
    }
}
