//! Nodes whose cluster was replaced: one creates the next alone, the others join it, and none returns.

use super::{
    super::*,
    rules::{NOW, accepted, formation, founding, incarnation, input, proposal, refused, seen, settings, tell},
};
use crate::{ClusterId, control::MAX_LINEAGE};

const OVER: ClusterId = ClusterId(5);

fn after(node: u8, founds: bool) -> Formation {
    let after = After { lineage: vec![ClusterId(4), OVER], founds };
    let settings = FormationSettings { after: Some(after), ..settings(3) };
    Formation::new(super::network::founder(incarnation(node, 2)), settings, u128::from(node)).unwrap()
}

/// The message of a node that is still in the old cluster.
fn still_in(over: u128) -> FormationMessage {
    FormationMessage::Formed(Box::new(founding(over, &[incarnation(8, 1)])))
}

#[test]
fn one_founds_alone_beside_nodes_of_the_old_cluster() {
    let mut node = after(1, true);
    assert_eq!(input(&mut node, NOW, seen(2, Some(5))), [], "it searches first");
    let at = node.next_tick().unwrap();
    assert_eq!(input(&mut node, at, FormationInput::Tick), [FormationOutput::Formed(node.founding().unwrap().clone())]);
    let founding = node.founding().unwrap();
    assert_eq!(founding.succeeds, [ClusterId(4), OVER]);
    assert_eq!(founding.members, [super::network::founder(incarnation(1, 2))]);
    assert_eq!(founding.lineage(), [ClusterId(4), OVER, founding.cluster]);
}

/// A supervisor restarts the node with the same flag.
#[test]
fn a_restarted_founder_joins_the_cluster_that_it_founded() {
    let mut node = after(1, true);
    input(&mut node, NOW, seen(6, Some(9)));
    tell(&mut node, incarnation(6, 1), still_in(9));
    assert_eq!(node.founding().unwrap().cluster, ClusterId(9));
}

#[test]
fn the_other_nodes_join_and_do_not_go_back() {
    for over in [4, 5] {
        let mut node = after(1, false);
        for other in 2..6 {
            input(&mut node, NOW, seen(other, None));
        }
        assert_eq!(node.next_tick(), None, "three free nodes are enough for others");
        input(&mut node, NOW, seen(7, Some(over)));
        assert_eq!(tell(&mut node, incarnation(8, 1), still_in(over)), [], "cluster {over} was replaced");
        assert!(node.founding().is_none());
        input(&mut node, NOW, seen(6, Some(9)));
        assert!(node.next_tick().is_some(), "it asks a member of another one");
        tell(&mut node, incarnation(6, 1), still_in(9));
        assert_eq!(node.founding().unwrap().cluster, ClusterId(9));
    }
}

#[test]
fn none_of_them_accepts_another_proposal() {
    for founds in [false, true] {
        let mut node = after(1, founds);
        let mut proposal = proposal(1);
        proposal.founding.members[0].id = incarnation(1, 2);
        let message = FormationMessage::Propose { proposal: Box::new(proposal), progress: accepted(&[1]) };
        let said = tell(&mut node, incarnation(2, 1), message);
        // The creator already has its cluster when it receives the message, and answers with it.
        assert!(founds || refused(&said) == Some((incarnation(2, 1), RejectReason::Elsewhere)), "{said:?}");
        assert!(node.founding().is_none_or(|founding| founding.members.len() == 1));
    }
}

#[test]
fn a_succeeding_cluster_is_never_proposed() {
    let mut node = formation(1, 3);
    let mut proposal = proposal(1);
    proposal.founding.succeeds = vec![OVER];
    let message = FormationMessage::Propose { proposal: Box::new(proposal), progress: accepted(&[1]) };
    assert_eq!(tell(&mut node, incarnation(2, 1), message), []);
    assert!(matches!(node.phase(), FormationPhase::Free { .. }));
}

#[test]
fn a_node_that_gives_way_tells_no_node_to_join() {
    let mut node = formation(1, 1);
    input(&mut node, NOW, FormationInput::Tick);
    let says = |node: &mut Formation| tell(node, incarnation(2, 1), FormationMessage::Ask).len();
    assert_eq!(says(&mut node), 1);
    input(&mut node, NOW, FormationInput::Yields(true));
    assert_eq!(says(&mut node), 0);
    input(&mut node, NOW, FormationInput::Yields(false));
    assert_eq!(says(&mut node), 1);
}

#[test]
fn a_lineage_is_bounded() {
    let lineage: Vec<_> = (0..=MAX_LINEAGE as u128).map(ClusterId).collect();
    let long = FormationSettings { after: Some(After { lineage: lineage.clone(), founds: true }), ..settings(3) };
    assert_eq!(long.validate(), Err(InvalidFormation::Lineage(MAX_LINEAGE + 1)));
    let mut founding = founding(9, &[incarnation(1, 1)]);
    founding.succeeds = lineage;
    assert!(founding.validate().is_err());
    founding.succeeds.pop();
    assert_eq!(founding.lineage().len(), MAX_LINEAGE);
    assert_eq!(founding.lineage().last(), Some(&ClusterId(9)));
    let mut node = formation(1, 3);
    founding.succeeds.push(OVER);
    assert_eq!(tell(&mut node, incarnation(1, 1), FormationMessage::Formed(Box::new(founding))), []);
}
