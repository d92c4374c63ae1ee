//! The first frames of a connection, in which both sides state node, cluster and protocol versions.
//!
//! Each side sends one frame. Its header starts with twelve bytes, whose format is the same in every version: a magic
//! number, and the range of versions that the sender supports. The rest is decoded only if the ranges overlap. The
//! frame's body contains later additions, which older releases ignore.

use std::net::SocketAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{PeerInfo, PeerKind};
use crate::{
    codec,
    error::{Refusal, VersionRange},
    frame::Frame,
    id::{ClusterId, MAX_LINEAGE, MemberId},
};

pub(super) const MAX_HELLO_BYTES: usize = 4096;

pub(super) const MAX_CLUSTER_NAME_BYTES: usize = 255;

const MAGIC: [u8; 8] = *b"ARTILLRY";
const FIXED_BYTES: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) cluster: String,
    pub(super) cluster_id: Option<ClusterId>,
    pub(super) member: MemberId,
    pub(super) kind: PeerKind,
    /// The address at which the sender can be dialled. An unspecified IP means the source IP of its packets.
    pub(super) addr: SocketAddr,
}

impl Hello {
    pub(super) fn into_peer(self, name: String, remote: SocketAddr, version: u16) -> PeerInfo {
        let addr = match self.addr {
            addr if addr.ip().is_unspecified() => at_port(remote, addr.port()),
            addr => addr,
        };
        PeerInfo { name, id: self.member, kind: self.kind, addr, remote, cluster_id: self.cluster_id, version }
    }
}

/// The same address, including its zone, with another port.
pub(super) fn at_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HelloReply {
    Accepted(Hello),
    Refused(Refusal),
}

#[cfg(any(test, fuzzing))]
pub(super) fn encode<T: Serialize>(versions: VersionRange, message: &T) -> Bytes {
    encode_with(versions, message, &Formation::default())
}

/// A statement on the sender's formation, in the body of a hello or reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Formation {
    /// The formations that the sender's formation succeeds, oldest first.
    pub(super) succeeds: Vec<ClusterId>,
    /// The formations that have given way to the sender's formation or to one of its predecessors.
    pub(super) gave_way: Vec<ClusterId>,
    /// Whether the formation has ever held data. `false` also if the sender does not know, or predates this statement.
    pub(super) holds_data: bool,
    /// Whether the formation currently has a leader confirmed by a quorum.
    pub(super) is_led: bool,
}

/// Ids that no formation has. In the list of predecessors they encode statements. An older peer treats them as further
/// predecessors, to which it does not belong.
const HOLDS_DATA: ClusterId = ClusterId(u128::MAX);
const IS_LED: ClusterId = ClusterId(u128::MAX - 1);
/// Precedes the formations that gave way.
const GAVE_WAY: ClusterId = ClusterId(u128::MAX - 2);

/// Maximum number of formations that gave way in a statement. The newest are kept.
const MAX_GAVE_WAY: usize = 4;

pub(super) fn encode_with<T: Serialize>(versions: VersionRange, message: &T, formation: &Formation) -> Bytes {
    let mut header = Vec::with_capacity(128);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&versions.min.to_le_bytes());
    header.extend_from_slice(&versions.max.to_le_bytes());
    // Plain structs and strings, which bincode always encodes.
    let _ = codec::encode(message, &mut header);
    Frame { header: header.into(), body: formation.to_body().into() }.to_bytes()
}

impl Formation {
    fn to_body(&self) -> Vec<u8> {
        let gave_way = &self.gave_way[self.gave_way.len().saturating_sub(MAX_GAVE_WAY)..];
        let mut statements = Vec::new();
        statements.extend(self.holds_data.then_some(HOLDS_DATA));
        statements.extend(self.is_led.then_some(IS_LED));
        if !gave_way.is_empty() {
            statements.push(GAVE_WAY);
            statements.extend_from_slice(gave_way);
        }
        let newest = self.succeeds.len().saturating_sub(MAX_LINEAGE - statements.len());
        let stated = [&self.succeeds[newest..], &statements].concat();
        let mut body = Vec::new();
        if !stated.is_empty() {
            // A list of plain numbers, which bincode always encodes.
            let _ = codec::encode(&stated, &mut body);
        }
        body
    }

    /// The statement in a frame's body. Empty if the body cannot be decoded or lists more than [`MAX_LINEAGE`] ids.
    pub(super) fn stated_in(frame: &Frame) -> Self {
        let stated: Vec<ClusterId> = codec::decode(&frame.body).unwrap_or_default();
        let mut formation = Self::default();
        if stated.len() > MAX_LINEAGE {
            return formation;
        }
        let mut has_gone = false;
        for id in stated {
            match id {
                HOLDS_DATA => formation.holds_data = true,
                IS_LED => formation.is_led = true,
                GAVE_WAY => has_gone = true,
                id if has_gone => formation.gave_way.push(id),
                id => formation.succeeds.push(id),
            }
        }
        formation
    }
}

/// Splits a frame's header into the sender's versions and its message.
pub(super) fn split(frame: &Frame) -> Result<(VersionRange, &[u8]), Refusal> {
    let Some((fixed, message)) = frame.header.split_at_checked(FIXED_BYTES) else {
        return Err(Refusal::Malformed(format!("{} bytes are too short", frame.header.len())));
    };
    if fixed[..8] != MAGIC {
        return Err(Refusal::Malformed("it belongs to another protocol".into()));
    }
    let min = u16::from_le_bytes([fixed[8], fixed[9]]);
    let max = u16::from_le_bytes([fixed[10], fixed[11]]);
    Ok((VersionRange { min, max }, message))
}

/// Decodes a frame if its sender's versions and `here` overlap. Returns the common version and the message.
pub(super) fn decode<T: serde::de::DeserializeOwned>(here: VersionRange, frame: &Frame) -> Result<(u16, T), Refusal> {
    let (there, message) = split(frame)?;
    let version = here.meet(there).ok_or(Refusal::VersionMismatch { here, there })?;
    let message = codec::decode(message).map_err(|error| Refusal::Malformed(error.to_string()))?;
    Ok((version, message))
}

/// Decodes a refusal from the reason of a closed connection.
pub(super) fn refusal_from(reason: &[u8]) -> Refusal {
    codec::decode(reason).unwrap_or_else(|_| Refusal::Other("the reason is malformed".into()))
}

/// The checks that each side makes of the other's hello.
pub(super) fn check(mine: &Hello, theirs: &Hello, certificate: &str) -> Result<(), Refusal> {
    if theirs.member.node != crate::NodeId::from_name(certificate) {
        return Err(Refusal::NotItsCertificate { certificate: certificate.into(), claimed: theirs.member.node });
    }
    if theirs.cluster != mine.cluster {
        let there = theirs.cluster.chars().take(MAX_CLUSTER_NAME_BYTES).collect();
        return Err(Refusal::DifferentClusterName { here: mine.cluster.clone(), there });
    }
    if theirs.member.node == mine.member.node {
        return Err(Refusal::Itself(mine.member));
    }
    if mine.kind.is_node() && theirs.kind.is_node() && mine.kind != theirs.kind {
        return Err(Refusal::OtherDurability { here: mine.kind == PeerKind::DurableNode });
    }
    check_cluster_id(mine.cluster_id, theirs.cluster_id)
}

/// Refuses a peer of another formation. A side without a formation accepts any, and is accepted by any.
pub(super) fn check_cluster_id(here: Option<ClusterId>, there: Option<ClusterId>) -> Result<(), Refusal> {
    match (here, there) {
        (Some(here), Some(there)) if here != there => Err(Refusal::DifferentCluster { here, there }),
        _ => Ok(()),
    }
}

/// Runs every decoder of hellos that accepts unauthenticated bytes.
#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    use super::PROTOCOL_VERSIONS as HERE;

    fn read<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(header: Vec<u8>) {
        let frame = Frame { header: header.into(), body: Bytes::new() };
        if let Ok((_, message)) = decode::<T>(HERE, &frame) {
            let again = Frame { header: encode(HERE, &message).slice(crate::frame::PREFIX..), body: Bytes::new() };
            assert_eq!(decode(HERE, &again).map(|(_, message)| message), Ok(message));
        }
    }

    let behind_fixed = [&MAGIC[..], &HERE.min.to_le_bytes(), &HERE.max.to_le_bytes(), bytes].concat();
    read::<Hello>(bytes.to_vec());
    read::<Hello>(behind_fixed.clone());
    read::<HelloReply>(behind_fixed);
    let _ = refusal_from(bytes).to_string();
    let _ = Formation::stated_in(&Frame { header: Bytes::new(), body: bytes.to_vec().into() });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Incarnation, NodeId, frame::FrameDecoder};

    const ONE: VersionRange = VersionRange { min: 1, max: 1 };

    fn hello(name: &str) -> Hello {
        Hello {
            cluster: "shop".into(),
            cluster_id: Some(ClusterId(0x0123_4567_89ab_cdef)),
            member: MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 7, starts: 3 } },
            kind: PeerKind::Node,
            addr: ([10, 0, 0, 5], 7400).into(),
        }
    }

    fn frame(bytes: &[u8]) -> Frame {
        let mut decoder = FrameDecoder::new(MAX_HELLO_BYTES);
        decoder.push(bytes);
        decoder.next_frame().unwrap().unwrap()
    }

    #[test]
    fn versions_that_do_not_meet_are_told_before_anything_else_is_read() {
        let there = VersionRange { min: 2, max: 9 };
        let mut bytes = encode(there, &hello("a")).to_vec();
        bytes.truncate(FIXED_BYTES + crate::frame::PREFIX);
        bytes.extend_from_slice(b"bytes of version 9");
        let header = Bytes::from(bytes).slice(crate::frame::PREFIX..);
        let decoded = decode::<Hello>(ONE, &Frame { header, body: Bytes::new() });
        assert_eq!(decoded, Err(Refusal::VersionMismatch { here: ONE, there }));
    }

    #[test]
    fn the_newest_common_version_is_taken() {
        let bytes = encode(VersionRange { min: 1, max: 4 }, &hello("a"));
        let (version, told) = decode::<Hello>(VersionRange { min: 2, max: 3 }, &frame(&bytes)).unwrap();
        assert_eq!((version, told), (3, hello("a")));
    }

    #[test]
    fn the_clusters_that_one_succeeds_stand_behind_its_hello() {
        let of = |succeeds: &[ClusterId]| Formation { succeeds: succeeds.to_vec(), ..Formation::default() };
        let succeeds = |frame: &Frame| Formation::stated_in(frame).succeeds;
        let line = [ClusterId(3), ClusterId(4)];
        let said = frame(&encode_with(ONE, &hello("a"), &of(&line)));
        assert_eq!(succeeds(&said), line);
        assert_eq!(decode::<Hello>(ONE, &said).unwrap().1, hello("a"), "older releases decode the rest");
        let long: Vec<_> = (0..40).map(ClusterId).collect();
        assert_eq!(succeeds(&frame(&encode_with(ONE, &hello("a"), &of(&long)))), long[24..]);
        for body in [&b""[..], b"\xff\xff\xff\xff\xff", &[1]] {
            assert_eq!(succeeds(&Frame { header: Bytes::new(), body: body.to_vec().into() }), []);
        }
    }

    /// A peer that knows only the list of formations must still decode it.
    #[test]
    fn statements_follow_the_formations_that_one_succeeds() {
        for line in [vec![], vec![ClusterId(3)], (0..40).map(ClusterId).collect()] {
            let gave_way: Vec<_> = (50..56).map(ClusterId).collect();
            let formation = Formation { succeeds: line.clone(), gave_way, holds_data: true, is_led: true };
            let said = frame(&encode_with(ONE, &hello("a"), &formation));
            let known = line[line.len().saturating_sub(MAX_LINEAGE - MAX_GAVE_WAY - 3)..].to_vec();
            let gave_way = formation.gave_way[2..].to_vec();
            assert_eq!(Formation::stated_in(&said), Formation { succeeds: known.clone(), gave_way, ..formation });
            let list: Vec<ClusterId> = codec::decode(&said.body).unwrap();
            assert!(list.len() <= MAX_LINEAGE && list.starts_with(&known), "an earlier release decodes this");
        }
    }

    #[test]
    fn every_difference_has_its_reason() {
        let mine = hello("me");
        assert_eq!(check(&mine, &hello("a"), "a"), Ok(()));
        assert!(matches!(check(&mine, &hello("a"), "b"), Err(Refusal::NotItsCertificate { .. })));
        assert!(matches!(check(&mine, &hello("me"), "me"), Err(Refusal::Itself(_))));
        let durable = Hello { kind: PeerKind::DurableNode, ..hello("a") };
        assert_eq!(check(&mine, &durable, "a"), Err(Refusal::OtherDurability { here: false }));
        let client = Hello { kind: PeerKind::Client, ..hello("b") };
        assert_eq!(check(&durable, &client, "b"), Ok(()));
        let other = Hello { cluster: "barn".into(), ..hello("a") };
        assert!(matches!(check(&mine, &other, "a"), Err(Refusal::DifferentClusterName { .. })));
        let other = Hello { cluster_id: Some(ClusterId(1)), ..hello("a") };
        assert!(matches!(check(&mine, &other, "a"), Err(Refusal::DifferentCluster { .. })));
        let other = Hello { cluster_id: None, ..hello("a") };
        assert_eq!(check(&mine, &other, "a"), Ok(()));
    }

    /// Every later release that supports version 1 must accept, and send, the bytes that a release has sent.
    #[test]
    fn hello_bytes_of_version_1_are_unchanged() {
        let refused = Refusal::DifferentCluster { here: ClusterId(1), there: ClusterId(2) };
        let succeeds = Formation { succeeds: vec![ClusterId(3)], ..Formation::default() };
        let states = Formation { gave_way: vec![ClusterId(4)], holds_data: true, is_led: true, ..succeeds.clone() };
        let vectors = [
            ("hello", encode(ONE, &hello("a"))),
            ("accepted", encode(ONE, &HelloReply::Accepted(hello("b")))),
            ("refused", encode(ONE, &HelloReply::Refused(refused))),
            ("name_taken", encode(ONE, &HelloReply::Refused(Refusal::NameTaken { by: hello("b").member }))),
            ("succeeds", encode_with(ONE, &hello("a"), &succeeds)),
            ("states", encode_with(ONE, &hello("a"), &states)),
        ];
        let written: String = vectors.iter().map(|(name, bytes)| format!("{name} {}\n", hex(bytes))).collect();
        assert_eq!(written, include_str!("../../tests/wire-1/hello.hex"));
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    proptest! {
        #[test]
        fn garbage_never_panics(header: Vec<u8>) {
            let _ = decode::<Hello>(ONE, &Frame { header: header.clone().into(), body: Bytes::new() });
            let mut header = header;
            let fixed = [&MAGIC[..], &[1, 0, 1, 0]].concat();
            header.splice(..0, fixed);
            let _ = decode::<HelloReply>(ONE, &Frame { header: header.into(), body: Bytes::new() });
        }
    }
}
