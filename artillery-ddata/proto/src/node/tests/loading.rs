use super::*;
use crate::{
    api::Refusal,
    control::{HeardStores, message::StoreHolding},
};

/// Node 3 in the second incarnation of its store. Its directory is not loaded yet.
fn loading() -> Rig {
    let mut rig = Rig::new();
    let mut me = founder(3);
    me.id.incarnation.starts = 2;
    rig.node =
        NodeMachine::durable(me, rig.configs.clone(), CoordinatorSettings::default(), None, HeardStores::default());
    rig.hear(rig.configs.clone());
    rig
}

fn holding() -> StoreHolding {
    let last = crate::Version { epoch: Epoch(1), sequence: crate::Sequence(7) };
    StoreHolding { chain: ChainId(0), whole: true, last, watermark: last.sequence, synced: true }
}

#[test]
fn a_node_that_loads_renews_and_its_chains_wait() {
    let mut rig = loading();
    let renewal = rig.renewals().pop().expect("others must learn that it is alive");
    assert!(renewal.loads && renewal.holds.is_empty() && renewal.reports.is_empty());
    rig.answer(|_| ());
    assert_eq!(rig.node.state().unready, Some(Unready::Loads));
    assert!(rig.orders().is_empty());
    rig.handle(NodeInput::Loaded { holds: vec![holding()] });
    assert_eq!(rig.orders().len(), 2, "each chain gets the configurations");
    rig.acts_by(rig.configs.applied());
    rig.now = rig.now + LEASE;
    let renewal = rig.renewals().pop().unwrap();
    assert!(!renewal.loads);
    assert_eq!(renewal.holds, [holding()]);
}

#[test]
fn newer_configurations_wait_for_the_end_of_the_load() {
    let mut rig = loading();
    rig.hear(rig.without_me());
    assert!(rig.outputs().is_empty());
    rig.handle(NodeInput::Loaded { holds: Vec::new() });
    assert!(matches!(rig.outputs()[..], [NodeOutput::Keep(_)]));
}

#[test]
fn a_node_that_loads_may_leave_for_a_while() {
    let mut rig = loading();
    rig.handle(NodeInput::Withdraw);
    let resigns = Leave { number: 0, stage: LeaveStage::Resigned, returns: true };
    rig.answer(|renewed| renewed.leave = Some(resigns));
    assert!(rig.ends());
}

/// A node whose directory isn't loaded can't know that it holds no data of its cluster.
#[test]
fn a_node_that_loads_keeps_what_it_has_when_its_cluster_was_given_up() {
    let mut rig = loading();
    let by = ClusterId(9);
    rig.handle(NodeInput::Succeeded { by });
    for _ in 0..20 {
        rig.renewals();
        for from in [1, 2, 3].map(id) {
            rig.handle(NodeInput::Renewed { from, renewed: None });
        }
        rig.handle(NodeInput::Tick);
    }
    assert_eq!(rig.node.state().successor, Some(Successor { by, yields: true }));
    assert!(!rig.outputs().iter().any(|output| matches!(output, NodeOutput::Succeeded { .. } | NodeOutput::Order(..))));
    rig.handle(NodeInput::Loaded { holds: vec![holding()] });
    let orders = rig.orders();
    assert_eq!(
        orders.iter().filter(|(_, order)| *order == ChainOrder::Yield { refusal: Refusal::Succeeded { by } }).count(),
        2,
        "{orders:?}"
    );
}
