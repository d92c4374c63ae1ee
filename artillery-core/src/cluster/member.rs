//! Members and events as reported to applications.

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{
    error::{ConnectError, PayloadError},
    id::{ClusterId, MemberId},
    membership::{self, MemberState},
};

pub(super) const MAX_ADDRS: usize = 8;

/// Maximum size of the prefix: tag, cluster id, number of addresses, addresses.
const MAX_PREFIX_BYTES: usize = 1 + 16 + 1 + MAX_ADDRS * MAX_ADDR_BYTES;

/// Length byte, IP address, port.
const MAX_ADDR_BYTES: usize = 1 + 16 + 2;

const HAS_CLUSTER_ID: u8 = 1;
const HAS_ADDR: u8 = 2;
const HAS_ADDRS: u8 = 4;

/// Another member, as this node saw it when this value was created.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The node and its incarnation.
    pub id: MemberId,
    /// The node's stable name.
    pub name: String,
    /// The preferred address to dial: the first of `addrs`.
    pub addr: SocketAddr,
    /// All addresses at which the member may be dialled, at most eight. Some may be reachable only from certain hosts,
    /// or belong to other hosts too.
    pub addrs: Vec<SocketAddr>,
    /// The application's payload: see [`Cluster::set_payload`](super::Cluster::set_payload).
    pub payload: Bytes,
    /// The failure detector's view when this value was created.
    pub state: MemberState,
    /// The formation that the member belongs to, if this node knows it.
    pub cluster_id: Option<ClusterId>,
}

/// A change of the membership, or of this node's participation in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberEvent {
    /// A member was seen for the first time in this incarnation, or again after it was forgotten. `Up` or `Suspect`
    /// follows.
    Joined(Member),
    /// The member is considered alive, for the first time or again after `Suspect` or `Down`.
    Up(Member),
    /// The member did not answer in time. It may still refute the suspicion.
    Suspect(Member),
    /// The member is considered dead, or its node runs in a later incarnation.
    Down(Member),
    /// The member announced its departure. May follow `Down`, if the announcement arrived late.
    Left(Member),
    /// The member changed its payload.
    Payload(Member),
    /// The member joined a formation, or changed to another. Not reported for a formation that [`MemberEvent::Joined`]
    /// already contains.
    Formed(Member),
    /// The member can be dialled at other addresses now.
    Moved(Member),
    /// The state of a seed has become [`SeedState::Refused`](super::SeedState::Refused): it refused this node, or this
    /// node refused the node at the seed. Equal refusals in succession are reported once.
    SeedRefused {
        /// The seed, as in [`SeedStatus::seed`](super::SeedStatus::seed).
        seed: String,
        /// The address of the node at the seed.
        addr: SocketAddr,
        /// The reason for the refusal.
        reason: ConnectError,
    },
    /// A later incarnation of this node is a member. This incarnation has stopped taking part in the membership
    /// permanently.
    Superseded {
        /// The later incarnation.
        by: MemberId,
    },
    /// This reader was more than 1,024 events behind and missed them. Its view of the members is up to date again.
    Lagged {
        /// The number of missed events.
        missed: u64,
    },
}

pub(super) fn check(payload: &Bytes) -> Result<(), PayloadError> {
    let (len, limit) = (payload.len(), Member::MAX_PAYLOAD);
    if len > limit { Err(PayloadError::TooLarge { len, limit }) } else { Ok(()) }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct MemberPrefix {
    pub(super) cluster_id: Option<ClusterId>,
    /// The addresses at which the member can be dialled, if there are several or if they have changed since its start.
    pub(super) addrs: Vec<SocketAddr>,
}

/// Encodes the payload that SWIM carries: a tag byte with one bit each for a cluster id, a single address and several
/// addresses; the cluster id (16 bytes, big endian); the number of addresses if there are several; for each address the
/// length of the IP (4 or 16), the IP and the port (big endian); then `payload`. Addresses after the first
/// [`MAX_ADDRS`] are omitted.
pub(super) fn wrap(prefix: &MemberPrefix, payload: &Bytes) -> Bytes {
    let mut wrapped = BytesMut::with_capacity(MAX_PREFIX_BYTES + payload.len());
    let addrs = &prefix.addrs[..prefix.addrs.len().min(MAX_ADDRS)];
    let id_bit = if prefix.cluster_id.is_some() { HAS_CLUSTER_ID } else { 0 };
    let addr_bit = match addrs.len() {
        0 => 0,
        1 => HAS_ADDR,
        _ => HAS_ADDRS,
    };
    wrapped.put_u8(id_bit | addr_bit);
    if let Some(id) = prefix.cluster_id {
        wrapped.put_u128(id.0);
    }
    if addrs.len() > 1 {
        wrapped.put_u8(addrs.len() as u8);
    }
    for addr in addrs {
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

/// The inverse of [`wrap`]. Any other bytes are treated as the payload of a member without a formation.
fn unwrap(wrapped: &Bytes) -> (MemberPrefix, Bytes) {
    let mut rest = wrapped.clone();
    read_prefix(&mut rest).map_or_else(|| (MemberPrefix::default(), wrapped.clone()), |prefix| (prefix, rest))
}

fn read_prefix(bytes: &mut Bytes) -> Option<MemberPrefix> {
    let tag = bytes.try_get_u8().ok().filter(|tag| tag & !(HAS_CLUSTER_ID | HAS_ADDR | HAS_ADDRS) == 0)?;
    let mut prefix = MemberPrefix::default();
    if tag & HAS_CLUSTER_ID != 0 {
        prefix.cluster_id = Some(ClusterId(bytes.try_get_u128().ok()?));
    }
    let several = if tag & HAS_ADDRS != 0 { usize::from(bytes.try_get_u8().ok()?) } else { 0 };
    let addrs = usize::from(tag & HAS_ADDR != 0) + several;
    if addrs > MAX_ADDRS {
        return None;
    }
    prefix.addrs = (0..addrs).map(|_| read_addr(bytes)).collect::<Option<_>>()?;
    Some(prefix)
}

fn read_addr(bytes: &mut Bytes) -> Option<SocketAddr> {
    let ip = match bytes.try_get_u8().ok()? {
        4 => IpAddr::from(bytes.try_get_u32().ok()?.to_be_bytes()),
        16 => IpAddr::from(bytes.try_get_u128().ok()?.to_be_bytes()),
        _ => return None,
    };
    Some(SocketAddr::new(ip, bytes.try_get_u16().ok()?))
}

impl Member {
    /// The largest payload in bytes: SWIM's limit for a member minus the maximum size of the cluster id and the
    /// addresses.
    pub const MAX_PAYLOAD: usize = membership::MAX_MEMBER_PAYLOAD_BYTES - MAX_PREFIX_BYTES;

    pub(super) fn from_swim(member: membership::SwimMember) -> Self {
        let (prefix, payload) = unwrap(&member.payload);
        let membership::SwimMember { id, name, addr, state, .. } = member;
        let addrs = if prefix.addrs.is_empty() { vec![addr] } else { prefix.addrs };
        Self { id, name, addr: addrs[0], addrs, payload, state, cluster_id: prefix.cluster_id }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_payload_fits() {
        let addrs = vec![([u16::MAX; 8], u16::MAX).into(); MAX_ADDRS];
        let prefix = MemberPrefix { cluster_id: Some(ClusterId(u128::MAX)), addrs };
        let wrapped = wrap(&prefix, &vec![0; Member::MAX_PAYLOAD].into());
        assert_eq!(wrapped.len(), membership::MAX_MEMBER_PAYLOAD_BYTES);
        let limit = Member::MAX_PAYLOAD;
        assert_eq!(check(&vec![0; limit + 1].into()), Err(PayloadError::TooLarge { len: limit + 1, limit }));
    }

    /// These vectors never change. Additions of a later release get new ones.
    #[test]
    fn the_bytes_before_the_payload_are_fixed() {
        let id = Some(ClusterId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));
        let v4 = SocketAddr::from(([10, 0, 0, 5], 7400));
        let v6 = SocketAddr::from(([0xfe80, 0, 0, 0, 0, 0, 0, 1], 7400));
        let wrapped = |cluster_id, addrs: &[SocketAddr]| {
            wrap(&MemberPrefix { cluster_id, addrs: addrs.to_vec() }, &Bytes::from_static(b"payload"))
        };
        let vectors = [
            ("plain", wrapped(None, &[])),
            ("formed", wrapped(id, &[])),
            ("moved", wrapped(id, &[v4])),
            ("addresses", wrapped(id, &[v4, v6])),
            ("unformed_addresses", wrapped(None, &[v6, v4])),
        ];
        let hex = |bytes: &Bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let written: String = vectors.iter().map(|(name, bytes)| format!("{name} {}\n", hex(bytes))).collect();
        assert_eq!(written, include_str!("../../tests/wire-1/member.hex"));
    }

    proptest! {
        #[test]
        fn wrapping_is_undone(id: Option<u128>, mut addrs: Vec<SocketAddr>, payload: Vec<u8>) {
            addrs.truncate(MAX_ADDRS);
            let addrs = addrs.into_iter().map(|addr| SocketAddr::new(addr.ip(), addr.port())).collect();
            let (prefix, payload) = (MemberPrefix { cluster_id: id.map(ClusterId), addrs }, Bytes::from(payload));
            prop_assert_eq!(unwrap(&wrap(&prefix, &payload)), (prefix, payload));
        }

        #[test]
        fn anything_can_be_unwrapped(wrapped: Vec<u8>) {
            unwrap(&wrapped.into());
        }
    }
}
