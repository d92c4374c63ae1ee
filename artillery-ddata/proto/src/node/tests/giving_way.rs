use super::*;
use crate::{Sequence, node::giving_way};

fn over(rig: &Rig) -> Arc<Configs> {
    let mut configs = Configs::clone(&rig.configs);
    let over = |config: &ChainConfig| ChainChange { replaces: config.epoch, config: config.over() };
    let changes = configs.iter().map(over).collect();
    let index = configs.applied().next();
    configs.apply(&LogEntry { index, term: Term(1), change: ConfigChange::Chains(changes) }).unwrap();
    Arc::new(configs)
}

/// Lets time pass. Returns whether the node ends.
fn passes(rig: &mut Rig, time: Duration) -> bool {
    rig.now = rig.now + time;
    rig.handle(NodeInput::Tick);
    rig.outputs().contains(&NodeOutput::Over)
}

#[test]
fn a_node_answers_for_three_leases_and_ends() {
    let mut rig = Rig::acting();
    let over = over(&rig);
    rig.hear(over);
    assert!(rig.outputs().contains(&NodeOutput::Event(NodeEvent::Over)) && rig.node.state().is_over);
    assert!(!passes(&mut rig, LEASE * 3 - Duration::from_millis(1)), "others may not know it yet");
    assert!(passes(&mut rig, Duration::from_millis(1)));
    assert!(!passes(&mut rig, LEASE * 9), "once");
}

#[test]
fn a_node_with_a_disk_keeps_that_first() {
    let mut rig = Rig::new();
    let me = founder(3);
    let settings = CoordinatorSettings::default();
    rig.node = NodeMachine::durable(me, rig.configs.clone(), settings, Some(vec![]), HeardStores::default());
    rig.hear(rig.configs.clone());
    rig.acts_by(rig.configs.applied());
    let over = over(&rig);
    rig.hear(over);
    assert!(!passes(&mut rig, LEASE * 4));
    rig.handle(NodeInput::Kept);
    assert!(passes(&mut rig, LEASE * 4));
}

#[test]
fn a_start_with_a_disk_that_keeps_it_ends_too() {
    let mut rig = Rig::new();
    let (settings, heard) = (CoordinatorSettings::default(), HeardStores::default());
    rig.node = NodeMachine::durable(founder(3), over(&rig), settings, Some(vec![]), heard);
    assert!(!passes(&mut rig, LEASE));
    assert!(passes(&mut rig, LEASE * 3));
}

#[test]
fn only_committed_updates_are_data_for_other_clusters() {
    let mut rig = Rig::acting();
    let mut renewal = rig.renewals().pop().unwrap();
    renewal.reports[0].held = Sequence(1);
    giving_way::see_whether_holds_data(&renewal, &mut rig.node.base);
    assert!(!rig.node.state().holds_data, "the update may still be lost");
    renewal.reports[0].watermark = Sequence(1);
    giving_way::see_whether_holds_data(&renewal, &mut rig.node.base);
    assert!(rig.node.state().holds_data);
}

#[test]
fn a_node_whose_cluster_is_over_is_not_ready() {
    let mut rig = Rig::acting();
    rig.answer(|_| {});
    assert_eq!(rig.node.state().unready, None);
    let over = over(&rig);
    rig.hear(over);
    rig.answer(|_| {});
    assert_eq!(rig.node.state().unready, Some(Unready::Over));
}
