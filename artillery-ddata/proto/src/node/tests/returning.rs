//! A node with a disk that is stopped temporarily ends in time, and keeps its vote.

use super::{
    leaving::{is_there, lead, passes, without_node_3},
    *,
};
use crate::control::HeardStores;

/// Node 3, which has a disk, is asked to stop temporarily.
fn withdraws() -> Rig {
    let mut rig = Rig::new();
    let settings = CoordinatorSettings::default();
    rig.node =
        NodeMachine::durable(founder(3), rig.configs.clone(), settings, Some(Vec::new()), HeardStores::default());
    rig.hear(rig.configs.clone());
    rig.acts_by(rig.configs.applied());
    // First all other nodes are informed of the store's position.
    rig.handle(NodeInput::Tick);
    rig.renewals();
    rig.outputs();
    rig.handle(NodeInput::Withdraw);
    rig
}

/// The leader agrees, and the chains resign.
fn resigns(rig: &mut Rig) {
    let asks = rig.renewals().pop().unwrap().leave;
    assert_eq!(asks, Leave { number: 0, stage: LeaveStage::Asks, returns: true });
    rig.answer(|renewed| renewed.leave = Some(asks.resigned()));
    (0..2).for_each(|chain| rig.says(chain, Word::Resigned));
    rig.outputs();
}

fn ends_with(rig: &mut Rig, event: NodeEvent) {
    assert_eq!(rig.outputs(), [NodeOutput::Event(event), NodeOutput::Left]);
}

#[test]
fn a_voter_that_returns_ends_once_no_chain_names_it() {
    let mut rig = withdraws();
    resigns(&mut rig);
    let gone = without_node_3(&rig);
    rig.hear(gone.clone());
    assert!(!rig.ends(), "its disk must have the configuration first");
    rig.handle(NodeInput::Kept);
    rig.acts_by(gone.applied());
    assert!(rig.ends(), "it ends even as a voter");
}

#[test]
fn a_leader_that_returns_does_not_end_before_it_is_released() {
    let mut rig = withdraws();
    resigns(&mut rig);
    rig.configs = without_node_3(&rig);
    lead(&mut rig, 2, &[1, 2, 3]);
    rig.handle(NodeInput::Kept);
    rig.acts_by(rig.configs.applied());
    assert!(!rig.ends(), "the members may not know the configuration without it yet");
    rig.hear(rig.configs.clone());
    assert!(rig.ends(), "another node leads");
}

#[test]
fn a_node_that_returns_ends_after_three_leases_in_any_case() {
    // No leader answers, or a leader keeps reporting a handover.
    for farewell in [None, Some(Farewell::HandsOver)] {
        let mut rig = withdraws();
        let mut passed = 0;
        while passed < 10 {
            if let Some(farewell) = farewell {
                rig.answer(|renewed| renewed.farewell = Some(farewell));
            }
            passed += 1;
            if passes(&mut rig, 1).contains(&NodeOutput::Left) {
                break;
            }
        }
        assert!(passed <= 3, "{farewell:?}: after {passed} leases");
    }
}

#[test]
fn a_node_that_has_resigned_and_is_not_removed_ends_too() {
    let mut rig = withdraws();
    resigns(&mut rig);
    is_there(&mut rig, 2);
    rig.now = rig.now + LEASE * 3;
    rig.handle(NodeInput::Tick);
    ends_with(&mut rig, NodeEvent::GivesUp);
}

#[test]
fn the_last_member_says_that_its_disk_keeps_the_chain() {
    let mut rig = withdraws();
    rig.answer(|renewed| renewed.farewell = Some(Farewell::Ends));
    assert!(!rig.ends(), "it keeps the log: others must learn it too");
    rig.now = rig.now + LEASE;
    rig.handle(NodeInput::Tick);
    ends_with(&mut rig, NodeEvent::ClosesChain);
}

#[test]
fn a_drain_goes_on_for_good_when_the_node_is_told_to_stop() {
    let mut rig = Rig::acting();
    rig.handle(NodeInput::Leave { until: Some(rig.now + LEASE) });
    rig.handle(NodeInput::Withdraw);
    assert_eq!(rig.renewals().pop().unwrap().leave, Leave { number: 0, stage: LeaveStage::Asks, returns: false });
    assert!((0..3).any(|_| passes(&mut rig, 1).contains(&NodeOutput::Left)));
}
