//! The encoding of packets, version 1. Numbers have a fixed width and are big-endian.
//!
//! ```text
//! packet   version:1 (is 1) · count:1 · entry… · count:1 · profile… · SWIM packet (perhaps none)
//! entry    member · version:8
//! profile  member · started:8 · version:8 · flags:1 (bit 0: left) · len:1 name · len:2 payload
//! member   node:16 · store:16 · starts:8
//! identity member · address (4|6):1 ip:4|16 port:2 · started:8 · renewals:4
//! ```

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BufMut, Bytes};
use foca::{Header, Message, State};

use super::{
    identity::SwimIdentity,
    profile::{MAX_MEMBER_NAME_BYTES, MAX_MEMBER_PAYLOAD_BYTES, Profile, ProfileVersion},
};
use crate::{Incarnation, MemberId, NodeId};

const VERSION: u8 = 1;

pub(super) const MAX_PROFILE_VERSIONS: usize = 16;

/// Size of the part before the SWIM packet, with three profile versions and no profile.
pub(super) const ENVELOPE_BYTES: usize = 3 + 3 * PROFILE_VERSION_BYTES;

const PROFILE_VERSION_BYTES: usize = MEMBER_BYTES + 8;

const MEMBER_BYTES: usize = 40;

/// Why a packet could not be decoded or encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end before the packet does.
    #[error("truncated")]
    Truncated,
    /// A tag or version is unknown.
    #[error("unknown {what} {tag}")]
    Unknown {
        /// The kind of tag or version.
        what: &'static str,
        /// Its value.
        tag: u8,
    },
    /// A part exceeds its limit.
    #[error("{what}: {len} exceeds the limit")]
    TooLong {
        /// The part.
        what: &'static str,
        /// Its length in bytes, or the number of its items.
        len: usize,
    },
    /// A name is not UTF-8.
    #[error("a name is not UTF-8")]
    NotUtf8,
    /// The output buffer is too small.
    #[error("the output buffer is too small")]
    NoRoom,
}

impl From<bytes::TryGetError> for WireError {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Truncated
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MembershipPacket<'a> {
    pub(super) entries: Vec<ProfileVersion>,
    pub(super) profiles: Vec<Profile>,
    pub(super) swim: &'a [u8],
}

impl<'a> MembershipPacket<'a> {
    pub(super) fn read(mut bytes: &'a [u8]) -> Result<Self, WireError> {
        let version = bytes.try_get_u8()?;
        if version != VERSION {
            return Err(WireError::Unknown { what: "packet version", tag: version });
        }
        let count = usize::from(bytes.try_get_u8()?);
        if count > MAX_PROFILE_VERSIONS {
            return Err(WireError::TooLong { what: "entries", len: count });
        }
        let entries = (0..count)
            .map(|_| Ok(ProfileVersion { member: get_member(&mut bytes)?, version: bytes.try_get_u64()? }))
            .collect::<Result<_, WireError>>()?;
        let count = bytes.try_get_u8()?;
        let profiles = (0..count).map(|_| get_profile(&mut bytes)).collect::<Result<_, _>>()?;
        Ok(Self { entries, profiles, swim: bytes })
    }
}

#[derive(Debug)]
pub(super) struct PacketWriter {
    limit: usize,
    entries: Vec<u8>,
    entry_count: u8,
    profiles: Vec<u8>,
    profile_count: u8,
}

impl PacketWriter {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, entries: Vec::new(), entry_count: 0, profiles: Vec::new(), profile_count: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entry_count == 0 && self.profile_count == 0
    }

    fn room(&self) -> usize {
        self.limit - 3 - self.entries.len() - self.profiles.len()
    }

    /// Adds a version if it fits.
    pub(super) fn entry(&mut self, entry: ProfileVersion) {
        if self.room() >= PROFILE_VERSION_BYTES && usize::from(self.entry_count) < MAX_PROFILE_VERSIONS {
            put_member(&mut self.entries, &entry.member);
            self.entries.put_u64(entry.version);
            self.entry_count += 1;
        }
    }

    pub(super) fn profile(&mut self, profile: &Profile) {
        let mut bytes = Vec::new();
        put_profile(&mut bytes, profile);
        if self.room() >= bytes.len() && self.profile_count < u8::MAX {
            self.profiles.extend_from_slice(&bytes);
            self.profile_count += 1;
        }
    }

    pub(super) fn finish(self, swim: &[u8]) -> Bytes {
        let mut packet = Vec::with_capacity(3 + self.entries.len() + self.profiles.len() + swim.len());
        packet.put_slice(&[VERSION, self.entry_count]);
        packet.put_slice(&self.entries);
        packet.put_u8(self.profile_count);
        packet.put_slice(&self.profiles);
        packet.put_slice(swim);
        packet.into()
    }
}

fn put_member(out: &mut impl BufMut, member: &MemberId) {
    out.put_slice(member.node.as_bytes());
    out.put_u128(member.incarnation.store);
    out.put_u64(member.incarnation.starts);
}

fn get_member(bytes: &mut impl Buf) -> Result<MemberId, WireError> {
    let mut node = [0; 16];
    bytes.try_copy_to_slice(&mut node)?;
    let incarnation = Incarnation { store: bytes.try_get_u128()?, starts: bytes.try_get_u64()? };
    Ok(MemberId { node: NodeId::from_bytes(node), incarnation })
}

fn put_profile(out: &mut Vec<u8>, profile: &Profile) {
    put_member(out, &profile.member);
    out.put_u64(profile.started_at_ms);
    out.put_u64(profile.version);
    out.put_u8(u8::from(profile.left));
    // Both lengths were checked when the profile was created.
    out.put_u8(profile.name.len() as u8);
    out.put_slice(profile.name.as_bytes());
    out.put_u16(profile.payload.len() as u16);
    out.put_slice(&profile.payload);
}

fn get_profile(bytes: &mut &[u8]) -> Result<Profile, WireError> {
    let member = get_member(bytes)?;
    let started_at_ms = bytes.try_get_u64()?;
    let version = bytes.try_get_u64()?;
    let left = match bytes.try_get_u8()? {
        0 => false,
        1 => true,
        tag => return Err(WireError::Unknown { what: "flags", tag }),
    };
    let len = usize::from(bytes.try_get_u8()?);
    let name = take(bytes, "name", len, MAX_MEMBER_NAME_BYTES)?;
    let name = std::str::from_utf8(name).map_err(|_| WireError::NotUtf8)?.to_owned();
    let len = usize::from(bytes.try_get_u16()?);
    let payload = Bytes::copy_from_slice(take(bytes, "payload", len, MAX_MEMBER_PAYLOAD_BYTES)?);
    Ok(Profile { member, started_at_ms, version, left, name, payload })
}

fn take<'a>(bytes: &mut &'a [u8], what: &'static str, len: usize, max: usize) -> Result<&'a [u8], WireError> {
    if len > max {
        return Err(WireError::TooLong { what, len });
    }
    let (part, rest) = bytes.split_at_checked(len).ok_or(WireError::Truncated)?;
    *bytes = rest;
    Ok(part)
}

fn put_identity(out: &mut Vec<u8>, identity: &SwimIdentity) {
    put_member(out, &identity.member);
    match identity.addr.ip() {
        IpAddr::V4(ip) => {
            out.put_u8(4);
            out.put_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.put_u8(6);
            out.put_slice(&ip.octets());
        }
    }
    out.put_u16(identity.addr.port());
    out.put_u64(identity.started_at_ms);
    out.put_u32(identity.renewals);
}

fn get_identity(bytes: &mut impl Buf) -> Result<SwimIdentity, WireError> {
    let member = get_member(bytes)?;
    let ip: IpAddr = match bytes.try_get_u8()? {
        4 => bytes.try_get_u32()?.to_be_bytes().into(),
        6 => bytes.try_get_u128()?.to_be_bytes().into(),
        tag => return Err(WireError::Unknown { what: "address family", tag }),
    };
    let addr = SocketAddr::new(ip, bytes.try_get_u16()?);
    Ok(SwimIdentity { member, addr, started_at_ms: bytes.try_get_u64()?, renewals: bytes.try_get_u32()? })
}

fn put_message(out: &mut Vec<u8>, message: &Message<SwimIdentity>) {
    let (tag, probe, identity) = match message {
        Message::Ping(probe) => (1, Some(probe), None),
        Message::Ack(probe) => (2, Some(probe), None),
        Message::PingReq { target, probe_number } => (3, Some(probe_number), Some(target)),
        Message::IndirectPing { origin, probe_number } => (4, Some(probe_number), Some(origin)),
        Message::IndirectAck { target, probe_number } => (5, Some(probe_number), Some(target)),
        Message::ForwardedAck { origin, probe_number } => (6, Some(probe_number), Some(origin)),
        Message::Announce => (7, None, None),
        Message::Feed => (8, None, None),
        Message::Gossip => (9, None, None),
        Message::Broadcast => (10, None, None),
        Message::TurnUndead => (11, None, None),
    };
    out.put_u8(tag);
    probe.into_iter().for_each(|probe| out.put_u8(*probe));
    identity.into_iter().for_each(|identity| put_identity(out, identity));
}

fn get_message(bytes: &mut impl Buf) -> Result<Message<SwimIdentity>, WireError> {
    Ok(match bytes.try_get_u8()? {
        1 => Message::Ping(bytes.try_get_u8()?),
        2 => Message::Ack(bytes.try_get_u8()?),
        3 => Message::PingReq { probe_number: bytes.try_get_u8()?, target: get_identity(bytes)? },
        4 => Message::IndirectPing { probe_number: bytes.try_get_u8()?, origin: get_identity(bytes)? },
        5 => Message::IndirectAck { probe_number: bytes.try_get_u8()?, target: get_identity(bytes)? },
        6 => Message::ForwardedAck { probe_number: bytes.try_get_u8()?, origin: get_identity(bytes)? },
        7 => Message::Announce,
        8 => Message::Feed,
        9 => Message::Gossip,
        11 => Message::TurnUndead,
        // 10 would be `Broadcast`, which is not used.
        tag => return Err(WireError::Unknown { what: "message", tag }),
    })
}

pub(super) fn get_header(bytes: &mut impl Buf) -> Result<Header<SwimIdentity>, WireError> {
    let (src, src_incarnation) = (get_identity(bytes)?, bytes.try_get_u16()?);
    Ok(Header { src, src_incarnation, dst: get_identity(bytes)?, message: get_message(bytes)? })
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SwimCodec;

/// Writes all bytes, or none if they do not fit.
fn put_all(mut out: impl BufMut, bytes: &[u8]) -> Result<(), WireError> {
    if out.remaining_mut() < bytes.len() {
        return Err(WireError::NoRoom);
    }
    out.put_slice(bytes);
    Ok(())
}

impl foca::Codec<SwimIdentity> for SwimCodec {
    type Error = WireError;

    fn encode_header(&mut self, header: &Header<SwimIdentity>, out: impl BufMut) -> Result<(), WireError> {
        let mut bytes = Vec::with_capacity(256);
        put_identity(&mut bytes, &header.src);
        bytes.put_u16(header.src_incarnation);
        put_identity(&mut bytes, &header.dst);
        put_message(&mut bytes, &header.message);
        put_all(out, &bytes)
    }

    fn decode_header(&mut self, mut bytes: impl Buf) -> Result<Header<SwimIdentity>, WireError> {
        get_header(&mut bytes)
    }

    fn encode_member(&mut self, member: &foca::Member<SwimIdentity>, out: impl BufMut) -> Result<(), WireError> {
        let mut bytes = Vec::with_capacity(96);
        put_identity(&mut bytes, member.id());
        bytes.put_u16(member.incarnation());
        bytes.put_u8(match member.state() {
            State::Alive => 1,
            State::Suspect => 2,
            State::Down => 3,
        });
        put_all(out, &bytes)
    }

    fn decode_member(&mut self, mut bytes: impl Buf) -> Result<foca::Member<SwimIdentity>, WireError> {
        let (identity, incarnation) = (get_identity(&mut bytes)?, bytes.try_get_u16()?);
        let state = match bytes.try_get_u8()? {
            1 => State::Alive,
            2 => State::Suspect,
            3 => State::Down,
            tag => return Err(WireError::Unknown { what: "state", tag }),
        };
        Ok(foca::Member::new(identity, incarnation, state))
    }
}
