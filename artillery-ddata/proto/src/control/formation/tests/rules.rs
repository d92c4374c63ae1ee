//! One rule per test.

use std::{sync::Arc, time::Duration};

use super::{
    super::*,
    network::{Network, founder},
};
pub(super) use crate::fixtures::incarnation;
use crate::{
    ClusterId,
    control::{ChainSettings, Timing},
};

pub(super) const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

pub(super) fn settings(expect: u16) -> FormationSettings {
    FormationSettings { search: Duration::ZERO, ..FormationSettings::new("shop", expect, ChainSettings::default()) }
}

pub(super) fn formation(node: u8, expect: u16) -> Formation {
    Formation::new(founder(incarnation(node, 1)), settings(expect), u128::from(node)).unwrap()
}

pub(super) fn founding(cluster: u128, members: &[MemberId]) -> Bootstrap {
    let members = members.iter().map(|&id| founder(id)).collect();
    Bootstrap::new(ClusterId(cluster), "shop", members)
}

/// A proposal of founder 2 that also names 1 and 3.
pub(super) fn proposal(attempt: u64) -> Proposal {
    let founding = founding(100 + u128::from(attempt), &[incarnation(1, 1), incarnation(2, 1), incarnation(3, 1)]);
    Proposal { proposer: incarnation(2, 1), attempt, founding }
}

pub(super) fn accepted(founders: &[u16]) -> ProposalProgress {
    ProposalProgress { accepted: founders.iter().copied().collect(), ..ProposalProgress::default() }
}

fn propose(proposal: &Proposal) -> FormationMessage {
    FormationMessage::Propose { proposal: Box::new(proposal.clone()), progress: accepted(&[1]) }
}

pub(super) fn tell(formation: &mut Formation, from: MemberId, message: FormationMessage) -> Vec<FormationOutput> {
    input(formation, NOW, FormationInput::Receive { from, message })
}

pub(super) fn input(formation: &mut Formation, now: Timestamp, input: FormationInput) -> Vec<FormationOutput> {
    formation.handle(now, input);
    std::iter::from_fn(|| formation.poll_output()).collect()
}

pub(super) fn refused(outputs: &[FormationOutput]) -> Option<(MemberId, RejectReason)> {
    outputs.iter().find_map(|output| match output {
        FormationOutput::Send { to, message: FormationMessage::Refused { reason, .. } } => Some((*to, *reason)),
        _ => None,
    })
}

pub(super) fn seen(node: u8, cluster: Option<u128>) -> FormationInput {
    FormationInput::Seen(FounderCandidate { founder: founder(incarnation(node, 1)), cluster: cluster.map(ClusterId) })
}

#[test]
fn settings_out_of_their_limits_are_named() {
    assert_eq!(settings(0).validate(), Err(InvalidFormation::Expect(0)));
    assert_eq!(settings(MAX_FOUNDERS).validate(), Ok(()));
    assert_eq!(settings(MAX_FOUNDERS + 1).validate(), Err(InvalidFormation::Expect(MAX_FOUNDERS + 1)));
    let hasty = FormationSettings { repeat: Duration::ZERO, ..settings(3) };
    assert_eq!(hasty.validate(), Err(InvalidFormation::ZeroTime));
    let chains = ChainSettings { chains: 0, ..ChainSettings::default() };
    assert!(matches!(FormationSettings { chains, ..settings(3) }.validate(), Err(InvalidFormation::Chains(_))));
}

#[test]
fn a_cluster_of_one_forms_at_the_first_tick() {
    let mut alone = formation(1, 1);
    assert_eq!(alone.next_tick(), Some(Timestamp::ZERO));
    let outputs = input(&mut alone, NOW, FormationInput::Tick);
    let founding = alone.founding().expect("it belongs to a cluster").clone();
    assert_eq!(outputs, [FormationOutput::Formed(founding.clone())]);
    assert_eq!(founding.members, [founder(incarnation(1, 1))]);
    assert_eq!(alone.next_tick(), None);
}

#[test]
fn too_few_nodes_wait() {
    let mut node = formation(1, 3);
    input(&mut node, NOW, seen(2, None));
    assert_eq!(node.next_tick(), None);
    let waits = FormationPhase::Free { seen: 2, expect: 3, expected_by: None, searches: false, refused: None };
    assert_eq!(node.phase(), waits);
    input(&mut node, NOW, seen(3, None));
    assert!(node.next_tick().is_some());
    input(&mut node, NOW, FormationInput::Gone(incarnation(3, 1)));
    assert_eq!(node.next_tick(), None);
}

#[test]
fn the_lowest_node_proposes_first_to_the_nodes_it_saw() {
    let (mut low, mut high) = (formation(1, 3), formation(9, 3));
    for node in [1, 3, 5, 9] {
        input(&mut low, NOW, seen(node, None));
        input(&mut high, NOW, seen(node, None));
    }
    let (first, later) = (low.next_tick().unwrap(), high.next_tick().unwrap());
    assert!(first < later);
    let outputs = input(&mut low, first, FormationInput::Tick);
    let FormationPhase::Accepted(id) = low.phase() else { panic!("it proposed, so it accepted") };
    assert_eq!((id.proposer, id.attempt), (incarnation(1, 1), 1));
    assert_eq!(low.named().collect::<Vec<_>>(), [1, 3, 5, 9].map(|node| incarnation(node, 1)), "more than it expects");
    let told: Vec<_> = outputs.iter().map(|output| matches!(output, FormationOutput::Send { .. })).collect();
    assert_eq!(told, [true; 3], "one message to each of the others");
}

#[test]
fn cluster_ids_are_fresh() {
    let id = |seed| {
        let mut alone = Formation::new(founder(incarnation(1, 1)), settings(1), seed).unwrap();
        input(&mut alone, NOW, FormationInput::Tick);
        alone.founding().unwrap().cluster
    };
    assert_eq!(id(1), id(1));
    assert_ne!(id(1), id(2));
}

#[test]
fn a_node_accepts_one_proposal_and_refuses_the_others_for_ever() {
    let mut node = formation(1, 3);
    assert_eq!(refused(&tell(&mut node, incarnation(2, 1), propose(&proposal(1)))), None);
    assert_eq!(node.phase(), FormationPhase::Accepted(proposal(1).id()));
    let rival = Proposal { proposer: incarnation(3, 1), attempt: 4, ..proposal(9) };
    let outputs = tell(&mut node, incarnation(3, 1), propose(&rival));
    assert_eq!(refused(&outputs), Some((incarnation(3, 1), RejectReason::Busy)));
    let over = FormationMessage::Refused { id: proposal(1).id(), reason: RejectReason::Busy };
    tell(&mut node, incarnation(3, 1), over);
    assert!(matches!(node.phase(), FormationPhase::Free { refused: Some((_, RejectReason::Busy)), .. }));
    for old in [rival, proposal(1)] {
        let outputs = tell(&mut node, incarnation(2, 1), propose(&old));
        assert_eq!(refused(&outputs), Some((incarnation(2, 1), RejectReason::Over)), "a refusal is permanent");
    }
    tell(&mut node, incarnation(2, 1), propose(&proposal(2)));
    assert_eq!(node.phase(), FormationPhase::Accepted(proposal(2).id()));
}

#[test]
fn another_incarnation_is_not_named() {
    let mut node = Formation::new(founder(incarnation(1, 2)), settings(3), 1).unwrap();
    assert_eq!(tell(&mut node, incarnation(2, 1), propose(&proposal(1))), []);
    assert!(matches!(node.phase(), FormationPhase::Free { .. }));
}

#[test]
fn strangers_are_ignored() {
    let mut node = formation(1, 3);
    assert_eq!(tell(&mut node, incarnation(7, 1), propose(&proposal(1))), []);
    tell(&mut node, incarnation(2, 1), propose(&proposal(1)));
    for stranger in [incarnation(7, 1), incarnation(3, 2)] {
        let id = proposal(1).id();
        tell(&mut node, stranger, FormationMessage::Refused { id, reason: RejectReason::Busy });
        tell(&mut node, stranger, FormationMessage::Formed(Box::new(founding(5, &[stranger]))));
        assert_eq!(node.phase(), FormationPhase::Accepted(id), "{stranger:?} is no founder");
    }
}

#[test]
fn a_proposal_must_make_sense() {
    let mut node = formation(1, 3);
    let mut twice = proposal(1);
    twice.founding.members[2] = founder(incarnation(2, 2));
    assert_eq!(tell(&mut node, incarnation(2, 1), propose(&twice)), [], "a node is named in two incarnations");
    let foreign = Proposal { proposer: incarnation(7, 1), ..proposal(1) };
    assert_eq!(tell(&mut node, incarnation(2, 1), propose(&foreign)), [], "its proposer is not among its founders");
    let mut timeless = proposal(1);
    timeless.founding.timing.lease = Duration::MAX;
    assert_eq!(tell(&mut node, incarnation(2, 1), propose(&timeless)), [], "a lease without an end");
    assert!(matches!(node.phase(), FormationPhase::Free { .. }));
}

#[test]
fn other_settings_are_refused_and_shown() {
    type Change = fn(&mut Bootstrap);
    let changes: [(Change, RejectReason); 3] = [
        (|founding| founding.settings.replicas = 2, RejectReason::Settings),
        (|founding| founding.name.push('x'), RejectReason::Settings),
        (|founding| drop(founding.members.pop()), RejectReason::Expects(3)),
    ];
    for (change, reason) in changes {
        let mut node = formation(1, 3);
        let mut other = proposal(1);
        change(&mut other.founding);
        let outputs = tell(&mut node, incarnation(2, 1), propose(&other));
        assert_eq!(refused(&outputs), Some((incarnation(2, 1), reason)));
    }
}

#[test]
fn other_times_are_accepted_and_the_proposers_count() {
    let timing = Timing { lease: Duration::from_secs(7), suspect: Duration::from_secs(4), ..Timing::default() };
    let mut other = proposal(1);
    other.founding.timing = timing;
    let mut node = formation(1, 3);
    tell(&mut node, incarnation(2, 1), propose(&other));
    assert_eq!(node.phase(), FormationPhase::Accepted(other.id()));
    tell(&mut node, incarnation(3, 1), FormationMessage::Formed(Box::new(other.founding)));
    assert_eq!(node.founding().map(|founding| founding.timing), Some(timing));

    let settings = FormationSettings { timing, ..settings(1) };
    let mut alone = Formation::new(founder(incarnation(1, 1)), settings, 1).unwrap();
    input(&mut alone, NOW, FormationInput::Tick);
    assert_eq!(alone.founding().map(|founding| founding.timing), Some(timing), "the proposer's times are used");
}

#[test]
fn a_proposal_that_names_a_replaced_incarnation_is_refused() {
    let mut node = formation(1, 3);
    input(&mut node, NOW, FormationInput::Replaced(incarnation(3, 1)));
    let outputs = tell(&mut node, incarnation(2, 1), propose(&proposal(1)));
    assert_eq!(refused(&outputs), Some((incarnation(2, 1), RejectReason::Over)));
}

#[test]
fn one_replaced_founder_is_no_reason_to_give_up_and_a_majority_is() {
    let mut node = formation(1, 3);
    tell(&mut node, incarnation(2, 1), propose(&proposal(1)));
    input(&mut node, NOW, FormationInput::Replaced(incarnation(3, 1)));
    assert_eq!(node.phase(), FormationPhase::Accepted(proposal(1).id()));
    input(&mut node, NOW, FormationInput::Replaced(incarnation(2, 1)));
    assert!(matches!(node.phase(), FormationPhase::Free { .. }));
}

#[test]
fn a_founder_that_hears_the_verdict_belongs() {
    let mut node = formation(1, 3);
    tell(&mut node, incarnation(2, 1), propose(&proposal(1)));
    let outputs = tell(&mut node, incarnation(3, 1), FormationMessage::Formed(Box::new(proposal(1).founding)));
    assert_eq!(outputs, [FormationOutput::Formed(Arc::new(proposal(1).founding))]);
}

#[test]
fn a_free_node_that_meets_a_member_asks_and_becomes_a_spare() {
    let mut node = formation(1, 3);
    input(&mut node, NOW, seen(2, None));
    input(&mut node, NOW, seen(3, None));
    let outputs = input(&mut node, NOW, seen(4, Some(5)));
    assert_eq!(outputs, [FormationOutput::Send { to: incarnation(4, 1), message: FormationMessage::Ask }]);
    let again = node.next_tick().expect("it asks again");
    assert_eq!(again, NOW + settings(3).repeat, "it proposes nothing until then");
    assert_eq!(
        refused(&tell(&mut node, incarnation(2, 1), propose(&proposal(1)))),
        Some((incarnation(2, 1), RejectReason::Elsewhere))
    );
    let cluster = founding(5, &[incarnation(4, 1), incarnation(5, 1), incarnation(6, 1)]);
    let outputs = tell(&mut node, incarnation(4, 1), FormationMessage::Formed(Box::new(cluster.clone())));
    assert_eq!(outputs, [FormationOutput::Joined(Arc::new(cluster))]);
}

#[test]
fn a_founding_that_makes_no_sense_is_ignored() {
    let mut node = formation(1, 3);
    let mut endless = founding(5, &[incarnation(4, 1)]);
    endless.settings.chains = u32::MAX;
    let mut timeless = founding(5, &[incarnation(4, 1)]);
    timeless.timing.lease = Duration::ZERO;
    for nonsense in [endless, timeless, founding(5, &[])] {
        assert_eq!(tell(&mut node, incarnation(4, 1), FormationMessage::Formed(Box::new(nonsense))), []);
    }
    assert_eq!(node.founding(), None);
}

#[test]
fn a_member_never_forms_another_cluster_and_names_its_own() {
    let own = Arc::new(founding(5, &[incarnation(1, 7)]));
    let mut node = Formation::member(founder(incarnation(1, 1)), settings(3), own.clone()).unwrap();
    let answer =
        |to| [FormationOutput::Send { to, message: FormationMessage::Formed(Box::new(Bootstrap::clone(&own))) }];
    assert_eq!(tell(&mut node, incarnation(2, 1), propose(&proposal(1))), answer(incarnation(2, 1)));
    assert_eq!(tell(&mut node, incarnation(8, 1), FormationMessage::Ask), answer(incarnation(8, 1)));
    let other = FormationMessage::Formed(Box::new(proposal(1).founding));
    assert_eq!(tell(&mut node, incarnation(2, 1), other), []);
    assert_eq!(node.founding(), Some(&own));
}

#[test]
fn a_founder_that_belongs_elsewhere_ends_the_proposal() {
    let mut node = formation(1, 3);
    tell(&mut node, incarnation(2, 1), propose(&proposal(1)));
    let other = Arc::new(founding(5, &[incarnation(3, 1), incarnation(4, 1), incarnation(5, 1)]));
    let outputs = tell(&mut node, incarnation(3, 1), FormationMessage::Formed(Box::new(Bootstrap::clone(&other))));
    assert_eq!(outputs.last(), Some(&FormationOutput::Joined(other)));
}

#[test]
fn a_replaced_incarnation_is_silent() {
    let mut node = formation(1, 1);
    input(&mut node, NOW, FormationInput::Replaced(incarnation(1, 1)));
    assert_eq!((node.phase(), node.next_tick()), (FormationPhase::Replaced, None));
    assert_eq!(input(&mut node, NOW, FormationInput::Tick), []);
    assert_eq!(tell(&mut node, incarnation(2, 1), FormationMessage::Ask), []);
}

#[test]
fn silent_nodes_are_asked_last() {
    let mut node = formation(1, 3);
    for other in [2, 3] {
        input(&mut node, NOW, seen(other, None));
    }
    let at = node.next_tick().unwrap();
    input(&mut node, at, FormationInput::Tick);
    let FormationPhase::Accepted(id) = node.phase() else { panic!("it proposed") };
    // Founder 3 accepts, and abandons in its own ballot; founder 2 sends nothing.
    let ballot = Ballot { round: 1, owner: 2 };
    let vote = Some(Vote { ballot, verdict: ProposalVerdict::Abandon });
    let progress = ProposalProgress { accepted: [2].into(), promised: ballot, vote };
    input(
        &mut node,
        at,
        FormationInput::Receive { from: incarnation(3, 1), message: FormationMessage::Progress { id, progress } },
    );
    assert!(matches!(node.phase(), FormationPhase::Free { .. }), "two of three abandoned it");
    input(&mut node, at, seen(4, None));
    // A second failure by the same silence.
    node.seen.miss(incarnation(2, 1));
    let at = node.next_tick().unwrap();
    input(&mut node, at, FormationInput::Tick);
    assert_eq!(node.named().collect::<Vec<_>>(), [incarnation(1, 1), incarnation(3, 1), incarnation(4, 1)]);
}

#[test]
fn addresses_come_from_sight_or_from_the_proposal() {
    let mut node = formation(1, 3);
    assert_eq!(node.addrs(incarnation(3, 1)), None);
    tell(&mut node, incarnation(2, 1), propose(&proposal(1)));
    assert_eq!(node.addrs(incarnation(3, 1)), Some(&founder(incarnation(3, 1)).addrs[..]));
}

#[test]
fn messages_survive_the_codec_and_keep_their_numbers() {
    let messages = [
        propose(&proposal(1)),
        FormationMessage::Progress { id: proposal(1).id(), progress: accepted(&[0, 2]) },
        FormationMessage::Refused { id: proposal(1).id(), reason: RejectReason::Settings },
        FormationMessage::Ask,
        FormationMessage::Formed(Box::new(proposal(1).founding)),
    ];
    for (number, message) in messages.into_iter().enumerate() {
        let mut bytes = vec![];
        artillery_core::internal::codec::encode(&message, &mut bytes).unwrap();
        assert_eq!(bytes[0], number as u8);
        assert_eq!(artillery_core::internal::codec::decode(&bytes), Ok(message));
    }
}

#[test]
fn any_founder_finishes_what_a_dead_proposer_began() {
    let mut network = Network::new(1, 3, 3, 0, false, None);
    let end = network.now + Duration::from_secs(5);
    assert!(network.run_until(end, |network| matches!(network.phase(0), Some(FormationPhase::Accepted(_)))
        && matches!(network.phase(1), Some(FormationPhase::Accepted(_)))
        && matches!(network.phase(2), Some(FormationPhase::Accepted(_)))));
    let Some(FormationPhase::Accepted(id)) = network.phase(0) else { unreachable!() };
    let proposer = (0..3).find(|&at| network.id(at) == id.proposer).unwrap();
    network.kill(proposer);
    network.run_for(20_000);
    for at in (0..3).filter(|&at| at != proposer) {
        assert_eq!(network.cluster(at), Some((id.cluster, true)), "all had accepted");
    }
}

#[test]
fn a_dead_minority_does_not_block() {
    let mut network = Network::new(4, 3, 4, 0, false, None);
    network.run_until(network.now + Duration::from_millis(100), |_| false);
    network.kill(2);
    network.run_for(20_000);
    let clusters: Vec<_> = [0, 1, 3].iter().map(|&at| network.cluster(at)).collect();
    assert!(clusters.iter().all(|cluster| cluster.is_some() && *cluster == clusters[0]), "{clusters:?}");
}

#[test]
fn two_halves_that_never_met_form_two_and_never_mix() {
    let mut network = Network::new(2, 3, 6, 0, false, None);
    network.partition(&[&[0, 1, 2], &[3, 4, 5]]);
    network.run_for(10_000);
    let before: Vec<_> = (0..6).map(|at| network.cluster(at)).collect();
    assert!(before.iter().all(Option::is_some));
    assert_ne!(before[0], before[3]);
    network.partition(&[&[0, 1, 2, 3, 4, 5]]);
    network.run_for(10_000);
    assert_eq!((0..6).map(|at| network.cluster(at)).collect::<Vec<_>>(), before);
    assert_eq!(network.violation, None);
}

#[test]
fn a_latecomer_joins_as_a_spare_and_a_restarted_founder_too() {
    let mut network = Network::new(3, 3, 4, 0, false, None);
    network.kill(3);
    network.run_for(10_000);
    let (cluster, _) = network.cluster(0).expect("three found it");
    network.restart(3);
    network.restart(1);
    network.run_for(10_000);
    assert_eq!(network.cluster(3), Some((cluster, false)));
    assert_eq!(network.cluster(1), Some((cluster, false)), "its new incarnation is no founder");
}
