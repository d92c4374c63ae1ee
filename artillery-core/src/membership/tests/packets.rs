//! Packets from outside must do no harm.

use bytes::Bytes;
use foca::{Codec as _, Header, Message};
use proptest::prelude::*;

use super::network::{Network, addr, local, member};
use crate::{
    MemberId, Timestamp,
    config::SwimSettings,
    membership::{
        PacketError, Swim, SwimOutput,
        identity::SwimIdentity,
        profile::{Profile, ProfileVersion},
        wire::{MembershipPacket, PacketWriter, SwimCodec, WireError, get_header},
    },
};

const NOW: Timestamp = Timestamp::from_nanos(5_000_000_000);

fn swim(node: usize) -> Swim {
    Swim::new(local(node, 1), SwimSettings::lan(), node as u64).unwrap()
}

fn announcement(node: usize, to: usize) -> Bytes {
    let mut sender = swim(node);
    sender.announce_to(NOW, swim(to).local().peer());
    match sender.poll_output() {
        Some(SwimOutput::Packet { bytes, .. }) => bytes,
        other => panic!("no packet: {other:?}"),
    }
}

#[test]
fn a_packet_of_another_sender_is_refused() {
    let mut receiver = swim(0);
    let error = receiver.handle_packet(NOW, member(2, 1), &announcement(1, 0));
    assert_eq!(error, Err(PacketError::Impostor { from: member(2, 1), claimed: member(1, 1) }));
    assert_eq!(receiver.poll_output(), None);
    assert_eq!(receiver.handle_packet(NOW, member(1, 1), &announcement(1, 0)), Ok(()));
    assert!(receiver.poll_output().is_some());
}

#[test]
fn a_packet_from_ourselves_is_refused() {
    let mut receiver = swim(1);
    let error = receiver.handle_packet(NOW, member(1, 1), &announcement(1, 0));
    assert_eq!(error, Err(PacketError::FromOurselves(member(1, 1))));
}

#[test]
fn a_packet_that_is_too_large_is_refused() {
    let error = swim(0).handle_packet(NOW, member(1, 1), &[1; 1201]);
    assert_eq!(error, Err(PacketError::TooLarge { len: 1201, max: 1100 }));
}

#[test]
fn malformed_packets_name_their_fault() {
    let read = |bytes: &[u8]| MembershipPacket::read(bytes).unwrap_err();
    assert_eq!(read(&[]), WireError::Truncated);
    assert_eq!(read(&[9]), WireError::Unknown { what: "packet version", tag: 9 });
    assert_eq!(read(&[1, 17]), WireError::TooLong { what: "entries", len: 17 });
    assert_eq!(read(&[1, 1, 0]), WireError::Truncated);
}

#[test]
fn a_full_packet_leaves_out_what_does_not_fit() {
    let mut writer = PacketWriter::new(1200);
    let profile = Profile {
        member: member(1, 1),
        started_at_ms: 1,
        version: 1,
        left: false,
        name: "n".repeat(128),
        payload: vec![7; 512].into(),
    };
    (0..3).for_each(|_| writer.profile(&profile));
    (0..40).for_each(|_| writer.entry(profile.entry()));
    let bytes = writer.finish(&[]);
    assert!(bytes.len() <= 1200);
    let packet = MembershipPacket::read(&bytes).unwrap();
    assert_eq!((packet.profiles.len(), packet.swim.len()), (1, 0));
    assert!(packet.entries.len() > 5);
}

fn any_member() -> impl Strategy<Value = MemberId> {
    (0usize..5, 0u64..4).prop_map(|(node, incarnation)| member(node, incarnation))
}

fn any_identity() -> impl Strategy<Value = SwimIdentity> {
    (any_member(), any::<bool>(), any::<u64>(), any::<u32>()).prop_map(|(member, v6, started_at_ms, renewals)| {
        SwimIdentity {
            member,
            addr: if v6 { "[fe80::1]:9".parse().unwrap() } else { addr(3) },
            started_at_ms,
            renewals,
        }
    })
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let content = (".{0,32}", proptest::collection::vec(any::<u8>(), 0..=512));
    (any_member(), any::<u64>(), any::<u64>(), any::<bool>(), content).prop_map(
        |(member, started_at_ms, version, left, (name, payload))| Profile {
            member,
            started_at_ms,
            version,
            left,
            name,
            payload: payload.into(),
        },
    )
}

fn any_message() -> impl Strategy<Value = Message<SwimIdentity>> {
    (0..10, any::<u8>(), any_identity()).prop_map(|(kind, probe_number, id)| match kind {
        0 => Message::Ping(probe_number),
        1 => Message::Ack(probe_number),
        2 => Message::PingReq { target: id, probe_number },
        3 => Message::IndirectPing { origin: id, probe_number },
        4 => Message::IndirectAck { target: id, probe_number },
        5 => Message::ForwardedAck { origin: id, probe_number },
        6 => Message::Announce,
        7 => Message::Feed,
        8 => Message::Gossip,
        _ => Message::TurnUndead,
    })
}

/// A well-formed packet from any member, about any member, to any member.
fn any_packet() -> impl Strategy<Value = (MemberId, Vec<u8>)> {
    let header = (any_identity(), any::<u16>(), any_identity(), any_message());
    let about = (any_identity(), any::<u16>(), 0usize..3);
    let entries = proptest::collection::vec((any_member(), 0u64..5), 0..4);
    let profiles = proptest::collection::vec(any_profile(), 0..2);
    (header, proptest::collection::vec(about, 0..4), entries, profiles).prop_map(
        |(header, about, entries, profiles)| {
            let (src, src_incarnation, mut dst, message) = header;
            if dst.member.node == member(0, 1).node {
                dst = SwimIdentity {
                    member: member(0, 1),
                    addr: addr(0),
                    started_at_ms: 1_000_000,
                    renewals: dst.renewals % 2,
                };
            }
            let mut swim = Vec::new();
            let bare = matches!(message, Message::Announce | Message::TurnUndead);
            SwimCodec.encode_header(&Header { src, src_incarnation, dst, message }, &mut swim).unwrap();
            if !bare {
                swim.extend((about.len() as u16).to_be_bytes());
                for (identity, incarnation, state) in about {
                    let state = [foca::State::Alive, foca::State::Suspect, foca::State::Down][state];
                    SwimCodec.encode_member(&foca::Member::new(identity, incarnation, state), &mut swim).unwrap();
                }
            }
            let mut writer = PacketWriter::new(1200_usize.saturating_sub(swim.len()).max(3));
            entries.into_iter().for_each(|(member, version)| writer.entry(ProfileVersion { member, version }));
            profiles.iter().for_each(|profile| writer.profile(profile));
            (src.member, writer.finish(&swim).to_vec())
        },
    )
}

fn settled() -> (Timestamp, Swim) {
    let mut network = Network::met(3, SwimSettings::lan(), 5);
    (network.now, network.nodes.swap_remove(0))
}

fn feed(packets: impl Iterator<Item = (MemberId, Vec<u8>)>) {
    let (mut now, mut swim) = settled();
    for (from, packet) in packets {
        now = now + std::time::Duration::from_millis(7);
        let _ = swim.handle_packet(now, from, &packet);
        if swim.next_timer().is_some_and(|at| at <= now) {
            swim.tick(now);
        }
        while let Some(output) = swim.poll_output() {
            if let SwimOutput::Packet { bytes, .. } = output {
                assert!(bytes.len() <= 1200);
                assert!(MembershipPacket::read(&bytes).is_ok());
            }
        }
        assert!(swim.members().iter().all(|seen| seen.id.node != swim.local().id.node));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn profiles_and_entries_survive_the_way(profile in any_profile(), version: u64) {
        let mut writer = PacketWriter::new(1200);
        writer.profile(&profile);
        writer.entry(ProfileVersion { member: profile.member, version });
        let bytes = writer.finish(b"rest");
        let packet = MembershipPacket::read(&bytes).unwrap();
        prop_assert_eq!(&packet.entries, &[ProfileVersion { member: profile.member, version }]);
        prop_assert_eq!(&packet.profiles, &[profile]);
        prop_assert_eq!(packet.swim, b"rest");
    }

    #[test]
    fn headers_survive_the_way(src in any_identity(), src_incarnation: u16, dst in any_identity(), message in any_message()) {
        let header = Header { src, src_incarnation, dst, message };
        let mut bytes = Vec::new();
        SwimCodec.encode_header(&header, &mut bytes).unwrap();
        let mut rest = &bytes[..];
        prop_assert_eq!(get_header(&mut rest).unwrap(), header.clone());
        prop_assert!(rest.is_empty());
        for end in 0..bytes.len() {
            prop_assert_eq!(get_header(&mut &bytes[..end]), Err(WireError::Truncated));
        }
        let mut small = bytes::BufMut::limit(Vec::new(), bytes.len() - 1);
        prop_assert_eq!(SwimCodec.encode_header(&header, &mut small), Err(WireError::NoRoom));
    }

    #[test]
    fn garbage_never_panics(packets in proptest::collection::vec((any_member(), proptest::collection::vec(any::<u8>(), 0..300)), 1..8)) {
        feed(packets.into_iter());
    }

    #[test]
    fn well_formed_lies_never_panic(packets in proptest::collection::vec(any_packet(), 1..40)) {
        feed(packets.into_iter());
    }

    #[test]
    fn mutilated_packets_never_panic(
        packets in proptest::collection::vec((any_packet(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..12)
    ) {
        feed(packets.into_iter().map(|((from, mut packet), at, byte, cut)| {
            let at = at.index(packet.len());
            if cut { packet.truncate(at) } else { packet[at] = byte }
            (from, packet)
        }));
    }
}
