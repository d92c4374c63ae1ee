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

/// Nodes that believed each other would serve next to the cluster that replaced theirs.
#[test]
fn nodes_that_were_away_together_and_believe_each_other_continue() {
    let mut rig = Rig::new(1, [1, 2, 3], &[2, 3]);
    *rig.node.base.guards_mut() = crate::guards::Guards::without(crate::guards::Mutant::AnyAnswerRefutes);
    rig.gave_way_for(10);
    assert_eq!(rig.yields_and_refusals(), (0, 1));
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

/// Runs a confirmed leader of the voters that receives the false statement that its cluster gave way.
fn leader_yields(voters: &[u8], answer: &[u8]) -> (usize, bool, Option<Unready>) {
    let mut rig = Rig::new(1, voters.iter().copied(), answer);
    let configs = rig.node.configs().clone();
    let ids: BTreeSet<_> = voters.iter().copied().map(id).collect();
    let log = NodeInput::Log { leads: Some(crate::control::Term(1)), leader: Some(id(1)), configs, voters: ids };
    rig.node.handle(rig.now, log);
    for step in 0..60 {
        if step == 20 {
            assert!(rig.now - rig.node.state().heard < LEASE, "confirmed before the statement");
            rig.node.handle(rig.now, NodeInput::GaveWay { by: BY });
        }
        rig.node.handle(rig.now, NodeInput::Tick);
        while let Some((to, _, renewal)) = rig.node.poll_renewal(rig.now, |_| Some(ChainProgress::default())) {
            let renewed = Renewed::bare(renewal.number, Some(id(1)));
            rig.node.handle(rig.now, NodeInput::Renewed { from: to, renewed: Some(renewed) });
        }
        let outputs: Vec<_> = std::iter::from_fn(|| rig.node.poll_output()).collect();
        for output in outputs {
            if let NodeOutput::Coordinator(CoordinatorOutput::Confirm { round, .. }) = output {
                let answered = answer.iter().map(|&n| (id(n), rig.now)).collect();
                rig.node.handle(rig.now, NodeInput::Confirmed { round, leads: true, answered });
            }
            rig.said.push(output);
        }
        rig.said.extend(std::iter::from_fn(|| rig.node.poll_output()));
        rig.now = rig.now + LEASE / 4;
    }
    assert!(rig.now - rig.node.state().heard < LEASE, "still a confirmed leader");
    (rig.yields(), rig.node.state().successor.is_some_and(|known| known.yields), rig.node.state().unready)
}

#[test]
fn a_confirmed_leader_refutes_a_false_statement_by_itself() {
    for (voters, answer) in [(&[1, 2, 3][..], &[2, 3][..]), (&[1], &[])] {
        let (yields, state, unready) = leader_yields(voters, answer);
        assert_eq!((yields, state), (0, false), "of voters {voters:?}: {unready:?}");
    }
}
