//! Messages of formation, each from one of three nodes, to a node that could form a cluster with two of them.
#![no_main]

use std::time::Duration;

use artillery_core::{Frame, Incarnation, MemberId, NodeId, Timestamp};
use artillery_proto::{
    control::{
        ChainSettings, NodeInfo,
        formation::{Formation, FormationInput, FormationSettings, FounderCandidate},
    },
    wire::formation as wire,
};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fn founder(n: u8) -> NodeInfo {
    let id = MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: n.into(), starts: 1 } };
    NodeInfo { id, name: format!("node-{n}"), addrs: vec![([127, 0, 0, 1], 7000 + u16::from(n)).into()], host: None }
}

fn frame(header: Bytes) -> Frame {
    Frame { header, body: Bytes::new() }
}

fuzz_target!(|data: &[u8]| {
    let settings = FormationSettings::new("fuzz", 3, ChainSettings::default());
    let mut formation = Formation::new(founder(0), settings, 7).expect("good settings");
    let mut now = Timestamp::ZERO;
    for n in 1..3 {
        formation.handle(now, FormationInput::Seen(FounderCandidate { founder: founder(n), cluster: None }));
    }
    let mut rest = data;
    while let [from, len, bytes @ ..] = rest {
        let (bytes, behind) = bytes.split_at(usize::from(*len).min(bytes.len()));
        rest = behind;
        now = now + Duration::from_millis(50);
        formation.handle(now, FormationInput::Tick);
        if let Ok(message) = wire::decode(&frame(Bytes::copy_from_slice(bytes))) {
            let again = wire::encode(&message).expect("a decoded message can be encoded");
            assert_eq!(wire::decode(&frame(again)).as_ref(), Ok(&message));
            formation.handle(now, FormationInput::Receive { from: founder(from % 3 + 1).id, message });
        }
        let outputs = std::iter::from_fn(|| formation.poll_output()).count();
        assert!(outputs <= 100, "{outputs} outputs after one message");
    }
});
