use proptest::prelude::*;

use super::*;
use crate::fixtures::id;

const MINE: ClusterId = ClusterId(10);

fn party(cluster: u128, holds_data: bool) -> Party {
    Party { cluster: ClusterId(cluster), holds_data }
}

fn addr() -> SocketAddr {
    ([127, 0, 0, 1], 7).into()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

fn met(others: &[Party]) -> Encounters {
    let mut encounters = Encounters::new(MINE, false);
    for time in [at(0), at(5)] {
        others.iter().for_each(|&other| encounters.meet(time, other, format!("n{}", other.cluster.0), addr()));
    }
    encounters
}

proptest! {
    /// Each of two clusters may learn of the other one's data late.
    #[test]
    fn of_two_clusters_at_most_one_gives_way(a: bool, b: bool, a_heard: bool, b_heard: bool, ids: (u8, u8)) {
        prop_assume!(ids.0 != ids.1);
        let (first, second) = (party(ids.0.into(), a), party(ids.1.into(), b));
        let known = |of: Party, heard: bool| Party { holds_data: of.holds_data && heard, ..of };
        let gives = first.gives_way(known(second, b_heard), Guards::ALL);
        let is_given = second.gives_way(known(first, a_heard), Guards::ALL);
        prop_assert!(!(gives && is_given));
        prop_assert!(!(gives && first.holds_data || is_given && second.holds_data));
        let settles = first.gives_way(second, Guards::ALL) || second.gives_way(first, Guards::ALL);
        prop_assert_eq!(settles, !(a && b), "once both know everything");
    }

    #[test]
    fn statements_survive_their_bytes(holds_data: bool, met in prop::collection::vec(any::<(u128, bool)>(), 0..=MAX_ENCOUNTERS)) {
        let met = met.into_iter().map(|(cluster, holds_data)| party(cluster, holds_data)).collect();
        let statement = Statement { holds_data, met };
        let bytes = statement.to_bytes();
        prop_assert_eq!(Statement::from_bytes(&bytes), Some(statement));
    }

    #[test]
    fn other_bytes_are_no_statement(bytes: Vec<u8>) {
        let _ = Statement::from_bytes(&bytes);
        let mut bytes = bytes;
        bytes.splice(..0, *b"met\x01");
        let _ = Statement::from_bytes(&bytes);
    }
}

#[test]
fn an_empty_cluster_gives_way_to_data_and_to_a_higher_id() {
    assert_eq!(met(&[party(9, false)]).outranked(Guards::ALL), None);
    assert_eq!(met(&[party(11, false)]).outranked(Guards::ALL), Some(ClusterId(11)));
    assert_eq!(met(&[party(9, true), party(11, false)]).outranked(Guards::ALL), Some(ClusterId(9)));
    let mut with_data = met(&[party(9, true), party(11, true)]);
    with_data.hold_data();
    assert_eq!(with_data.outranked(Guards::ALL), None);
}

#[test]
fn only_a_cluster_with_data_is_ready_beside_an_empty_one() {
    let ready = |holds_data: bool, others: &[Party]| {
        let mut encounters = met(others);
        if holds_data {
            encounters.hold_data();
        }
        encounters.unready().is_none()
    };
    assert!(ready(false, &[]) && ready(true, &[]));
    assert!(ready(true, &[party(11, false)]));
    assert!(!ready(true, &[party(11, false), party(9, true)]));
    assert!(
        !ready(false, &[party(11, false)]) && !ready(false, &[party(9, false)]) && !ready(false, &[party(9, true)])
    );
}

#[test]
fn a_cluster_that_is_met_no_longer_is_forgotten() {
    let mut encounters = met(&[party(11, true)]);
    encounters.forget(at(19));
    encounters.meet(at(19), party(11, false), "n11".into(), addr());
    encounters.forget(at(33));
    assert_eq!(encounters.meetings()[0].other, party(11, true), "a statement of data is permanent");
    encounters.forget(at(34));
    assert_eq!((encounters.meetings(), encounters.unready()), (vec![], None));
}

#[test]
fn what_other_nodes_have_met_counts_until_they_take_it_back() {
    let (node, mut encounters) = (id(1).node, Encounters::new(MINE, false));
    let statement = Statement { holds_data: true, met: vec![party(11, true), party(10, true)] };
    encounters.tell(node, "b", Some(statement));
    let meetings = encounters.meetings();
    assert_eq!((meetings.len(), meetings[0].other, meetings[0].by.as_deref()), (1, party(11, true), Some("b")));
    assert!(encounters.mine().holds_data && encounters.unready().is_some());
    assert!(encounters.statement().met.is_empty(), "each node states only its own meetings");
    encounters.forget(at(100));
    assert!(encounters.unready().is_some());
    encounters.tell(node, "b", None);
    assert!(encounters.unready().is_none() && encounters.mine().holds_data);
}

#[test]
fn a_cluster_gives_way_only_to_one_that_was_met_for_a_while() {
    let mut encounters = Encounters::new(MINE, false);
    for time in [at(0), at(4)] {
        encounters.meet(time, party(11, false), "n11".into(), addr());
    }
    assert!(encounters.unready().is_some() && encounters.statement().met.is_empty());
    assert_eq!(encounters.outranked(Guards::ALL), None);
    encounters.meet(at(5), party(11, false), "n11".into(), addr());
    assert_eq!(encounters.outranked(Guards::ALL), Some(ClusterId(11)));
    assert_eq!(encounters.statement().met.len(), 1);
}

#[test]
fn a_cluster_with_a_node_of_an_earlier_release_neither_gives_way_nor_is_given_up() {
    let mut encounters = met(&[party(11, true)]);
    assert!(encounters.outranked(Guards::ALL).is_some() && encounters.may_be_given_up());
    encounters.tell(id(1).node, "b", None);
    assert!(encounters.outranked(Guards::ALL).is_none() && !encounters.may_be_given_up());
    encounters.retain(|_| false);
    assert!(encounters.outranked(Guards::ALL).is_some());
}

#[test]
fn a_cluster_is_given_up_only_for_one_with_data() {
    assert!(!met(&[]).may_be_given_up() && !met(&[party(11, false)]).may_be_given_up());
    assert!(met(&[party(9, true)]).may_be_given_up());
}

#[test]
fn a_fixed_cluster_counts_as_one_with_data() {
    let mut encounters = Encounters::new(MINE, true);
    encounters.meet(at(0), party(11, false), "n11".into(), addr());
    assert!(encounters.mine().holds_data && encounters.unready().is_none());
    encounters.meet(at(9), party(11, true), "n11".into(), addr());
    assert!(encounters.unready().is_some() && encounters.outranked(Guards::ALL).is_none());
    assert!(!encounters.may_be_given_up());
}

#[test]
fn a_node_that_has_joined_is_no_stranger() {
    let mut encounters = met(&[party(11, false), party(12, false)]);
    encounters.tell(id(1).node, "n11", None);
    assert_eq!(encounters.meetings().len(), 1);
}

#[test]
fn the_number_of_clusters_is_bounded() {
    let all: Vec<_> = (20..40).map(|cluster| party(cluster, true)).collect();
    let mut encounters = met(&all);
    assert_eq!(encounters.meetings().len(), MAX_ENCOUNTERS);
    encounters.meet(at(3), party(20, true), "n20".into(), addr());
    encounters.meet(at(3), party(10, true), "n20".into(), addr());
    assert_eq!(encounters.meetings().len(), MAX_ENCOUNTERS, "a cluster doesn't meet itself");
}

#[test]
fn the_reason_names_both_commands() {
    let mut encounters = met(&[party(11, true)]);
    encounters.hold_data();
    let text = encounters.unready().unwrap().to_string();
    for cluster in [MINE, ClusterId(11)] {
        assert!(text.contains(&format!("ctl give-up --accept-loss {cluster}")), "{text}");
    }
}
