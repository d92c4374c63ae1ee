use artillery_core::{Incarnation, NodeId};

use super::*;
use crate::control::formation::FormationPhase;

fn free(seen: usize, expect: u16) -> Facts {
    let phase = FormationPhase::Free { seen, expect, expected_by: None, searches: false, refused: None };
    Facts { formation: Some(FormationFacts { phase, only_joins: false, after: None }), ..Facts::default() }
}

fn node() -> MemberId {
    let incarnation = Incarnation { store: 1, starts: 1 };
    MemberId { node: NodeId::from_name("n"), incarnation }
}

fn member() -> Facts {
    Facts { has_cluster: true, is_led: true, ..Facts::default() }
}

fn chain() -> ChainFacts {
    ChainFacts { chain: ChainId(0), is_joiner: false, received: None, is_open: true, is_leased: true, halted: None }
}

fn voters(there: &[bool]) -> Vec<(String, bool)> {
    there.iter().enumerate().map(|(n, &there)| (format!("n{n}"), there)).collect()
}

#[test]
fn a_free_node_counts_the_nodes_that_are_missing() {
    assert_eq!(waiting_for(&free(1, 3)), [WaitingFor::MoreNodes { seen: 1, expected: 3, by: None }]);
    assert!(line(&waiting_for(&free(1, 3))).contains("2 more nodes"));
    assert!(line(&waiting_for(&free(2, 3))).contains("1 more node is needed"));
    assert_eq!(waiting_for(&free(3, 3)), [WaitingFor::Agreement]);
    let mut joins = free(2, 3);
    joins.formation.as_mut().unwrap().only_joins = true;
    assert_eq!(waiting_for(&joins), [WaitingFor::ExistingCluster { free: 1, has_directory: false }]);
}

#[test]
fn a_node_whose_cluster_was_given_up_waits_for_the_next_one() {
    let mut joins = free(2, 3);
    let formation = joins.formation.as_mut().unwrap();
    (formation.only_joins, formation.after) = (true, Some(ClusterId(7)));
    assert_eq!(waiting_for(&joins), [WaitingFor::Successor { after: ClusterId(7) }]);
    joins.formation.as_mut().unwrap().only_joins = false;
    assert_eq!(
        waiting_for(&joins),
        [WaitingFor::MoreNodes { seen: 2, expected: 3, by: None }],
        "it creates the next one"
    );
}

#[test]
fn a_member_that_has_met_another_cluster_names_it() {
    use artillery_proto::control::encounter::Party;
    let party = |cluster| Party { cluster: ClusterId(cluster), holds_data: true };
    let met = Encountered { mine: party(1), is_fixed: false, all_state: true, other: party(2) };
    let waits = waiting_for(&Facts { chains: vec![chain()], another_cluster: Some(met), ..member() });
    let [WaitingFor::AnotherCluster { other, why }] = &waits[..] else { panic!("{waits:?}") };
    assert_eq!(*other, ClusterId(2));
    for of in [1, 2].map(|id| format!("ctl give-up --accept-loss {}", ClusterId(id))) {
        assert!(why.contains(&of), "{why}");
    }
}

#[test]
fn only_a_refusal_for_other_settings_is_shown_as_one() {
    let with = |seen, expect, by: Option<MemberId>, reason| {
        let refused = Some((node(), reason));
        let phase = FormationPhase::Free { seen, expect, expected_by: by, searches: false, refused };
        waiting_for(&Facts {
            formation: Some(FormationFacts { phase, only_joins: false, after: None }),
            ..Facts::default()
        })
    };
    assert_eq!(with(3, 3, None, RejectReason::Settings), [WaitingFor::OtherSettings { node: node() }]);
    let missing = |expected, by| [WaitingFor::MoreNodes { seen: 2, expected, by }];
    assert_eq!(with(2, 3, None, RejectReason::Joins), missing(3, None), "a node that only joins creates no cluster");
    assert_eq!(with(2, 4, Some(node()), RejectReason::Expects(4)), missing(4, Some(node())));
    for reason in [RejectReason::Joins, RejectReason::Expects(2), RejectReason::Busy, RejectReason::Over] {
        assert_eq!(with(3, 3, None, reason), [WaitingFor::Agreement], "{reason}");
    }
}

#[test]
fn a_refusal_is_named_from_this_nodes_side() {
    use artillery_core::error::Refusal;
    let name = |here: &str, there: &str| Refusal::DifferentClusterName { here: here.into(), there: there.into() };
    let said = |reason| WaitingFor::Refused(RefusedPeer::new(([127, 0, 0, 1], 7).into(), reason)).to_string();
    let differs = "the cluster's name differs: \"theirs\" there, \"ours\" here";
    assert!(said(ConnectError::Refused(name("theirs", "ours"))).contains(differs));
    assert!(said(ConnectError::Rejected(name("ours", "theirs"))).contains(differs));
    for reason in [ConnectError::Untrusted("x".into()), ConnectError::Rejected(Refusal::Untrusted("x".into()))] {
        assert!(said(reason).contains("its secret or certificates differ"));
    }
    assert!(!said(ConnectError::Refused(Refusal::Other("a\nb\u{1b}[2J".into()))).contains(['\n', '\u{1b}']));
}

#[test]
fn only_without_a_majority_the_voters_are_the_reason() {
    let with = |there: &[bool]| waiting_for(&Facts { voters: voters(there), ..member() });
    let away = vec!["n1".to_owned(), "n2".to_owned()];
    assert_eq!(with(&[true, false, false]), [WaitingFor::Majority { away, voters: 3 }]);
    assert_eq!(with(&[true, true, false]), [WaitingFor::Confirmation]);
    assert!(matches!(&with(&[true, false])[..], [WaitingFor::Majority { .. }]));
    assert_eq!(waiting_for(&Facts { is_led: false, voters: voters(&[true; 3]), ..member() }), [WaitingFor::Leader]);
}

#[test]
fn only_a_spare_waits_for_the_answer_of_a_member() {
    let with = |is_spare, is_confirmed, chains| waiting_for(&Facts { is_spare, is_confirmed, chains, ..member() });
    assert_eq!(with(false, false, vec![chain()]), [WaitingFor::Confirmation]);
    assert_eq!(with(true, false, Vec::new()), [WaitingFor::Confirmation], "a spare asks members after that");
    assert_eq!(with(true, true, Vec::new()), [WaitingFor::Member]);
    assert!(line(&with(false, false, vec![chain()])).contains("not yet confirmed"));
}

#[test]
fn a_chain_says_what_it_lacks() {
    let with = |chain| waiting_for(&Facts { chains: vec![chain], ..member() });
    let id = ChainId(0);
    assert_eq!(with(ChainFacts { is_open: false, ..chain() }), [WaitingFor::NotOpen { chain: id }]);
    assert_eq!(with(ChainFacts { is_leased: false, ..chain() }), [WaitingFor::NoLease { chain: id }]);
    let copies = ChainFacts { is_joiner: true, received: Some(7), ..chain() };
    assert_eq!(with(copies), [WaitingFor::Copy { chain: id, records: Some(7) }]);
}

#[test]
fn a_node_that_serves_waits_for_nothing() {
    let serves = Facts { serves: true, voters: voters(&[false; 3]), ..Facts::default() };
    assert!(waiting_for(&serves).is_empty());
    let ended = Facts { ended: Some("it left".into()), ..serves };
    assert_eq!(waiting_for(&ended), [WaitingFor::Stopped { why: "it left".into() }]);
}

#[test]
fn reports_are_due_after_three_seconds_and_then_every_thirty() {
    let at = |seconds: u64| Timestamp::ZERO + Duration::from_secs(seconds);
    let mut reminder = Reminder::default();
    let due: Vec<_> = (0..70).filter(|&second| reminder.is_due(at(second), false)).collect();
    assert_eq!(due, [3, 33, 63]);
    assert!(!reminder.is_due(at(70), true) && !reminder.is_due(at(71), false));
    assert!(reminder.is_due(at(74), false), "a node that served in between begins again");
}
