//! Test vectors of wire format 1 for formation and configuration; `wire_vectors.rs` has those for chains.

use std::time::Duration;

use artillery_core::Frame;
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

use crate::vectors::{check, check_listed};

fn founder(n: u8) -> NodeInfo {
    let id = MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: 7, starts: 1 } };
    NodeInfo { id, name: format!("n{n}"), addrs: vec![([127, 0, 0, 1], 7400 + u16::from(n)).into()], host: None }
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

fn founding_with_a_host() -> Bootstrap {
    let mut founding = founding();
    founding.members[1].host = Some("n2.example:7402".to_owned());
    founding
}

fn formation_messages() -> [(&'static str, FormationMessage); 3] {
    let proposal = Box::new(Proposal { proposer: founder(1).id, attempt: 3, founding: founding() });
    let progress = ProposalProgress { accepted: [0].into(), ..ProposalProgress::default() };
    [
        ("formation-propose", FormationMessage::Propose { proposal, progress }),
        ("formation-formed", FormationMessage::Formed(Box::new(founding()))),
        ("formation-formed-host", FormationMessage::Formed(Box::new(founding_with_a_host()))),
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
        position: None,
    };
    ControlAnswer::Renewed(Some(History::first(ClusterId(1 << 70))), Box::new(renewed))
}

#[test]
fn formation_vectors_are_understood_and_sent() {
    for (name, message) in formation_messages() {
        let header = formation::encode(&message).expect("it can be encoded");
        check(name, &message, &Frame { header, body: Bytes::new() }, formation::decode);
    }
    check_listed(&["formation-"], &formation_messages().map(|(name, _)| name));
}

#[test]
fn an_answer_with_configurations_is_understood_and_sent() {
    let encoded = encode_answer(&renewed()).expect("it can be encoded");
    let sent = Frame { header: encoded.header, body: encoded.body };
    check("control-renewed", &renewed(), &sent, decode_answer);
}
