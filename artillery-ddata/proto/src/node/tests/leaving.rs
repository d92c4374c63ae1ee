//! How a node leaves, and when a stopping node ends.

use super::*;

pub(super) fn without_node_3(rig: &Rig) -> Arc<Configs> {
    rig.without(&[(0, 3), (1, 3)])
}

/// The leader answers the newest renewal, with this farewell.
fn hear(rig: &mut Rig, farewell: Farewell) {
    rig.answer(|renewed| renewed.farewell = Some(farewell));
}

/// The node processes a statement of a leader.
fn take(rig: &mut Rig, farewell: Option<Farewell>) {
    let NodeMachine { leaving, base, .. } = &mut rig.node;
    leaving.hear_farewell(rig.now, farewell, base);
}

fn go_on_alone(rig: &mut Rig) {
    let next = rig.configs.history().next(7);
    rig.configs = Arc::new(rig.configs.recovered(next, founder(3), Epoch(9), rig.configs.applied()));
    rig.hear(rig.configs.clone());
    rig.outputs();
}

/// Node 3 leads the log with these voters.
pub(super) fn lead(rig: &mut Rig, term: u64, voters: &[u8]) {
    let (voters, configs) = (voters.iter().copied().map(id).collect(), rig.configs.clone());
    rig.handle(NodeInput::Log { leads: Some(Term(term)), leader: Some(id(3)), configs, voters });
}

fn ends_within(rig: &mut Rig, leases: u32) -> bool {
    (0..leases).flat_map(|_| passes(rig, 1)).any(|output| output == NodeOutput::Left)
}

/// A node that was asked to stop, while its chains serve.
fn stopping() -> Rig {
    let mut rig = Rig::acting();
    rig.stop();
    rig
}

fn agree(renewed: &mut Renewed, leave: Leave) {
    renewed.leave = Some(leave.resigned());
}

/// Node 3 leaves, the leader agrees, and the chains resign. Returns the node's request.
fn resigns(rig: &mut Rig) -> Leave {
    rig.stop();
    let asks = rig.renewals().pop().unwrap().leave;
    rig.answer(|renewed| agree(renewed, asks));
    (0..2).for_each(|chain| rig.says(chain, Word::Resigned));
    asks
}

#[test]
fn a_node_resigns_once_all_its_chains_act_by_no_lease() {
    let mut rig = stopping();
    let asks = rig.renewals().pop().unwrap().leave;
    assert_eq!(asks.stage, LeaveStage::Asks);
    rig.answer(|renewed| agree(renewed, asks));
    assert_eq!(rig.orders(), [(0, ChainOrder::Resign), (1, ChainOrder::Resign)]);
    rig.says(0, Word::Resigned);
    assert_eq!(rig.renewals().pop().unwrap().leave.stage, LeaveStage::Asks, "a chain may still act by the lease");
    rig.says(1, Word::Resigned);
    assert_eq!(rig.renewals().pop().unwrap().leave.stage, LeaveStage::Resigned);
}

#[test]
fn leases_from_before_a_resignation_are_of_another_stretch() {
    let mut rig = Rig::acting();
    let asks = resigns(&mut rig);
    rig.outputs();
    rig.answer(|renewed| renewed.leave = Some(asks.resigned().back(LeaveStage::Asks)));
    let outputs = rig.outputs();
    assert!(outputs.contains(&NodeOutput::Lease(Lease { stretch: 1, ..Lease::default() })), "{outputs:?}");
    assert!(outputs.contains(&NodeOutput::Order(ChainId(1), ChainOrder::Resume { stretch: 1 })), "{outputs:?}");
    rig.answer(|_| {});
    let granted =
        |output: &NodeOutput| matches!(output, NodeOutput::Lease(Lease { stretch: 1, until, .. }) if *until > rig.now);
    let outputs: Vec<_> = std::iter::from_fn(|| rig.node.poll_output()).collect();
    assert!(outputs.iter().any(granted), "{outputs:?}");
}

#[test]
fn a_node_that_the_log_needs_has_not_left_though_no_configuration_names_it() {
    let mut rig = Rig::acting();
    resigns(&mut rig);
    let gone = without_node_3(&rig);
    rig.hear(gone.clone());
    assert!(!rig.ends(), "it keeps the log");
    let voters = [id(1), id(2)].into();
    rig.handle(NodeInput::Log { leads: None, leader: Some(id(1)), configs: gone, voters });
    assert!(rig.ends());
}

/// Nodes 1 and 2 serve, and node 3 is a spare.
fn spare() -> Rig {
    let mut rig = Rig::acting();
    rig.configs = without_node_3(&rig);
    let (configs, voters) = (rig.configs.clone(), [id(1), id(2)].into());
    rig.handle(NodeInput::Log { leads: None, leader: Some(id(1)), configs, voters });
    rig.acts_by(rig.configs.applied());
    rig.outputs();
    rig
}

#[test]
fn a_spare_ends_when_the_leader_knows_that_it_leaves() {
    let mut rig = spare();
    rig.stop();
    assert!(!rig.ends(), "the last copy would wait for it");
    rig.answer(|renewed| renewed.released = true);
    assert!(rig.ends());
}

#[test]
fn a_spare_that_hears_no_leader_ends_after_a_while() {
    let mut rig = spare();
    rig.stop();
    assert!(ends_within(&mut rig, 4));
}

/// Node 3 should stop, and the leader answers with this farewell.
fn stops(farewell: Option<Farewell>) -> (Rig, Vec<NodeOutput>) {
    let mut rig = stopping();
    rig.answer(|renewed| renewed.farewell = farewell);
    let outputs = rig.outputs();
    (rig, outputs)
}

/// Node `n`, which doesn't lead, answers the last question to it.
pub(super) fn is_there(rig: &mut Rig, n: u8) {
    let number = rig.renewals().pop().expect("it is asked").number;
    rig.handle(NodeInput::Renewed { from: id(n), renewed: Some(Renewed::bare(number, Some(id(1)))) });
}

pub(super) fn passes(rig: &mut Rig, leases: u32) -> Vec<NodeOutput> {
    rig.now = rig.now + LEASE * leases;
    rig.handle(NodeInput::Tick);
    rig.outputs()
}

#[test]
fn a_stopping_node_waits_while_it_hands_over() {
    let (mut rig, outputs) = stops(Some(Farewell::HandsOver));
    assert!(outputs.contains(&NodeOutput::Event(NodeEvent::HandsOver)));
    for _ in 0..10 {
        assert!(!passes(&mut rig, 2).contains(&NodeOutput::Left));
        hear(&mut rig, Farewell::HandsOver);
        assert!(!rig.outputs().contains(&NodeOutput::Event(NodeEvent::HandsOver)), "it is reported once");
    }
    passes(&mut rig, 3);
    assert_eq!(passes(&mut rig, 1), [], "no other node answers: this may be the last copy");
}

#[test]
fn a_stopping_node_ends_when_another_member_answers() {
    let (mut rig, _) = stops(Some(Farewell::GoesOn));
    assert_eq!(passes(&mut rig, 3), [], "the farewell is old: the others may be dead");
    is_there(&mut rig, 2);
    assert_eq!(passes(&mut rig, 1), [NodeOutput::Event(NodeEvent::GivesUp), NodeOutput::Left]);
    let (mut rig, _) = stops(Some(Farewell::GoesOn));
    assert!(!passes(&mut rig, 60).contains(&NodeOutput::Left), "it was paused for a minute: the others may be dead");
}

/// Two of three are killed, and the log has no quorum: no configuration shows that the third one is the last.
#[test]
fn a_stopping_node_that_hears_no_node_waits() {
    let mut rig = Rig::acting();
    passes(&mut rig, 20);
    rig.stop();
    assert_eq!(passes(&mut rig, 3), []);
    assert_eq!(passes(&mut rig, 1), [NodeOutput::Event(NodeEvent::Waits)]);
    passes(&mut rig, 3);
    assert_eq!(passes(&mut rig, 1), []);
}

#[test]
fn a_farewell_taken_back_ends_no_node() {
    for newer in [Some(Farewell::HandsOver), None] {
        let (mut rig, _) = stops(Some(Farewell::GoesOn));
        passes(&mut rig, 2);
        hear(&mut rig, Farewell::GoesOn);
        // The leader, which serves nothing, has noticed that the other member is dead, and ends.
        take(&mut rig, newer);
        rig.node.company = Company::default();
        rig.outputs();
        assert!(!ends_within(&mut rig, 4), "{newer:?}: it may be the last copy");
    }
}

#[test]
fn a_leader_that_takes_its_end_back_waits() {
    let mut rig = Rig::acting();
    lead(&mut rig, 1, &[1, 2, 3]);
    rig.stop();
    rig.outputs();
    take(&mut rig, Some(Farewell::Ends));
    take(&mut rig, Some(Farewell::HandsOver));
    assert!(!ends_within(&mut rig, 6), "another node was about to take its place");
    take(&mut rig, Some(Farewell::Ends));
    assert!(passes(&mut rig, 1).contains(&NodeOutput::Left), "that node leaves too");
}

/// The node is paused for half a lease longer than its waiting time.
#[test]
fn messages_after_a_pause_do_not_end_a_node() {
    let paused = |input: fn(u64) -> NodeInput| {
        let mut rig = Rig::acting();
        passes(&mut rig, 20);
        rig.stop();
        let sent = rig.renewals().pop().expect("a renewal is due").number;
        rig.now = rig.now + LEASE * 7 / 2;
        rig.handle(input(sent));
        rig.handle(NodeInput::Tick);
        rig.outputs()
    };
    let answer = |number| {
        let bare = Renewed::bare(number, Some(id(1)));
        let renewed = Renewed { farewell: Some(Farewell::GoesOn), lease: Some(LEASE), ..bare };
        NodeInput::Renewed { from: id(1), renewed: Some(renewed) }
    };
    assert!(!paused(answer).contains(&NodeOutput::Left), "an answer");
    let message = |number| {
        let renewal = fixtures::renewal(2, number, LogIndex::default());
        NodeInput::Renewal { from: id(2), renewal }
    };
    assert!(!paused(message).contains(&NodeOutput::Left), "a message of another member");
}

#[test]
fn a_stopping_node_ends_when_no_node_takes_over() {
    let (mut rig, outputs) = stops(Some(Farewell::Ends));
    assert!(!outputs.contains(&NodeOutput::Left), "it keeps the log: others must learn it too");
    assert_eq!(passes(&mut rig, 1), [NodeOutput::Event(NodeEvent::EndsChain), NodeOutput::Left]);
}

/// No quorum has confirmed the answering node.
#[test]
fn only_a_confirmed_leader_ends_or_releases_a_node() {
    let mut rig = stopping();
    rig.answer(|renewed| (renewed.leader, renewed.farewell) = (None, Some(Farewell::Ends)));
    assert!(!passes(&mut rig, 1).contains(&NodeOutput::Left));
    let mut rig = spare();
    rig.stop();
    rig.answer(|renewed| (renewed.leader, renewed.released) = (None, true));
    assert!(!rig.ends());
}

#[test]
fn a_node_whose_chains_go_on_after_all_waits_to_be_removed() {
    let (mut rig, _) = stops(Some(Farewell::Ends));
    hear(&mut rig, Farewell::GoesOn);
    assert!(!passes(&mut rig, 1).contains(&NodeOutput::Left), "a node that was drained stays");
}

#[test]
fn a_release_from_before_a_node_became_a_voter_is_void() {
    let mut rig = Rig::acting();
    let log = |configs, voter| NodeInput::Log { leads: None, leader: Some(id(1)), configs, voters: [id(voter)].into() };
    rig.handle(log(rig.configs.clone(), 1));
    rig.stop();
    rig.answer(|renewed| renewed.released = true);
    let gone = without_node_3(&rig);
    rig.handle(log(gone.clone(), 3));
    rig.handle(log(gone, 3));
    assert!(!rig.ends(), "it is the only voter");
}

#[test]
fn a_drained_spare_that_hears_no_leader_leaves_when_its_time_is_up() {
    let mut rig = spare();
    let until = rig.now + LEASE * 2;
    rig.handle(NodeInput::Leave { until: Some(until) });
    assert!(!passes(&mut rig, 1).contains(&NodeOutput::Left));
    assert!(passes(&mut rig, 1).contains(&NodeOutput::Left));
}

#[test]
fn going_on_alone_takes_the_end_back() {
    let (mut rig, _) = stops(Some(Farewell::Ends));
    go_on_alone(&mut rig);
    assert!(!passes(&mut rig, 1).contains(&NodeOutput::Left));
}

#[test]
fn a_voter_waits_for_a_chain_late_to_resign() {
    let mut rig = stopping();
    let asks = rig.renewals().pop().unwrap().leave;
    let left_after = (0..10).take_while(|_| {
        rig.answer(|renewed| {
            agree(renewed, asks);
            renewed.farewell = Some(Farewell::GoesOn);
        });
        !passes(&mut rig, 1).contains(&NodeOutput::Left)
    });
    assert_eq!(left_after.count(), 5, "the leader has agreed, and will remove it");
}

#[test]
fn a_node_that_ends_with_its_chains_stays_for_a_new_leader_too() {
    let (mut rig, _) = stops(Some(Farewell::Ends));
    rig.now = rig.now + LEASE / 2;
    lead(&mut rig, 2, &[3]);
    rig.now = rig.now + LEASE * 3 / 4;
    rig.handle(NodeInput::Tick);
    assert!(!rig.ends(), "the others must learn it from this one");
    assert!(passes(&mut rig, 1).contains(&NodeOutput::Left));
}

#[test]
fn a_stopping_node_waits_a_while_for_its_chains_to_go_on() {
    let (mut rig, outputs) = stops(Some(Farewell::GoesOn));
    assert!(!outputs.contains(&NodeOutput::Left));
    assert!(!passes(&mut rig, 2).contains(&NodeOutput::Left));
    hear(&mut rig, Farewell::GoesOn);
    assert!(passes(&mut rig, 1).contains(&NodeOutput::Left));
}

#[test]
fn a_stopping_node_that_goes_on_alone_waits_for_others() {
    let mut rig = stopping();
    go_on_alone(&mut rig);
    hear(&mut rig, Farewell::Ends);
    assert!(!rig.ends(), "an operator wants its data");
    assert!(!passes(&mut rig, 3).contains(&NodeOutput::Left));
}

#[test]
fn a_drained_node_hears_no_farewell() {
    let mut rig = Rig::acting();
    let until = rig.now + LEASE * 10;
    rig.handle(NodeInput::Leave { until: Some(until) });
    hear(&mut rig, Farewell::Ends);
    assert!(!rig.ends());
}

#[test]
fn a_last_member_waits_though_no_leader_answers() {
    let mut rig = Rig::acting();
    rig.configs = rig.without(&[(0, 1), (0, 2)]);
    rig.hear(rig.configs.clone());
    rig.stop();
    rig.outputs();
    assert_eq!(passes(&mut rig, 3), [NodeOutput::Event(NodeEvent::Waits)]);
    assert_eq!(passes(&mut rig, 3), []);
    hear(&mut rig, Farewell::Ends);
    assert!(passes(&mut rig, 1).contains(&NodeOutput::Left));
}

/// Chain 0 is served by nodes 1 and 3, chain 1 by nodes 2 and 3. Node 2 is dead, and node 1 answers.
#[test]
fn a_member_of_another_chain_takes_nothing_over() {
    let mut rig = Rig::acting();
    rig.hear(rig.without(&[(0, 2), (1, 1)]));
    passes(&mut rig, 20);
    rig.stop();
    for _ in 0..8 {
        assert!(!passes(&mut rig, 1).contains(&NodeOutput::Left), "it holds the only copy of chain 1");
        is_there(&mut rig, 1);
    }
}

#[test]
fn a_late_farewell_does_not_undo_a_newer_one() {
    let mut rig = stopping();
    let [first, second] = [0, 1].map(|_| rig.renewals().pop().expect("a renewal is due").number);
    for (number, farewell) in [(second, Farewell::HandsOver), (first, Farewell::Ends)] {
        let bare = Renewed::bare(number, Some(id(1)));
        let renewed = Renewed { lease: Some(LEASE), farewell: Some(farewell), ..bare };
        rig.handle(NodeInput::Renewed { from: id(1), renewed: Some(renewed) });
    }
    assert!(!passes(&mut rig, 1).contains(&NodeOutput::Left), "another node takes its place");
}
