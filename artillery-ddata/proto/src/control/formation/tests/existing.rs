//! A node whose settings state that its cluster exists creates none.

use super::{
    super::*,
    rules::{NOW, accepted, founding, incarnation, input, proposal, refused, seen, settings, tell},
};
use crate::ClusterId;

fn existing(expect: u16, after: Option<After>) -> Formation {
    let settings = FormationSettings { existing: true, after, ..settings(expect) };
    Formation::new(super::network::founder(incarnation(1, 1)), settings, 1).unwrap()
}

#[test]
fn it_neither_proposes_nor_accepts() {
    let mut alone = existing(1, None);
    assert_eq!((input(&mut alone, NOW, FormationInput::Tick), alone.next_tick()), (vec![], None), "a chain of one");
    let mut node = existing(3, None);
    for other in 2..6 {
        assert_eq!(input(&mut node, NOW, seen(other, None)), []);
    }
    assert_eq!(node.next_tick(), None, "four free nodes are enough for others");
    let propose = FormationMessage::Propose { proposal: Box::new(proposal(1)), progress: accepted(&[1]) };
    let answer = tell(&mut node, incarnation(2, 1), propose);
    assert_eq!(refused(&answer), Some((incarnation(2, 1), RejectReason::Joins)));
    assert!(matches!(node.phase(), FormationPhase::Free { .. }));
}

#[test]
fn it_joins_the_cluster_that_it_meets() {
    let mut node = existing(3, None);
    input(&mut node, NOW, seen(6, Some(9)));
    assert!(node.next_tick().is_some(), "it asks a member");
    tell(&mut node, incarnation(6, 1), FormationMessage::Formed(Box::new(founding(9, &[incarnation(6, 1)]))));
    assert_eq!(node.founding().unwrap().cluster, ClusterId(9));
}

#[test]
fn an_order_to_found_counts_more() {
    let mut node = existing(3, Some(After { lineage: vec![ClusterId(5)], founds: true }));
    input(&mut node, NOW, FormationInput::Tick);
    let at = node.next_tick().unwrap();
    input(&mut node, at, FormationInput::Tick);
    assert_eq!(node.founding().unwrap().succeeds, [ClusterId(5)]);
}

#[test]
fn a_founder_with_another_store_is_recognised() {
    let founding = founding(9, &[incarnation(1, 1), incarnation(2, 1)]);
    let (mut later, mut new) = (incarnation(1, 1), incarnation(1, 1));
    later.incarnation.starts += 1;
    new.incarnation.store ^= 1;
    let known = [later, new, incarnation(7, 1)].map(|id| founding.names_another_store(id));
    assert_eq!(known, [false, true, false]);
}
