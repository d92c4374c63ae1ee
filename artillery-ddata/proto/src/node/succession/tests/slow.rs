//! Successions in a network where answers are slow, late, or lost.

use super::*;
use crate::{
    ChainMember, Epoch, Role,
    control::{
        Term,
        log::{ChainChange, ConfigChange, LogEntry, LogIndex},
    },
};

struct Slow {
    rig: Rig,
    takes: Duration,
    leader: Option<MemberId>,
    under_way: Vec<(Timestamp, MemberId, Option<u64>)>,
}

impl Slow {
    fn new(rig: Rig, millis: u64) -> Self {
        Self { rig, takes: Duration::from_millis(millis), leader: None, under_way: vec![] }
    }

    fn send(&mut self) {
        let now = self.rig.now;
        while let Some((to, _, renewal)) = self.rig.node.poll_renewal(now, |_| Some(ChainProgress::default())) {
            let answers = self.rig.answer.contains(&to);
            let after = if answers { self.takes } else { LEASE };
            self.under_way.push((now + after, to, answers.then_some(renewal.number)));
        }
        self.rig.said.extend(std::iter::from_fn(|| self.rig.node.poll_output()));
    }

    fn pass(&mut self, time: Duration) {
        let end = self.rig.now + time;
        loop {
            self.send();
            let next = self.under_way.iter().map(|(at, ..)| *at).chain(self.rig.node.next_tick()).min().unwrap_or(end);
            if next > end {
                self.rig.now = end;
                return;
            }
            self.rig.now = self.rig.now.max(next);
            let now = self.rig.now;
            for (_, from, number) in self.under_way.extract_if(.., |(at, ..)| *at <= now) {
                let renewed = number.map(|number| Renewed::bare(number, self.leader));
                self.rig.node.handle(now, NodeInput::Renewed { from, renewed });
            }
            self.rig.node.handle(now, NodeInput::Tick);
        }
    }

    /// The longest time without a message to node `to`, within `leases`.
    fn longest_silence(&mut self, to: MemberId, leases: u32) -> Duration {
        let (mut longest, mut last) = (Duration::ZERO, self.rig.now);
        let end = self.rig.now + LEASE * leases;
        while self.rig.now < end {
            self.pass(Duration::from_millis(1));
            if self.under_way.iter().any(|(_, under_way, _)| *under_way == to) {
                longest = longest.max(self.rig.now - last);
                last = self.rig.now;
            }
        }
        longest.max(self.rig.now - last)
    }
}

fn is_over(said: &NodeOutput) -> bool {
    *said == NodeOutput::Succeeded { by: BY }
}

#[test]
fn the_last_asked_nodes_have_time_to_answer() {
    let mut slow = Slow::new(Rig::new(4, 10..19, &[18]), 30);
    slow.rig.succeeded();
    slow.pass(LEASE * 20);
    assert_eq!(slow.rig.count(is_over), 0);
}

#[test]
fn a_confirmed_leader_is_one_of_its_own() {
    let mut slow = Slow::new(Rig::new(4, [], &[5]), 5);
    slow.leader = Some(id(5));
    slow.rig.log(Some(id(5)), []);
    slow.pass(LEASE);
    slow.rig.succeeded();
    slow.pass(LEASE * 20);
    assert_eq!(slow.rig.count(is_over), 0);
}

/// The answers have arrived, but the calls time out before they are read.
#[test]
fn a_short_pause_makes_no_node_give_way() {
    let mut slow = Slow::new(Rig::new(4, [1, 5], &[1, 2, 3, 5]), 5);
    slow.pass(LEASE * 3);
    slow.rig.succeeded();
    slow.send();
    slow.rig.now = slow.rig.now + LEASE * 14 / 10;
    slow.rig.node.handle(slow.rig.now, NodeInput::Tick);
    slow.pass(LEASE * 20);
    assert_eq!(slow.rig.count(is_over), 0);
}

#[test]
fn a_paused_node_takes_no_member_for_gone() {
    let mut slow = Slow::new(Rig::new(4, [], &[1, 2, 3]), 5);
    slow.pass(LEASE * 10);
    slow.rig.now = slow.rig.now + LEASE * 10;
    slow.pass(LEASE * 10);
    assert_eq!(slow.rig.events(NodeEvent::Orphaned), 0);
}

/// A node asks silent nodes in addition to its renewals, never instead of them.
#[test]
fn the_leader_hears_a_node_beside_many_silent_ones() {
    for (me, told) in [(4, false), (4, true), (3, true)] {
        let mut rig = Rig::new(me, 10..40, &[30]);
        rig.log(Some(id(30)), 10..40);
        let mut slow = Slow::new(rig, 5);
        slow.leader = Some(id(30));
        slow.pass(LEASE * 10);
        if told {
            slow.rig.succeeded();
        }
        let silence = slow.longest_silence(id(30), 30);
        assert!(silence < LEASE / 2, "node {me}, with a successor: {told}: {silence:?}");
    }
}

/// A cluster of two: the other member restarts, joins, and answers.
#[test]
fn a_last_copy_with_a_joiner_goes_on() {
    let mut rig = Rig::new(3, [3], &[9]);
    let mut configs = (**rig.node.configs()).clone();
    let old = configs.get(ChainId(0)).unwrap().clone();
    let members = vec![ChainMember { id: id(3), role: Role::Serving }, ChainMember { id: id(9), role: Role::Syncing }];
    let change = ChainChange { replaces: old.epoch, config: crate::ChainConfig { members, ..old } };
    let index = configs.applied().next();
    configs.apply(&LogEntry { term: Term(1), index, change: ConfigChange::Chains(vec![change]) }).unwrap();
    let (configs, voters) = (Arc::new(configs), BTreeSet::from([id(3)]));
    rig.node.handle(rig.now, NodeInput::Log { leads: None, leader: None, configs, voters });
    rig.succeeded_for(20);
    assert_eq!(rig.yields_and_refusals(), (0, 1));
}

#[test]
fn a_node_that_gave_way_serves_again_under_the_history_that_an_operator_begins() {
    let mut rig = Rig::new(3, [1, 2, 3], &[]);
    rig.succeeded_for(5);
    assert_eq!(rig.yields(), 1);
    let old = rig.node.configs().clone();
    let configs = Arc::new(old.recovered(old.history().next(77), founder(3), Epoch(1), LogIndex(9)));
    let voters = BTreeSet::from([id(3)]);
    rig.node.handle(rig.now, NodeInput::Log { leads: Some(Term(9)), leader: Some(id(3)), configs, voters });
    rig.succeeded_for(20);
    assert_eq!((rig.orders(&ChainOrder::Proceed), rig.yields()), (1, 1));
}

#[test]
fn two_successors_that_are_met_in_turn_are_decided_on() {
    let mut rig = Rig::new(4, [], &[]);
    for turn in 0..40 {
        rig.node.handle(rig.now, NodeInput::Succeeded { by: ClusterId(6 + turn % 2) });
        rig.pass(LEASE / 2);
    }
    assert_eq!(rig.count(is_over), 1);
}

/// The answer stayed in the socket while the node was paused for a minute.
#[test]
fn an_old_answer_of_the_leader_makes_no_node_ready() {
    let mut rig = Rig::new(4, [5], &[]);
    rig.log(Some(id(5)), [5]);
    rig.now = rig.now + LEASE;
    rig.node.handle(rig.now, NodeInput::Tick);
    let sent = std::iter::from_fn(|| rig.node.poll_renewal(rig.now, |_| Some(ChainProgress::default())));
    let (_, _, renewal) = sent.into_iter().find(|(to, ..)| *to == id(5)).unwrap();
    rig.now = rig.now + LEASE * 60;
    let renewed = Renewed { settled: Ok(()), ..Renewed::bare(renewal.number, Some(id(5))) };
    rig.node.handle(rig.now, NodeInput::Renewed { from: id(5), renewed: Some(renewed) });
    rig.said.extend(std::iter::from_fn(|| rig.node.poll_output()));
    assert_eq!(rig.count(|said| *said == NodeOutput::Ready), 0);
}
