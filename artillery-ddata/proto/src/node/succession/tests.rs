//! Nodes that give way to a successor of their cluster, nodes that continue, and nodes that report that the members are
//! gone.

mod gave_way;
mod slow;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::*;
use crate::{
    ChainId, ClusterId,
    api::Refusal,
    control::{
        Bootstrap, Configs, Timing,
        message::{Renewal, Renewed},
    },
    fixtures::{self, founder, id},
    node::{CoordinatorOutput, CoordinatorSettings, NodeInput, NodeMachine},
    replica::ChainProgress,
    runner::Word,
};

const LEASE: Duration = Duration::from_secs(1);
const BY: ClusterId = ClusterId(6);

/// A node of a cluster in which nodes 1 to 3 serve the chain; the others of `voters` only keep the log.
struct Rig {
    node: NodeMachine,
    now: Timestamp,
    answer: BTreeSet<MemberId>,
    asked: BTreeSet<MemberId>,
    /// Renewals that get no answer, and when each ends.
    unanswered: Vec<(Timestamp, MemberId)>,
    said: Vec<NodeOutput>,
}

impl Rig {
    fn new(me: u8, voters: impl IntoIterator<Item = u8>, answer: &[u8]) -> Self {
        let founding = Bootstrap {
            timing: Timing { lease: LEASE, ..Timing::default() },
            ..Bootstrap::new(ClusterId(5), "shop", (1..4).map(founder).collect())
        };
        let configs = Arc::new(Configs::of(&founding));
        let mut node = NodeMachine::new(founder(me), configs.clone(), CoordinatorSettings::default());
        let now = Timestamp::from_nanos(1);
        let voters = voters.into_iter().map(id).collect();
        node.handle(now, NodeInput::Log { leads: None, leader: None, configs: configs.clone(), voters });
        node.handle(now, NodeInput::Word { chain: ChainId(0), word: Word::ActsBy(configs.applied()) });
        let answer = answer.iter().copied().map(id).collect();
        Self { node, now, answer, asked: BTreeSet::new(), unanswered: Vec::new(), said: Vec::new() }
    }

    /// Lets `time` pass; a renewal without an answer ends after a lease.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            while let Some((to, _, renewal)) = self.node.poll_renewal(self.now, |_| Some(ChainProgress::default())) {
                self.asked.insert(to);
                match self.answer.contains(&to) {
                    true => self.renewed(to, &renewal),
                    false => self.unanswered.push((self.now + LEASE, to)),
                }
            }
            self.said.extend(std::iter::from_fn(|| self.node.poll_output()));
            let next = self.unanswered.iter().map(|(at, _)| *at).chain(self.node.next_tick()).min().unwrap_or(end);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            for (_, from) in self.unanswered.extract_if(.., |(at, _)| *at <= next) {
                self.node.handle(next, NodeInput::Renewed { from, renewed: None });
            }
            self.node.handle(self.now, NodeInput::Tick);
        }
    }

    fn renewed(&mut self, from: MemberId, renewal: &Renewal) {
        let renewed = Renewed::bare(renewal.number, None);
        self.node.handle(self.now, NodeInput::Renewed { from, renewed: Some(renewed) });
    }

    fn succeeded(&mut self) {
        self.node.handle(self.now, NodeInput::Succeeded { by: BY });
    }

    /// The node learns of its successor, and `leases` pass.
    fn succeeded_for(&mut self, leases: u32) {
        self.succeeded();
        self.pass(LEASE * leases);
    }

    /// The log reports its current configurations, its leader and its voters.
    fn log(&mut self, leader: Option<MemberId>, voters: impl IntoIterator<Item = u8>) {
        let (configs, voters) = (self.node.configs().clone(), voters.into_iter().map(id).collect());
        self.node.handle(self.now, NodeInput::Log { leads: None, leader, configs, voters });
    }

    fn renewal_of(&mut self, n: u8) {
        let renewal = fixtures::renewal(n, 1, self.node.configs().applied());
        self.node.handle(self.now, NodeInput::Renewal { from: id(n), renewal });
    }

    fn count(&self, of: impl Fn(&NodeOutput) -> bool) -> usize {
        self.said.iter().filter(|said| of(said)).count()
    }

    fn events(&self, event: NodeEvent) -> usize {
        self.count(|said| *said == NodeOutput::Event(event))
    }

    /// How often the chain was ordered to give way, and how often the node refused the successor.
    fn yields_and_refusals(&self) -> (usize, usize) {
        (self.yields(), self.events(NodeEvent::Refuses { by: BY }))
    }

    fn yields(&self) -> usize {
        self.orders(&ChainOrder::Yield { refusal: Refusal::Succeeded { by: BY } })
    }

    fn orders(&self, order: &ChainOrder) -> usize {
        self.count(|said| matches!(said, NodeOutput::Order(_, given) if given == order))
    }
}

#[test]
fn a_spare_reports_that_no_member_answers_and_takes_it_back() {
    let mut rig = Rig::new(4, [], &[]);
    rig.pass(LEASE * 2);
    assert!(!rig.node.state().orphaned, "too early");
    rig.pass(LEASE * 3);
    assert!(rig.node.state().orphaned);
    assert_eq!(rig.node.state().unready, Some(Unready::Orphaned));
    assert!(rig.asked.is_superset(&[1, 2, 3].map(id).into()));
    rig.pass(LEASE * 10);
    assert_eq!(rig.events(NodeEvent::Orphaned), 1, "it is reported once");
    rig.answer.insert(id(2));
    rig.pass(LEASE * 2);
    assert!(!rig.node.state().orphaned);
}

#[test]
fn one_answering_member_is_enough() {
    let mut rig = Rig::new(4, [], &[3]);
    rig.pass(LEASE * 30);
    assert_eq!(rig.events(NodeEvent::Orphaned), 0);
    let mut member = Rig::new(3, [], &[]);
    member.pass(LEASE * 30);
    assert_eq!(member.events(NodeEvent::Orphaned), 0, "this incarnation has served");
    assert!(member.node.state().served && !rig.node.state().served);
}

#[test]
fn a_member_that_is_alone_gives_way_and_goes_on_when_it_hears_another() {
    let mut rig = Rig::new(3, [1, 2, 3], &[]);
    rig.succeeded_for(2);
    assert_eq!(rig.yields(), 0, "others have a lease to answer, twice");
    rig.pass(LEASE / 5);
    assert_eq!(rig.yields(), 1);
    assert_eq!(rig.node.state().successor, Some(Successor { by: BY, yields: true }));
    assert_eq!(rig.node.state().unready, Some(Unready::Yields { by: BY }));
    rig.renewal_of(9);
    rig.pass(LEASE * 20);
    assert_eq!(
        rig.count(|said| matches!(
            said,
            NodeOutput::Coordinator(CoordinatorOutput::Answer { .. }) | NodeOutput::Succeeded { .. }
        )),
        0,
        "it admits no node"
    );
    assert_eq!(rig.orders(&ChainOrder::Proceed), 0);
    rig.renewal_of(1);
    rig.pass(LEASE * 3);
    assert_eq!(
        rig.count(|said| matches!(said, NodeOutput::Coordinator(CoordinatorOutput::Answer { .. }))),
        1,
        "nodes of its own cluster may learn that it is alive"
    );
    assert_eq!(rig.orders(&ChainOrder::Proceed), 0, "that message may be old");
    rig.answer.insert(id(1));
    rig.pass(LEASE * 2);
    assert_eq!(rig.orders(&ChainOrder::Proceed), 1);
    assert_eq!(rig.node.state().successor, Some(Successor { by: BY, yields: false }));
    rig.answer.clear();
    rig.succeeded_for(30);
    assert_eq!(rig.yields(), 1, "the other cluster was created while this one was alive");
}

#[test]
fn a_member_that_hears_one_that_serves_or_keeps_the_log_goes_on() {
    for other in [1, 5] {
        let mut rig = Rig::new(3, [3, 4, 5], &[other]);
        rig.succeeded_for(30);
        assert_eq!(rig.yields_and_refusals(), (0, 1), "{other}");
    }
    let mut rig = Rig::new(3, [3, 4], &[9]);
    rig.succeeded();
    rig.renewal_of(9);
    rig.pass(LEASE * 5);
    assert_eq!(rig.yields(), 1, "node 9 has no role in the cluster");
}

#[test]
fn silent_nodes_hide_no_answering_member() {
    let mut rig = Rig::new(3, 10..40, &[39]);
    rig.succeeded_for(30);
    assert_eq!(rig.yields(), 0);
}

#[test]
fn a_node_that_was_paused_asks_again_before_it_gives_way() {
    let mut rig = Rig::new(3, [1, 2, 3], &[]);
    rig.succeeded();
    rig.now = rig.now + LEASE * 60;
    rig.answer = [id(1)].into();
    rig.pass(LEASE * 5);
    assert_eq!(rig.yields(), 0);
}

#[test]
fn a_node_without_a_part_ends_unless_it_hears_its_own() {
    let ends = |said: &NodeOutput| *said == NodeOutput::Succeeded { by: BY };
    let mut rig = Rig::new(4, [1, 5], &[]);
    rig.succeeded_for(20);
    assert_eq!((rig.count(ends), rig.yields()), (1, 0));
    for other in [2, 5] {
        let mut rig = Rig::new(4, [1, 5], &[other]);
        rig.succeeded_for(20);
        assert_eq!((rig.count(ends), rig.events(NodeEvent::Refuses { by: BY })), (0, 1), "{other}");
    }
}

/// The voter may be cut off only temporarily. If it joined the successor, its own cluster would lose it.
#[test]
fn a_voter_stays_until_an_operator_says_otherwise() {
    let mut rig = Rig::new(4, [1, 4, 5], &[]);
    rig.succeeded_for(20);
    assert_eq!(rig.count(|said| matches!(said, NodeOutput::Succeeded { .. })), 0);
    assert!(rig.node.state().orphaned);
}

mod without {
    use super::*;
    use crate::guards::{Guards, Mutant};

    /// The member would acknowledge writes next to the other cluster, which the operator believes to be the only one.
    #[test]
    fn a_lone_member_that_never_gives_way_serves_beside_the_successor() {
        let mut rig = Rig::new(3, [1, 2, 3], &[]);
        *rig.node.base.guards_mut() = Guards::without(Mutant::NeverYield);
        rig.succeeded_for(20);
        assert_eq!(rig.yields(), 0);
    }

    #[test]
    fn a_member_that_gives_way_at_once_ends_a_cluster_whose_nodes_are_there() {
        let mut rig = Rig::new(3, [1, 2, 3], &[1, 2]);
        *rig.node.base.guards_mut() = Guards::without(Mutant::YieldAtOnce);
        rig.succeeded_for(20);
        assert_eq!((rig.yields(), rig.orders(&ChainOrder::Proceed)), (1, 0));
    }
}

const NEWER: History = History { generation: 1, id: 9 };

#[test]
fn a_node_whose_history_has_parted_serves_nothing_until_an_operator_has_it_go_on() {
    let mut rig = Rig::new(1, [1, 2, 3], &[2, 3]);
    for _ in 0..2 {
        rig.node.handle(rig.now, NodeInput::Parted { by: NEWER });
        rig.pass(LEASE * 5);
    }
    let parted = ChainOrder::Yield { refusal: Refusal::Parted { by: NEWER } };
    assert_eq!((rig.orders(&parted), rig.orders(&ChainOrder::Proceed)), (1, 0), "even if the other members answer");
    assert!(rig.node.state().gives_way().is_some());
    assert_eq!(rig.node.state().unready, Some(Unready::Parted { by: NEWER }));
    let configs =
        rig.node.configs().recovered(NEWER.next(3), founder(1), crate::Epoch(9), rig.node.configs().applied());
    let voters = BTreeSet::from([id(1)]);
    rig.node.handle(rig.now, NodeInput::Log { leads: None, leader: None, configs: Arc::new(configs), voters });
    rig.pass(LEASE);
    assert_eq!((rig.orders(&ChainOrder::Proceed), rig.node.state().gives_way().is_some()), (1, false));
}

#[test]
fn a_node_whose_history_has_parted_does_not_go_on_because_it_refuses_another_cluster() {
    let mut rig = Rig::new(1, [1, 2, 3], &[]);
    rig.succeeded_for(6);
    assert_eq!(rig.yields(), 1);
    rig.node.handle(rig.now, NodeInput::Parted { by: NEWER });
    rig.answer.extend([id(2), id(3)]);
    rig.pass(LEASE * 6);
    assert_eq!(rig.events(NodeEvent::Refuses { by: BY }), 1);
    assert_eq!((rig.orders(&ChainOrder::Proceed), rig.node.state().gives_way().is_some()), (0, true));
}
