//! Bytes of wire format 1 for forming a cluster and for its configuration; `wire_vectors.rs` has those of chains.

use std::{fs, path::PathBuf, time::Duration};

use artillery_core::{Frame, internal::frame::FrameDecoder};
use artillery_proto::{
    ClusterId, Incarnation, MemberId, NodeId,
    control::{
        Bootstrap, ChainSettings, Configs, History, NodeInfo, Timing,
        formation::{FormationMessage, Proposal, ProposalProgress},
        message::Renewed,
    },
    message::control::ControlAnswer,
    wire::{
        control::{decode_answer, encode_answer},
        formation,
    },
};
use bytes::Bytes;

fn founder(n: u8) -> NodeInfo {
    let id = MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: 7, starts: 1 } };
    NodeInfo { id, name: format!("n{n}"), addrs: vec![([127, 0, 0, 1], 7400 + u16::from(n)).into()] }
}

fn founding() -> Bootstrap {
    Bootstrap {
        cluster: ClusterId(1 << 70),
        name: "shop".to_owned(),
        members: vec![founder(1), founder(2)],
        settings: ChainSettings::default(),
        timing: Timing {
            lease: Duration::from_millis(1500),
            drift_ppm: 10_000,
            suspect: Duration::from_millis(750),
            slow: Duration::from_secs(2),
        },
        succeeds: vec![ClusterId(1 << 69)],
    }
}

fn formation_messages() -> [(&'static str, FormationMessage); 2] {
    let proposal = Box::new(Proposal { proposer: founder(1).id, attempt: 3, founding: founding() });
    let progress = ProposalProgress { accepted: [0].into(), ..ProposalProgress::default() };
    [
        ("formation-propose", FormationMessage::Propose { proposal, progress }),
        ("formation-formed", FormationMessage::Formed(Box::new(founding()))),
    ]
}

fn renewed() -> ControlAnswer {
    let configs = Configs::of(&founding());
    let renewed = Renewed {
        number: 251,
        lease: Some(Duration::from_millis(1500)),
        leader: Some(founder(1).id),
        configs: Some(Box::new(configs)),
        settled: Ok(()),
        released: false,
        leave: None,
        farewell: None,
        close: Vec::new(),
    };
    ControlAnswer::Renewed(Some(History::first(ClusterId(1 << 70))), Box::new(renewed))
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
    lines.collect()
}

/// Checks that the vector holds these bytes, and decodes their frame.
fn compared(name: &str, header: Bytes, body: Bytes) -> Frame {
    let sent = Frame { header, body }.to_bytes();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire-1").join(name).with_extension("hex");
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; it would hold:\n{}", path.display(), hex(&sent)));
    assert_eq!(hex(&sent), text, "{name} is sent as other bytes than before");
    let mut decoder = FrameDecoder::new(1 << 20);
    decoder.push(&sent);
    decoder.next_frame().expect("a frame").expect("a whole frame")
}

#[test]
fn formation_vectors_are_understood_and_sent() {
    for (name, message) in formation_messages() {
        let frame = compared(name, formation::encode(&message).expect("it can be encoded"), Bytes::new());
        assert_eq!(formation::decode(&frame), Ok(message), "{name}");
    }
}

#[test]
fn an_answer_with_configurations_is_understood_and_sent() {
    let encoded = encode_answer(&renewed()).expect("it can be encoded");
    let frame = compared("control-renewed", encoded.header, encoded.body);
    assert_eq!(decode_answer(&frame), Ok(renewed()));
}
