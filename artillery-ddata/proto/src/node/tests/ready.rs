//! Whether a node is ready when it acts by a newer configuration between a renewal and its answer.

use super::*;

/// The leader answers renewal `number`. A leader that sends configurations in its answer doesn't call the node settled.
fn answer(rig: &mut Rig, number: u64, configs: Option<&Arc<Configs>>) -> bool {
    let settled = if configs.is_some() { Err(Unsettled::Behind) } else { Ok(()) };
    let configs = configs.map(|configs| Box::new(Configs::clone(configs)));
    let renewed = Renewed { lease: Some(LEASE), settled, configs, ..Renewed::bare(number, Some(id(1))) };
    rig.handle(NodeInput::Renewed { from: id(1), renewed: Some(renewed) });
    rig.outputs().contains(&NodeOutput::Ready)
}

/// Chain 0 without node 2: its next epoch isn't open at node 3 yet.
fn next(rig: &Rig) -> Arc<Configs> {
    let next = rig.without(&[(0, 2)]);
    assert!(next.get(ChainId(0)).unwrap().epoch > rig.configs.get(ChainId(0)).unwrap().epoch);
    next
}

/// The answer that brings the configurations doesn't make the node act by them: its chains must report that first.
#[test]
fn an_answer_that_brings_a_configuration_is_judged_by_the_one_in_force() {
    let mut rig = Rig::acting();
    let (next, number) = (next(&rig), rig.renewals().pop().unwrap().number);
    assert!(!answer(&mut rig, number, Some(&next)));
    assert_eq!(rig.node.configs().applied(), next.applied());
    assert_eq!(rig.node.state().configs.applied(), rig.configs.applied());
    assert_eq!(rig.node.state().unready, Some(Unready::Unsettled(Unsettled::Behind)));
}

/// Both renewals report that the chains are open. The leader receives the second one first, decides the next
/// configuration, and receives the first one.
#[test]
fn a_node_is_not_ready_in_an_epoch_that_opens_after_its_renewal() {
    for by_answer in [true, false] {
        let mut rig = Rig::acting();
        let [first, second] = [(); 2].map(|()| rig.renewals().pop().unwrap().number);
        let next = next(&rig);
        match by_answer {
            true => assert!(!answer(&mut rig, first, Some(&next))),
            false => rig.hear(next.clone()),
        }
        rig.acts_by(next.applied());
        assert_eq!(rig.node.state().configs.applied(), next.applied());
        assert!(!answer(&mut rig, second, None), "that statement is older than the epoch");
        assert_eq!(rig.node.state().unready, Some(Unready::Closed { chain: ChainId(0) }));
        rig.configs = next;
        let third = rig.renewals().pop().unwrap().number;
        assert!(answer(&mut rig, third, None), "the chains are open now");
    }
}
