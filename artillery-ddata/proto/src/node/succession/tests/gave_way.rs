//! Nodes that were away when their cluster gave way to another one.

use super::*;

impl Rig {
    fn gave_way_for(&mut self, leases: u32) {
        self.node.handle(self.now, NodeInput::GaveWay { by: BY });
        self.pass(LEASE * leases);
    }
}

#[test]
fn nodes_that_were_away_together_give_way() {
    let mut rig = Rig::new(1, [1, 2, 3], &[2, 3]);
    rig.gave_way_for(10);
    assert_eq!(rig.yields_and_refusals(), (1, 0), "their answers don't show that the cluster has a leader");
    assert!(rig.node.state().successor.is_some_and(|known| known.yields));
}

#[test]
fn a_voter_that_never_served_reports_it() {
    let mut rig = Rig::new(4, [1, 2, 4], &[]);
    rig.gave_way_for(10);
    assert_eq!((rig.yields(), rig.node.state().unready), (1, Some(Unready::Yields { by: BY })));
}

#[test]
fn a_confirmed_leader_shows_that_the_cluster_has_not_given_way() {
    for leases in [0, 10] {
        let mut rig = Rig::new(1, [1, 2, 3], &[]);
        rig.gave_way_for(leases);
        rig.answer = [2, 3].map(id).into();
        let until = rig.now + LEASE * 5;
        while rig.now < until && rig.events(NodeEvent::Refuses { by: BY }) == 0 {
            rig.node.handle(rig.now, NodeInput::Tick);
            rig.unanswered.drain(..).for_each(|(_, from)| {
                rig.node.handle(rig.now, NodeInput::Renewed { from, renewed: None });
            });
            if let Some((to, _, renewal)) = rig.node.poll_renewal(rig.now, |_| Some(ChainProgress::default())) {
                let renewed = Renewed { leader: Some(to), ..Renewed::bare(renewal.number, None) };
                rig.node.handle(rig.now, NodeInput::Renewed { from: to, renewed: Some(renewed) });
            }
            rig.said.extend(std::iter::from_fn(|| rig.node.poll_output()));
            rig.now = rig.now + LEASE / 4;
        }
        assert_eq!(rig.events(NodeEvent::Refuses { by: BY }), 1, "after {leases} leases");
        assert!(!rig.node.state().successor.unwrap().yields);
    }
}
