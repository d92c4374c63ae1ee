//! Members as applications see them.

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{
    error::{ConnectError, PayloadError},
    id::{ClusterId, MemberId},
    membership::{self, MemberState},
};

/// The largest number of bytes before the payload: a tag, a cluster id, and an address.
const MAX_PREFIX_BYTES: usize = 1 + 16 + MAX_ADDR_BYTES;

/// The length of an IP address in bytes, the address, and a port.
const MAX_ADDR_BYTES: usize = 1 + 16 + 2;

/// Bits of the tag.
const HAS_CLUSTER_ID: u8 = 1;
const HAS_ADDR: u8 = 2;

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
    /// The member can be dialled at another address now.
    Moved(Member),
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

/// What stands before the payload in what the membership carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MemberPrefix {
    pub(super) cluster_id: Option<ClusterId>,
    /// Where the member can be dialled, if that has changed since it was started.
    pub(super) addr: Option<SocketAddr>,
}

/// What the membership carries as the payload: one byte with a bit for a cluster id and one for an address; the cluster
/// id of 16 bytes (big endian); the address: the number of its bytes (4 or 16), these, and the port (big endian); then
/// the payload.
pub(super) fn wrap(prefix: MemberPrefix, payload: &Bytes) -> Bytes {
    let mut wrapped = BytesMut::with_capacity(MAX_PREFIX_BYTES + payload.len());
    let bit = |is_there, bit| if is_there { bit } else { 0 };
    wrapped.put_u8(bit(prefix.cluster_id.is_some(), HAS_CLUSTER_ID) | bit(prefix.addr.is_some(), HAS_ADDR));
    if let Some(id) = prefix.cluster_id {
        wrapped.put_u128(id.0);
    }
    if let Some(addr) = prefix.addr {
        match addr.ip() {
            IpAddr::V4(ip) => {
                wrapped.put_u8(4);
                wrapped.put_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                wrapped.put_u8(16);
                wrapped.put_slice(&ip.octets());
            }
        }
        wrapped.put_u16(addr.port());
    }
    wrapped.extend_from_slice(payload);
    wrapped.freeze()
}

/// The inverse of [`wrap`]. Anything else is the payload of a member without a formation.
fn unwrap(wrapped: &Bytes) -> (MemberPrefix, Bytes) {
    let mut rest = wrapped.clone();
    read_prefix(&mut rest).map_or_else(|| (MemberPrefix::default(), wrapped.clone()), |prefix| (prefix, rest))
}

fn read_prefix(bytes: &mut Bytes) -> Option<MemberPrefix> {
    let tag = bytes.try_get_u8().ok().filter(|tag| tag & !(HAS_CLUSTER_ID | HAS_ADDR) == 0)?;
    let mut prefix = MemberPrefix::default();
    if tag & HAS_CLUSTER_ID != 0 {
        prefix.cluster_id = Some(ClusterId(bytes.try_get_u128().ok()?));
    }
    if tag & HAS_ADDR != 0 {
        let ip = match bytes.try_get_u8().ok()? {
            4 => IpAddr::from(bytes.try_get_u32().ok()?.to_be_bytes()),
            16 => IpAddr::from(bytes.try_get_u128().ok()?.to_be_bytes()),
            _ => return None,
        };
        prefix.addr = Some(SocketAddr::new(ip, bytes.try_get_u16().ok()?));
    }
    Some(prefix)
}

impl Member {
    /// The largest payload of a member, in bytes: what a membership packet takes, less the cluster id
    /// and an address.
    pub const MAX_PAYLOAD: usize = membership::MAX_MEMBER_PAYLOAD_BYTES - MAX_PREFIX_BYTES;

    pub(super) fn from_swim(member: membership::SwimMember) -> Self {
        let (prefix, payload) = unwrap(&member.payload);
        let membership::SwimMember { id, name, addr, state, .. } = member;
        Self { id, name, addr: prefix.addr.unwrap_or(addr), payload, state, cluster_id: prefix.cluster_id }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_payload_fits() {
        let addr = Some(([u16::MAX; 8], u16::MAX).into());
        let prefix = MemberPrefix { cluster_id: Some(ClusterId(u128::MAX)), addr };
        let wrapped = wrap(prefix, &vec![0; Member::MAX_PAYLOAD].into());
        assert_eq!(wrapped.len(), membership::MAX_MEMBER_PAYLOAD_BYTES);
        let limit = Member::MAX_PAYLOAD;
        assert_eq!(check(&vec![0; limit + 1].into()), Err(PayloadError::TooLarge { len: limit + 1, limit }));
    }

    proptest! {
        #[test]
        fn wrapping_is_undone(id: Option<u128>, addr: Option<SocketAddr>, payload: Vec<u8>) {
            let addr = addr.map(|addr| SocketAddr::new(addr.ip(), addr.port()));
            let (prefix, payload) = (MemberPrefix { cluster_id: id.map(ClusterId), addr }, Bytes::from(payload));
            prop_assert_eq!(unwrap(&wrap(prefix, &payload)), (prefix, payload));
        }

        #[test]
        fn anything_can_be_unwrapped(wrapped: Vec<u8>) {
            unwrap(&wrapped.into());
        }
    }
}
