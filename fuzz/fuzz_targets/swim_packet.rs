//! Membership packets: any bytes, and real packets with bytes overwritten, to a member that knows another one.
#![no_main]

use std::time::Duration;

use artillery_core::{
    Incarnation, MemberId, NodeId, Timestamp,
    config::SwimSettings,
    internal::membership::{LocalMember, Swim, SwimOutput, SwimPeer},
};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fn local(n: u8) -> LocalMember {
    LocalMember {
        id: MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: n.into(), starts: 1 } },
        name: format!("node-{n}"),
        addr: ([127, 0, 0, 1], 7000 + u16::from(n)).into(),
        payload: Bytes::from_static(b"payload"),
        started_at_ms: 1,
    }
}

fn packets(from: &mut Swim) -> Vec<Bytes> {
    std::iter::from_fn(|| from.poll_output())
        .filter_map(|output| match output {
            SwimOutput::Packet { bytes, .. } => Some(bytes),
            _ => None,
        })
        .collect()
}

fuzz_target!(|data: &[u8]| {
    let [kind, at, bytes @ ..] = data else { return };
    let (one, two) = (local(1), local(2));
    let (one_id, two_id) = (one.id, two.id);
    let peer = SwimPeer { id: two_id, addr: two.addr };
    let mut now = Timestamp::ZERO;
    let mut one = Swim::new(one, SwimSettings::lan(), 1).expect("good settings");
    let mut two = Swim::new(two, SwimSettings::lan(), 2).expect("good settings");
    one.announce_to(now, peer);
    // Some correct rounds first, so that the bytes meet a member in every state that a few rounds can lead to.
    for round in 0..kind >> 1 & 15 {
        for packet in packets(&mut one) {
            let _ = two.handle_packet(now, one_id, &packet);
        }
        for packet in packets(&mut two) {
            let mut packet = packet.to_vec();
            if kind & 1 == 1 && round == at >> 4 {
                for (there, byte) in packet.iter_mut().skip((at & 15) as usize * 8).zip(bytes) {
                    *there ^= byte;
                }
            }
            let _ = one.handle_packet(now, two_id, &packet);
        }
        now = now + Duration::from_millis(300);
        one.tick(now);
        two.tick(now);
    }
    let _ = one.handle_packet(now, two_id, bytes);
    for packet in packets(&mut one) {
        assert!(packet.len() <= SwimSettings::lan().max_packet, "a packet above the limit");
    }
    assert!(one.members().len() <= 300, "members come from packets, a few from each");
    one.tick(now + Duration::from_secs(1));
});
