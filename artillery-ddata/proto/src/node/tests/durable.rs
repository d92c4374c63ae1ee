use super::*;
use crate::control::{HeardStores, StorePosition, StoreStart, StoreStarts, message::StoreHolding};

/// Node 3 in the second incarnation of its store, which served chain 0 in the first one.
fn durable(mutant: Option<Mutant>) -> Rig {
    let mut rig = Rig::new();
    let mut me = founder(3);
    me.id.incarnation.starts = 2;
    let last = crate::Version { epoch: Epoch(1), sequence: crate::Sequence(7) };
    let hold =
        |chain| StoreHolding { chain: ChainId(chain), whole: true, last, watermark: last.sequence, synced: true };
    let settings = CoordinatorSettings { guards: mutant.into(), ..CoordinatorSettings::default() };
    let holds = Some(vec![hold(0), hold(9)]);
    rig.node = NodeMachine::durable(me, rig.configs.clone(), settings, holds, HeardStores::default());
    rig
}

/// Whether the chains get newer configurations before the disk has them.
fn acts_at_once(rig: &mut Rig) -> bool {
    rig.hear(rig.configs.clone());
    rig.acts_by(rig.configs.applied());
    rig.outputs();
    rig.hear(rig.without_me());
    let outputs = rig.outputs();
    let keeps = outputs.iter().any(|output| matches!(output, NodeOutput::Keep(_)));
    let acts = outputs.iter().any(|output| matches!(output, NodeOutput::Order(..)));
    assert!(keeps != acts, "{outputs:?}");
    acts
}

#[test]
fn chains_act_by_what_the_disk_keeps() {
    let mut rig = durable(None);
    assert!(!acts_at_once(&mut rig));
    rig.handle(NodeInput::Kept);
    assert_eq!(rig.orders().len(), 2);
}

#[test]
fn chains_that_act_too_soon_act_by_what_a_restart_forgets() {
    assert!(acts_at_once(&mut durable(Some(Mutant::ActUnkept))));
}

#[test]
fn a_node_tells_what_its_store_holds_where_an_earlier_life_of_it_serves() {
    let mut rig = durable(None);
    rig.hear(rig.configs.clone());
    rig.acts_by(rig.configs.applied());
    rig.node.stands_at(at(1, 2, 3));
    let renewal = rig.renewals().pop().unwrap();
    assert_eq!(renewal.holds.iter().map(|held| held.chain).collect::<Vec<_>>(), [ChainId(0)]);
    assert_eq!(renewal.position, Some(Box::new(at(1, 2, 3))));
}

/// Node 3 has lost its place in chain 0. What it has received since its start may have replaced the copy found then.
#[test]
fn a_node_that_has_lost_its_place_reports_its_present_copy() {
    for synced in [true, false] {
        let mut rig = Rig::new();
        let last = |sequence| crate::Version { epoch: Epoch(1), sequence: crate::Sequence(sequence) };
        let holding = |sequence| {
            let (chain, last) = (ChainId(0), last(sequence));
            StoreHolding { chain, whole: true, last, watermark: crate::Sequence(4), synced }
        };
        let (configs, settings) = (rig.without_me(), CoordinatorSettings::default());
        rig.node = NodeMachine::durable(founder(3), configs, settings, Some(vec![holding(7)]), HeardStores::default());
        let acts = ChainProgress::for_a_test(Epoch(2), true);
        let progress = |whole| move |_| Some(acts.with_copy(whole, crate::Sequence(4)));
        assert_eq!(rig.node.base.holds(progress(Some(last(5)))), [holding(5)]);
        assert_eq!(rig.node.base.holds(progress(None)), [], "a resync is in progress");
    }
}

/// The position of a store in its start `number`, which found these counts and has written nothing.
fn at(number: u64, control: u64, groups: u64) -> StorePosition {
    let mut starts = StoreStarts::default();
    starts.begin(StoreStart { number, id: number, control, groups });
    StorePosition { control, groups, starts }
}

/// Whether a renewal of an older copy of a store is accepted.
fn hears_a_copy(mutant: Option<Mutant>) -> bool {
    let mut rig = durable(mutant);
    let renew = |rig: &mut Rig, starts: u64, position: StorePosition| {
        let mut renewal = fixtures::renewal(1, starts, LogIndex(1));
        renewal.me.id.incarnation.starts = starts;
        renewal.position = Some(position.into());
        rig.handle(NodeInput::Renewal { from: renewal.me.id, renewal });
        rig.outputs()
    };
    let first = renew(&mut rig, 1, at(1, 20, 90));
    assert!(first.iter().any(|output| matches!(output, NodeOutput::KeepHeard(_))), "{first:?}");
    let then = renew(&mut rig, 2, at(2, 15, 90));
    !then.iter().any(|output| matches!(output, NodeOutput::RolledBack { number: 2, .. }))
}

/// Whether a lease that an older copy of a store grants is used.
fn takes_a_lease_of_a_copy(mutant: Option<Mutant>) -> bool {
    let mut rig = durable(mutant);
    rig.hear(rig.configs.clone());
    rig.acts_by(rig.configs.applied());
    let mut renewal = fixtures::renewal(1, 1, LogIndex(1));
    renewal.position = Some(at(1, 20, 90).into());
    rig.handle(NodeInput::Renewal { from: renewal.me.id, renewal: renewal.clone() });
    rig.outputs();
    let mut copy = renewal.me.id;
    copy.incarnation.starts = 2;
    rig.node.stands_at(at(1, 2, 3));
    let number = rig.renewals().pop().unwrap().number;
    let renewed =
        Renewed { lease: Some(LEASE), position: Some(at(2, 15, 90).into()), ..Renewed::bare(number, Some(copy)) };
    rig.handle(NodeInput::Renewed { from: copy, renewed: Some(renewed) });
    rig.outputs().iter().any(|output| matches!(output, NodeOutput::Lease(_)))
}

#[test]
fn an_older_copy_grants_no_lease() {
    assert!(!takes_a_lease_of_a_copy(None));
    assert!(takes_a_lease_of_a_copy(Some(Mutant::TakeCopies)));
}

#[test]
fn an_older_copy_is_refused() {
    assert!(!hears_a_copy(None));
}

#[test]
fn an_older_copy_that_is_taken_in_is_heard() {
    assert!(hears_a_copy(Some(Mutant::TakeCopies)));
}
