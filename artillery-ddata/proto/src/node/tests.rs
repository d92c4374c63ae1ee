//! The messages of a node while its chains lag.

mod durable;
mod giving_way;
mod leaving;
mod loading;
mod ready;
mod returning;

use std::time::Duration;

use super::*;
use crate::{
    ChainConfig, ClusterId, Epoch,
    control::{
        Bootstrap, ChainSettings,
        log::{ChainChange, ConfigChange, LogEntry, LogIndex},
        message::{Farewell, Leave, LeaveStage, Unsettled},
    },
    fixtures::{self, founder, id},
    guards::{Guards, Mutant},
    replica::ChainProgress,
    runner::{ChainOrder, Lease},
};

const LEASE: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// Node 3 of three with two chains, which knows node 1 as the leader.
struct Rig {
    node: NodeMachine,
    now: Timestamp,
    configs: Arc<Configs>,
    open: bool,
}

impl Rig {
    fn new() -> Self {
        let settings = ChainSettings { chains: 2, ..ChainSettings::default() };
        let members = (1..4).map(founder).collect();
        let founding = Bootstrap { settings, ..Bootstrap::new(ClusterId(5), "shop", members) };
        let configs = Arc::new(Configs::of(&founding));
        let node = NodeMachine::new(founder(3), configs.clone(), CoordinatorSettings::default());
        Self { node, now: at(1), configs, open: true }
    }

    /// A node whose chains act by its first configurations.
    fn acting() -> Self {
        let mut rig = Self::new();
        rig.hear(rig.configs.clone());
        rig.outputs();
        rig.acts_by(rig.configs.applied());
        rig.outputs();
        rig
    }

    /// Both chains report that they act by the log up to `upto`.
    fn acts_by(&mut self, upto: LogIndex) {
        (0..2).for_each(|chain| self.says(chain, Word::ActsBy(upto)));
    }

    fn stop(&mut self) {
        self.handle(NodeInput::Leave { until: None });
    }

    fn ends(&mut self) -> bool {
        self.outputs().contains(&NodeOutput::Left)
    }

    fn handle(&mut self, input: NodeInput) {
        self.node.handle(self.now, input);
    }

    fn says(&mut self, chain: u32, word: Word) {
        self.handle(NodeInput::Word { chain: ChainId(chain), word });
    }

    fn hear(&mut self, configs: Arc<Configs>) {
        let voters = (1..4).map(id).collect();
        self.handle(NodeInput::Log { leads: None, leader: Some(id(1)), configs, voters });
    }

    fn outputs(&mut self) -> Vec<NodeOutput> {
        std::iter::from_fn(|| self.node.poll_output()).collect()
    }

    fn orders(&mut self) -> Vec<(u32, ChainOrder)> {
        let orders = self.outputs().into_iter().filter_map(|output| match output {
            NodeOutput::Order(chain, order) => Some((chain.0, order)),
            _ => None,
        });
        orders.collect()
    }

    fn renewals(&mut self) -> Vec<Renewal> {
        self.now = self.now.max(self.node.next_tick().unwrap_or_default());
        let (now, open) = (self.now, self.open);
        let config = |chain| self.configs.get(chain).map(|config| ChainProgress::for_a_test(config.epoch, open));
        std::iter::from_fn(|| self.node.poll_renewal(now, config)).map(|(_, _, renewal)| renewal).collect()
    }

    /// The leader answers the newest renewal.
    fn answer(&mut self, change: impl FnOnce(&mut Renewed)) {
        let number = self.renewals().pop().expect("a renewal is due").number;
        let mut renewed = Renewed { lease: Some(LEASE), settled: Ok(()), ..Renewed::bare(number, Some(id(1))) };
        change(&mut renewed);
        self.handle(NodeInput::Renewed { from: id(1), renewed: Some(renewed) });
    }

    /// The same configurations, with a newer one of chain 0 that doesn't name node 3.
    fn without_me(&self) -> Arc<Configs> {
        self.without(&[(0, 3)])
    }

    /// The same configurations, with a newer one of each of these chains that doesn't name the given node.
    fn without(&self, changes: &[(u32, u8)]) -> Arc<Configs> {
        let mut configs = Configs::clone(&self.configs);
        for &(chain, node) in changes {
            let before = configs.get(ChainId(chain)).unwrap().clone();
            let members = before.members.iter().copied().filter(|member| member.id != id(node)).collect();
            let config = ChainConfig { members, ..before.clone() };
            let change = ConfigChange::Chains(vec![ChainChange { replaces: before.epoch, config }]);
            configs.apply(&LogEntry { index: configs.applied().next(), term: Term(1), change }).unwrap();
        }
        Arc::new(configs)
    }
}

/// The log index in the next renewal when only one of two chains acts by a newer configuration.
fn said_when_one_acts(mut rig: Rig) -> LogIndex {
    let newer = rig.without_me();
    rig.hear(newer.clone());
    let expelled = |(chain, order): &(u32, ChainOrder)| *chain == 0 && matches!(order, ChainOrder::Expelled { .. });
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
    rig.acts_by(newer.applied());
    assert!(rig.outputs().contains(&NodeOutput::Acts(newer.clone())));
    assert_eq!(rig.renewals().pop().unwrap().applied, newer.applied());
}

#[test]
fn no_renewal_before_the_chains_act_by_the_first_configurations() {
    let mut rig = Rig::new();
    rig.hear(rig.configs.clone());
    assert_eq!(rig.orders().len(), 2);
    assert_eq!(rig.renewals(), []);
    rig.acts_by(rig.configs.applied());
    assert_eq!(rig.renewals().len(), 1);
}

#[test]
fn a_report_on_an_older_order_is_ignored() {
    let mut rig = Rig::acting();
    let (old, newer) = (rig.configs.applied(), rig.without_me());
    rig.hear(newer.clone());
    rig.acts_by(old);
    assert_eq!(rig.node.state().configs.applied(), old);
}

#[test]
fn renewals_in_flight_are_bounded() {
    let mut rig = Rig::acting();
    let sent: usize = (0..100).map(|_| rig.renewals().len()).sum();
    assert_eq!(sent, MAX_PENDING_RENEWALS);
    rig.handle(NodeInput::Renewed { from: id(1), renewed: None });
    assert_eq!(rig.renewals().len(), 1, "a renewal without an answer frees its place");
}

#[test]
fn a_node_that_acts_early_says_so_while_a_chain_serves_by_the_old_configuration() {
    let mut rig = Rig::acting();
    let before = rig.configs.applied();
    *rig.node.base.guards_mut() = Guards::without(Mutant::ActEarly);
    assert!(said_when_one_acts(rig) > before);
}

/// Whether the node reports that it is ready, after an answer of the leader with `settled`.
fn told(rig: &mut Rig, settled: Result<(), Unsettled>, change: impl FnOnce(&mut Renewed)) -> bool {
    rig.answer(|renewed| {
        renewed.settled = settled;
        change(renewed);
    });
    rig.outputs().contains(&NodeOutput::Ready)
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
    assert!(!told(&mut rig, Ok(()), |_| {}), "it is reported once");
}

#[test]
fn a_node_that_does_not_listen_to_the_leader_is_ready_too_soon() {
    let mut rig = Rig::acting();
    *rig.node.base.guards_mut() = Guards::without(Mutant::ReadyUnsettled);
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
fn only_the_leader_makes_a_node_ready() {
    let mut rig = Rig::acting();
    rig.answer(|renewed| renewed.leader = Some(id(2)));
    assert!(!rig.outputs().contains(&NodeOutput::Ready));
}
