//! What a node says, and when, while its chains lag.

use std::time::Duration;

use super::*;
use crate::{
    ChainConfig, ClusterId, Epoch, Incarnation,
    control::{
        ChainSettings, Founding,
        log::{Change, LogEntry},
        message::{Farewell, Leave, Stage},
    },
};

const LEASE: Duration = Duration::from_secs(1);

fn id(n: u8) -> MemberId {
    MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: 1, starts: 1 } }
}

fn founder(n: u8) -> Founder {
    Founder { id: id(n), name: format!("n{n}"), addrs: vec![] }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// Node 3 of three with two chains, told that node 1 leads.
struct Rig {
    node: Node,
    now: Timestamp,
    configs: Arc<Configs>,
    /// What the chains say of themselves.
    open: bool,
}

impl Rig {
    fn new() -> Self {
        let settings = ChainSettings { chains: 2, ..ChainSettings::default() };
        let members = (1..4).map(founder).collect();
        let founding = Founding { settings, ..Founding::new(ClusterId(5), "shop", members) };
        let configs = Arc::new(Configs::of(&founding));
        let node = Node::new(founder(3), configs.clone(), Settings::default());
        Self { node, now: at(1), configs, open: true }
    }

    /// One whose chains act by what it has begun with.
    fn acting() -> Self {
        let mut rig = Self::new();
        let upto = rig.configs.applied();
        rig.hear(rig.configs.clone());
        rig.outputs();
        (0..2).for_each(|chain| rig.says(chain, Word::ActsBy(upto)));
        rig.outputs();
        rig
    }

    fn handle(&mut self, input: Input) {
        self.node.handle(self.now, input);
    }

    fn says(&mut self, chain: u32, word: Word) {
        self.handle(Input::Word { chain: ChainId(chain), word });
    }

    fn hear(&mut self, configs: Arc<Configs>) {
        let voters = (1..4).map(id).collect();
        self.handle(Input::Log { leads: None, leader: Some(id(1)), configs, voters });
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.node.poll_output()).collect()
    }

    fn orders(&mut self) -> Vec<(u32, Order)> {
        let orders = self.outputs().into_iter().filter_map(|output| match output {
            Output::Order(chain, order) => Some((chain.0, order)),
            _ => None,
        });
        orders.collect()
    }

    /// The renewals that are due now.
    fn renewals(&mut self) -> Vec<Renewal> {
        self.now = self.now.max(self.node.next_tick().unwrap_or_default());
        let (now, open) = (self.now, self.open);
        let config = |chain| self.configs.get(chain).map(|config| Progress::for_a_test(config.epoch, open));
        std::iter::from_fn(|| self.node.poll_renewal(now, config)).map(|(_, _, renewal)| renewal).collect()
    }

    /// The leader answers the newest renewal.
    fn answer(&mut self, change: impl FnOnce(&mut Renewed)) {
        let number = self.renewals().pop().expect("a renewal is due").number;
        let mut renewed = Renewed { lease: Some(LEASE), settled: Ok(()), ..Renewed::bare(number, Some(id(1))) };
        change(&mut renewed);
        self.handle(Input::Renewed { from: id(1), renewed: Some(renewed) });
    }

    /// The same configurations, and one of chain 0 that doesn't name node 3.
    fn without_me(&self) -> Arc<Configs> {
        self.naming(|other| other != id(3))
    }

    /// The same configurations, and one of chain 0 that names node 3 alone.
    fn only_me(&self) -> Arc<Configs> {
        self.naming(|other| other == id(3))
    }

    fn naming(&self, stays: impl Fn(MemberId) -> bool) -> Arc<Configs> {
        let before = self.configs.get(ChainId(0)).unwrap();
        let members = before.members.iter().copied().filter(|member| stays(member.id)).collect();
        let config = ChainConfig { members, ..before.clone() };
        let change = crate::control::log::ChainChange { replaces: before.epoch, config };
        let index = self.configs.applied().next();
        let mut configs = Configs::clone(&self.configs);
        configs.apply(&LogEntry { index, term: Term(1), change: Change::Chains(vec![change]) }).unwrap();
        Arc::new(configs)
    }
}

/// What the next renewals say that the chains act by, when one of two does.
fn said_when_one_acts(mut rig: Rig) -> LogIndex {
    let newer = rig.without_me();
    rig.hear(newer.clone());
    let expelled = |(chain, order): &(u32, Order)| *chain == 0 && matches!(order, Order::Expelled { .. });
    assert!(rig.orders().iter().any(expelled));
    rig.says(1, Word::ActsBy(newer.applied()));
    rig.renewals().pop().expect("a renewal is due").applied
}

#[test]
fn a_node_says_that_it_acts_by_a_configuration_once_all_its_chains_do() {
    let mut rig = Rig::acting();
    let before = rig.configs.applied();
    assert_eq!(said_when_one_acts(Rig::acting()), before);
    let newer = rig.without_me();
    rig.hear(newer.clone());
    (0..2).for_each(|chain| rig.says(chain, Word::ActsBy(newer.applied())));
    assert!(rig.outputs().contains(&Output::Acts(newer.clone())));
    assert_eq!(rig.renewals().pop().unwrap().applied, newer.applied());
}

#[test]
fn nothing_is_said_before_the_chains_act_by_what_is_known_at_first() {
    let mut rig = Rig::new();
    rig.hear(rig.configs.clone());
    assert_eq!(rig.orders().len(), 2);
    assert_eq!(rig.renewals(), []);
    let upto = rig.configs.applied();
    (0..2).for_each(|chain| rig.says(chain, Word::ActsBy(upto)));
    assert_eq!(rig.renewals().len(), 1);
}

#[test]
fn a_word_about_an_older_order_counts_for_nothing() {
    let mut rig = Rig::acting();
    let (old, newer) = (rig.configs.applied(), rig.without_me());
    rig.hear(newer.clone());
    (0..2).for_each(|chain| rig.says(chain, Word::ActsBy(old)));
    assert_eq!(rig.node.state().configs.applied(), old);
}

#[test]
fn only_so_many_renewals_wait_for_answers() {
    let mut rig = Rig::acting();
    let sent: usize = (0..100).map(|_| rig.renewals().len()).sum();
    assert_eq!(sent, RENEWALS);
    rig.handle(Input::Renewed { from: id(1), renewed: None });
    assert_eq!(rig.renewals().len(), 1, "an answer that will never come makes room");
}

fn agree(renewed: &mut Renewed, leave: crate::control::message::Leave) {
    renewed.leave = Some(leave.resigned());
}

#[test]
fn a_node_resigns_once_all_its_chains_act_by_no_lease() {
    let mut rig = Rig::acting();
    rig.handle(Input::Leave { until: None });
    let asks = rig.renewals().pop().unwrap().leave;
    assert_eq!(asks.stage, Stage::Asks);
    rig.answer(|renewed| agree(renewed, asks));
    assert_eq!(rig.orders(), [(0, Order::Resign), (1, Order::Resign)]);
    rig.says(0, Word::Resigned);
    assert_eq!(rig.renewals().pop().unwrap().leave.stage, Stage::Asks, "a chain may still act by the lease");
    rig.says(1, Word::Resigned);
    assert_eq!(rig.renewals().pop().unwrap().leave.stage, Stage::Resigned);
}

#[test]
fn leases_of_before_a_resignation_are_of_another_stretch() {
    let mut rig = Rig::acting();
    rig.handle(Input::Leave { until: None });
    let asks = rig.renewals().pop().unwrap().leave;
    rig.answer(|renewed| agree(renewed, asks));
    (0..2).for_each(|chain| rig.says(chain, Word::Resigned));
    rig.outputs();
    rig.answer(|renewed| renewed.leave = Some(asks.resigned().back(Stage::Asks)));
    let outputs = rig.outputs();
    assert!(outputs.contains(&Output::Lease(Lease { stretch: 1, ..Lease::default() })), "{outputs:?}");
    assert!(outputs.contains(&Output::Order(ChainId(1), Order::Resume { stretch: 1 })), "{outputs:?}");
    rig.answer(|_| {});
    let granted =
        |output: &Output| matches!(output, Output::Lease(Lease { stretch: 1, until, .. }) if *until > rig.now);
    let outputs: Vec<_> = std::iter::from_fn(|| rig.node.poll_output()).collect();
    assert!(outputs.iter().any(granted), "{outputs:?}");
}

#[test]
fn a_node_that_the_log_needs_has_not_left_though_no_configuration_names_it() {
    let mut rig = Rig::acting();
    rig.handle(Input::Leave { until: None });
    let gone = {
        let mut configs = Configs::clone(&rig.without_me());
        let before = configs.get(ChainId(1)).unwrap().clone();
        let members = before.members.iter().copied().filter(|member| member.id != id(3)).collect();
        let change =
            crate::control::log::ChainChange { replaces: before.epoch, config: ChainConfig { members, ..before } };
        let index = configs.applied().next();
        configs.apply(&LogEntry { index, term: Term(1), change: Change::Chains(vec![change]) }).unwrap();
        Arc::new(configs)
    };
    rig.hear(gone.clone());
    assert!(!rig.outputs().contains(&Output::Left), "it keeps the log");
    let voters = [id(1), id(2)].into();
    rig.handle(Input::Log { leads: None, leader: Some(id(1)), configs: gone, voters });
    assert!(rig.outputs().contains(&Output::Left));
}

#[cfg(feature = "mutants")]
#[test]
fn a_node_that_acts_early_says_so_while_a_chain_serves_by_the_old_configuration() {
    let mut rig = Rig::acting();
    let before = rig.configs.applied();
    rig.node = rig.node.with_mutant(Some(Mutant::ActEarly));
    assert!(said_when_one_acts(rig) > before);
}

/// What the node says about being ready once its chains stand like this and the leader answers like that.
fn told(rig: &mut Rig, settled: Result<(), Unsettled>, change: impl FnOnce(&mut Renewed)) -> bool {
    rig.answer(|renewed| {
        renewed.settled = settled;
        change(renewed);
    });
    rig.outputs().contains(&Output::Ready)
}

#[test]
fn a_node_is_ready_when_the_leader_says_that_any_other_one_may_be_stopped() {
    let mut rig = Rig::acting();
    let changes = Err(Unsettled::Changes);
    for _ in 0..100 {
        assert!(!told(&mut rig, changes, |_| {}), "however long that takes");
    }
    assert_eq!(rig.node.state().unready, Some(Unready::Unsettled(Unsettled::Changes)));
    assert!(told(&mut rig, Ok(()), |_| {}));
    assert_eq!(rig.node.state().unready, None);
    assert!(!told(&mut rig, changes, |_| {}));
    assert!(!told(&mut rig, Ok(()), |_| {}), "it says so once");
}

#[cfg(feature = "mutants")]
#[test]
fn a_node_that_does_not_listen_to_the_leader_is_ready_too_soon() {
    let mut rig = Rig::acting();
    rig.node = rig.node.with_mutant(Some(Mutant::ReadyUnsettled));
    assert!(told(&mut rig, Err(Unsettled::Changes), |_| {}));
}

#[test]
fn a_member_is_ready_only_with_a_lease_and_open_chains() {
    let mut rig = Rig::acting();
    rig.open = false;
    assert!(!told(&mut rig, Ok(()), |_| {}));
    assert_eq!(rig.node.state().unready, Some(Unready::Closed { chain: ChainId(0) }));
    rig.open = true;
    rig.now = rig.now + LEASE * 2;
    assert!(!told(&mut rig, Ok(()), |renewed| renewed.lease = None));
    assert_eq!(rig.node.state().unready, Some(Unready::NoLease));
    assert!(told(&mut rig, Ok(()), |_| {}));
}

#[test]
fn another_node_than_the_leader_says_nothing_about_being_ready() {
    let mut rig = Rig::acting();
    rig.answer(|renewed| renewed.leader = Some(id(2)));
    assert!(!rig.outputs().contains(&Output::Ready));
}

/// Node 3 is to stop, and hears this.
fn stops(farewell: Option<Farewell>) -> (Rig, Vec<Output>) {
    let mut rig = Rig::acting();
    rig.handle(Input::Leave { until: None });
    rig.answer(|renewed| renewed.farewell = farewell);
    let outputs = rig.outputs();
    (rig, outputs)
}

/// A node other than the leader answers what it was asked last.
fn is_there(rig: &mut Rig, n: u8) {
    let number = rig.renewals().pop().expect("it is asked").number;
    rig.handle(Input::Renewed { from: id(n), renewed: Some(Renewed::bare(number, Some(id(1)))) });
}

fn passes(rig: &mut Rig, leases: u32) -> Vec<Output> {
    rig.now = rig.now + LEASE * leases;
    rig.handle(Input::Tick);
    rig.outputs()
}

#[test]
fn a_node_that_is_to_stop_waits_while_it_hands_over() {
    let (mut rig, outputs) = stops(Some(Farewell::HandsOver));
    assert!(outputs.contains(&Output::Event(Event::HandsOver)));
    for _ in 0..10 {
        assert!(!passes(&mut rig, 2).contains(&Output::Left));
        rig.answer(|renewed| renewed.farewell = Some(Farewell::HandsOver));
        assert!(!rig.outputs().contains(&Output::Event(Event::HandsOver)), "it says so once");
    }
    passes(&mut rig, 3);
    assert_eq!(passes(&mut rig, 1), [], "no other node answers: they may be gone, and what it holds would be");
}

#[test]
fn a_node_that_is_to_stop_ends_when_another_member_answers() {
    let (mut rig, _) = stops(Some(Farewell::GoesOn));
    assert_eq!(passes(&mut rig, 3), [], "that is long ago: the others may be gone");
    is_there(&mut rig, 2);
    assert_eq!(passes(&mut rig, 1), [Output::Event(Event::GivesUp), Output::Left]);
    let (mut rig, _) = stops(Some(Farewell::GoesOn));
    assert!(!passes(&mut rig, 60).contains(&Output::Left), "it was paused for a minute: the others may be gone");
}

/// Two of three are killed, and the log has no quorum: no configuration says that the third one is the last.
#[test]
fn a_node_that_is_to_stop_and_hears_nobody_waits() {
    let mut rig = Rig::acting();
    passes(&mut rig, 20);
    rig.handle(Input::Leave { until: None });
    assert_eq!(passes(&mut rig, 3), []);
    assert_eq!(passes(&mut rig, 1), [Output::Event(Event::Waits)]);
    passes(&mut rig, 3);
    assert_eq!(passes(&mut rig, 1), []);
}

#[test]
fn a_word_that_is_taken_back_ends_no_node() {
    for newer in [Some(Farewell::HandsOver), None] {
        let (mut rig, _) = stops(Some(Farewell::GoesOn));
        passes(&mut rig, 2);
        rig.answer(|renewed| renewed.farewell = Some(Farewell::GoesOn));
        // The leader has noticed that the other member is gone, and ends itself. It serves nothing.
        rig.node.hear_farewell(rig.now, newer);
        rig.node.company = Company::default();
        rig.outputs();
        let last = (0..4).flat_map(|_| passes(&mut rig, 1)).any(|output| output == Output::Left);
        assert!(!last, "{newer:?}: it may be the last copy");
    }
}

#[test]
fn a_leader_that_takes_back_that_all_ends_waits() {
    let mut rig = Rig::acting();
    let (voters, configs) = ((1..4).map(id).collect(), rig.configs.clone());
    rig.handle(Input::Log { leads: Some(Term(1)), leader: Some(id(3)), configs, voters });
    rig.handle(Input::Leave { until: None });
    rig.outputs();
    rig.node.hear_farewell(rig.now, Some(Farewell::Ends));
    rig.node.hear_farewell(rig.now, Some(Farewell::HandsOver));
    let last = (0..6).flat_map(|_| passes(&mut rig, 1)).any(|output| output == Output::Left);
    assert!(!last, "another node was about to take over");
    rig.node.hear_farewell(rig.now, Some(Farewell::Ends));
    assert!(passes(&mut rig, 1).contains(&Output::Left), "that one leaves too");
}

/// The node is paused for half a lease more than it wanted to wait.
#[test]
fn what_a_node_takes_in_after_a_pause_does_not_end_it() {
    let paused = |input: fn(u64) -> Input| {
        let mut rig = Rig::acting();
        passes(&mut rig, 20);
        rig.handle(Input::Leave { until: None });
        let sent = rig.renewals().pop().expect("a renewal is due").number;
        rig.now = rig.now + LEASE * 7 / 2;
        rig.handle(input(sent));
        rig.handle(Input::Tick);
        rig.outputs()
    };
    let answer = |number| {
        let bare = Renewed::bare(number, Some(id(1)));
        let renewed = Renewed { farewell: Some(Farewell::GoesOn), lease: Some(LEASE), ..bare };
        Input::Renewed { from: id(1), renewed: Some(renewed) }
    };
    assert!(!paused(answer).contains(&Output::Left), "an answer");
    let message = |number| {
        let renewal = Renewal {
            number,
            answered: 0,
            me: founder(2),
            applied: LogIndex::default(),
            leave: Leave::default(),
            promotions: vec![],
            reports: vec![],
        };
        Input::Renewal { from: id(2), renewal }
    };
    assert!(!paused(message).contains(&Output::Left), "a message of another member");
}

#[test]
fn a_node_that_is_to_stop_ends_when_no_node_takes_over() {
    let (mut rig, outputs) = stops(Some(Farewell::Ends));
    assert!(!outputs.contains(&Output::Left), "it keeps the log: others are to hear it too");
    assert_eq!(passes(&mut rig, 1), [Output::Event(Event::EndsChain), Output::Left]);
}

#[test]
fn a_node_that_is_to_stop_waits_for_a_while_for_others_to_go_on() {
    let (mut rig, outputs) = stops(Some(Farewell::GoesOn));
    assert!(!outputs.contains(&Output::Left));
    assert!(!passes(&mut rig, 2).contains(&Output::Left));
    rig.answer(|renewed| renewed.farewell = Some(Farewell::GoesOn));
    assert!(passes(&mut rig, 1).contains(&Output::Left));
}

#[test]
fn a_node_that_is_to_stop_and_goes_on_alone_waits_for_others() {
    let mut rig = Rig::acting();
    rig.handle(Input::Leave { until: None });
    let next = rig.configs.history().next(7);
    let alone = rig.configs.recovered(next, id(3), Epoch(9), rig.configs.applied());
    rig.configs = Arc::new(alone);
    rig.hear(rig.configs.clone());
    rig.outputs();
    rig.answer(|renewed| renewed.farewell = Some(Farewell::Ends));
    assert!(!rig.outputs().contains(&Output::Left), "an operator wants what it holds");
    assert!(!passes(&mut rig, 3).contains(&Output::Left));
}

#[test]
fn a_drained_node_hears_no_farewell() {
    let mut rig = Rig::acting();
    let until = rig.now + LEASE * 10;
    rig.handle(Input::Leave { until: Some(until) });
    rig.answer(|renewed| renewed.farewell = Some(Farewell::Ends));
    assert!(!rig.outputs().contains(&Output::Left));
}

#[test]
fn a_last_member_that_is_to_stop_waits_though_no_leader_answers() {
    let mut rig = Rig::acting();
    rig.configs = rig.only_me();
    rig.hear(rig.configs.clone());
    rig.handle(Input::Leave { until: None });
    rig.outputs();
    assert_eq!(passes(&mut rig, 3), [Output::Event(Event::Waits)]);
    assert_eq!(passes(&mut rig, 3), []);
    rig.answer(|renewed| renewed.farewell = Some(Farewell::Ends));
    assert!(passes(&mut rig, 1).contains(&Output::Left));
}

/// Chain 0 is served by nodes 1 and 3, chain 1 by nodes 2 and 3. Node 2 is gone, and node 1 answers.
#[test]
fn a_member_of_another_chain_takes_nothing_over() {
    let mut rig = Rig::acting();
    let mut configs = Configs::clone(&rig.configs);
    for (chain, without) in [(0, 2), (1, 1)] {
        let before = configs.get(ChainId(chain)).unwrap().clone();
        let members = before.members.iter().copied().filter(|member| member.id != id(without)).collect();
        let config = ChainConfig { members, ..before.clone() };
        let change = crate::control::log::ChainChange { replaces: before.epoch, config };
        let index = configs.applied().next();
        configs.apply(&LogEntry { index, term: Term(1), change: Change::Chains(vec![change]) }).unwrap();
    }
    rig.hear(Arc::new(configs));
    passes(&mut rig, 20);
    rig.handle(Input::Leave { until: None });
    for _ in 0..8 {
        assert!(!passes(&mut rig, 1).contains(&Output::Left), "what it holds of chain 1 no other node has");
        is_there(&mut rig, 1);
    }
}

#[test]
fn a_word_that_comes_late_does_not_undo_a_newer_one() {
    let mut rig = Rig::acting();
    rig.handle(Input::Leave { until: None });
    let [first, second] = [0, 1].map(|_| rig.renewals().pop().expect("a renewal is due").number);
    for (number, farewell) in [(second, Farewell::HandsOver), (first, Farewell::Ends)] {
        let bare = Renewed::bare(number, Some(id(1)));
        let renewed = Renewed { lease: Some(LEASE), farewell: Some(farewell), ..bare };
        rig.handle(Input::Renewed { from: id(1), renewed: Some(renewed) });
    }
    assert!(!passes(&mut rig, 1).contains(&Output::Left), "another node takes over");
}
