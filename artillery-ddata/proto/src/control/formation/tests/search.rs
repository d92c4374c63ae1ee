//! How long a node searches for others, and how many founders it waits for.

use std::time::Duration;

use super::{
    super::*,
    network::founder,
    rules::{NOW, input, proposal, refused, seen, settings, tell},
};
use crate::{control::ChainSettings, fixtures::incarnation};

fn searching(expect: u16) -> Formation {
    let settings = FormationSettings::new("shop", expect, ChainSettings::default());
    Formation::new(founder(incarnation(1, 1)), settings, 1).unwrap()
}

/// Runs the ticks of a node until it has formed or proposed a cluster, for at most ten minutes. Returns how long it
/// took.
fn until_proposal(node: &mut Formation) -> Option<Duration> {
    while let (FormationPhase::Free { .. }, Some(at)) = (node.phase(), node.next_tick()) {
        let now = at.max(NOW);
        if now - NOW > Duration::from_secs(600) {
            return None;
        }
        input(node, now, FormationInput::Tick);
        if !matches!(node.phase(), FormationPhase::Free { .. }) {
            return Some(now - NOW);
        }
    }
    None
}

#[test]
fn a_node_looks_for_others_before_it_founds_a_cluster_alone() {
    let mut node = searching(1);
    let defaults = settings(1);
    assert_eq!(until_proposal(&mut node), Some(defaults.search_seeds / 5), "twice the search");
    assert!(node.founding().is_some());

    let mut node = searching(1);
    input(&mut node, NOW, FormationInput::SeedsMissing(true));
    assert_eq!(until_proposal(&mut node), Some(defaults.search_seeds), "while a seed is silent");
}

#[test]
fn a_seed_answers_before_the_nodes_that_it_knows_are_seen() {
    let mut node = searching(1);
    input(&mut node, NOW, FormationInput::SeedsMissing(true));
    let mut now = NOW;
    while now - NOW < Duration::from_secs(5) {
        now = node.next_tick().unwrap().max(now);
        input(&mut node, now, FormationInput::Tick);
    }
    input(&mut node, now, FormationInput::SeedsMissing(false));
    assert!(matches!(node.phase(), FormationPhase::Free { .. }));
    let took = until_proposal(&mut node).unwrap() - (now - NOW);
    assert!(took >= Duration::from_millis(900), "{took:?}");
}

#[test]
fn a_node_whose_only_other_founder_ended_begins_anew() {
    let mut node = searching(1);
    input(&mut node, NOW, seen(2, None));
    until_proposal(&mut node).unwrap();
    input(&mut node, NOW, FormationInput::Gone(incarnation(2, 1)));
    let mut outputs = Vec::new();
    while let Some(now) = node.next_tick().filter(|&now| now - NOW < Duration::from_secs(60)) {
        outputs = input(&mut node, now, FormationInput::Tick);
    }
    assert_eq!(outputs.last(), Some(&FormationOutput::Stuck));
    assert_eq!(node.phase(), FormationPhase::Replaced);
}

#[test]
fn of_two_nodes_with_different_settings_only_the_lower_one_forms_a_cluster_without_the_other() {
    for (reason, other, alone) in [
        (RejectReason::Settings, 2, true),
        (RejectReason::Settings, 0, false),
        (RejectReason::Joins, 2, true),
        (RejectReason::Joins, 0, true),
    ] {
        let mut node = searching(1);
        input(&mut node, NOW, seen(other, None));
        until_proposal(&mut node).unwrap();
        let FormationPhase::Accepted(id) = node.phase() else { panic!("it proposed") };
        tell(&mut node, incarnation(other, 1), FormationMessage::Refused { id, reason });
        until_proposal(&mut node);
        assert_eq!(node.founding().is_some(), alone, "{reason:?} of node {other}");
    }
}

#[test]
fn a_pause_is_no_search() {
    let mut node = searching(1);
    input(&mut node, NOW, FormationInput::Tick);
    input(&mut node, NOW + Duration::from_secs(60), FormationInput::Tick);
    assert!(node.founding().is_none(), "a paused process sees nothing");

    // Late in its search.
    let mut node = searching(1);
    let mut now = NOW;
    while now - NOW < Duration::from_millis(1900) {
        now = node.next_tick().unwrap().max(NOW);
        input(&mut node, now, FormationInput::Tick);
    }
    input(&mut node, now + Duration::from_secs(3600), FormationInput::Tick);
    assert!(node.founding().is_none(), "the search restarts");
}

#[test]
fn a_node_that_was_seen_takes_part() {
    let mut node = searching(1);
    input(&mut node, NOW, FormationInput::Tick);
    input(&mut node, NOW, seen(2, None));
    assert!(matches!(node.phase(), FormationPhase::Free { searches: true, .. }));
    let took = until_proposal(&mut node).unwrap();
    assert!(took >= Duration::from_secs(1), "it looks for more: {took:?}");
    assert_eq!(node.named().count(), 2);
}

#[test]
fn nodes_that_keep_appearing_postpone_a_proposal_for_a_while_only() {
    let mut node = searching(1);
    let (mut now, step) = (NOW, Duration::from_millis(50));
    for other in 2..250 {
        input(&mut node, now, seen(other, None));
        input(&mut node, now, FormationInput::Tick);
        if matches!(node.phase(), FormationPhase::Accepted(_)) {
            return;
        }
        now = now + step;
    }
    panic!("it never proposed");
}

#[test]
fn the_largest_number_that_a_node_expects_counts() {
    let mut node = searching(2);
    input(&mut node, NOW, seen(2, None));
    until_proposal(&mut node).unwrap();
    let FormationPhase::Accepted(id) = node.phase() else { panic!("it proposed") };
    tell(&mut node, incarnation(2, 1), FormationMessage::Refused { id, reason: RejectReason::Expects(3) });
    let by = Some(incarnation(2, 1));
    assert!(
        matches!(node.phase(), FormationPhase::Free { expect: 3, expected_by, .. } if expected_by == by),
        "{:?}",
        node.phase()
    );
    assert_eq!(until_proposal(&mut node), None);
    // It accepts a proposal of two, the number that it expects itself: the other node's number may be out of date.
    let mut small = proposal(1);
    small.founding.members.retain(|founder| founder.id != incarnation(3, 1));
    let message = FormationMessage::Propose { proposal: Box::new(small), progress: ProposalProgress::default() };
    assert_eq!(refused(&tell(&mut node, incarnation(2, 1), message)), None);
    assert!(matches!(node.phase(), FormationPhase::Accepted(_)));
}

#[test]
fn an_expectation_ends_with_its_node() {
    let mut node = searching(2);
    input(&mut node, NOW, seen(2, None));
    until_proposal(&mut node).unwrap();
    let FormationPhase::Accepted(id) = node.phase() else { panic!("it proposed") };
    tell(&mut node, incarnation(2, 1), FormationMessage::Refused { id, reason: RejectReason::Expects(3) });
    // The other node ends: two are enough.
    input(&mut node, NOW, FormationInput::Gone(incarnation(2, 1)));
    input(&mut node, NOW, seen(4, None));
    assert!(until_proposal(&mut node).is_some());
}

#[test]
fn an_expectation_that_makes_no_sense_is_ignored() {
    for nonsense in [0, MAX_FOUNDERS + 1, u16::MAX] {
        let mut node = searching(2);
        input(&mut node, NOW, seen(2, None));
        until_proposal(&mut node).unwrap();
        let FormationPhase::Accepted(id) = node.phase() else { panic!("it proposed") };
        tell(&mut node, incarnation(2, 1), FormationMessage::Refused { id, reason: RejectReason::Expects(nonsense) });
        assert!(matches!(node.phase(), FormationPhase::Free { expect: 2, .. }));
    }
}

#[test]
fn a_proposal_names_no_more_than_sixteen_unless_more_are_expected() {
    for (expect, named) in [(1, 16), (3, 16), (20, 20)] {
        let mut node = searching(expect);
        (2..40).for_each(|other| drop(input(&mut node, NOW, seen(other, None))));
        until_proposal(&mut node).unwrap();
        assert_eq!(node.named().count(), named);
    }
}
