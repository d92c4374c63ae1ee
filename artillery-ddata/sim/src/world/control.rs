//! Clusters whose configuration changes: the control state machines of the nodes, and the log on which they agree.
//!
//! The log itself is not under test here: [`group`] models the guarantees of a consensus log, as adversarially as they
//! permit. Leaders change, old leaders still believe that they lead, and proposals are lost or delayed.

mod close;
mod disaster;
mod event;
mod group;
mod lives;
mod loss;
mod messages;
mod operator;
mod stranger;
mod successor;
mod wishes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use artillery_proto::{
    ChainId, ClusterId, Incarnation, MemberId,
    control::{Bootstrap, ChainSettings, History, Timing, log::Configs, message::Promotion},
    node::{CoordinatorOutput as Decision, CoordinatorSettings, NodeInput, NodeMachine as Decider, NodeOutput, Why},
    runner::{ChainOrder, Lease, Word},
};

pub(crate) use self::event::Event;
pub(super) use self::loss::Loss;
use self::{group::Group, messages::Message, operator::Rolling, stranger::Stranger, successor::Successor};
use super::{World, founding::Founders};
use crate::{
    faults::Fault,
    node::{Input as Comes, Node, Work},
    oracle::{ChainOracle, Failure},
    rng::{Concern, Rng},
    scenario::{ControlSetup, HEALED, SECOND, Setup},
};

/// Usual upper bound on the delay before a chain's task receives an order or a lease, in nanoseconds.
const QUICK: u64 = 500_000;

#[derive(Debug)]
pub(super) struct Control {
    seed: u64,
    rng: Rng,
    operator: Rng,
    rolling: Rolling,
    /// The cluster that an operator has created to replace this one.
    successor: Option<Successor>,
    /// Another cluster of the same name, which the nodes meet.
    stranger: Option<Stranger>,
    /// When each node last received a renewal from each incarnation, and whether that incarnation was leaving.
    heard: BTreeMap<(usize, MemberId), (u64, bool)>,
    founding: Bootstrap,
    settings: CoordinatorSettings,
    group: Group,
    nodes: Vec<Half>,
    lives: Vec<u64>,
    appends: u64,
}

/// The control state machine of one incarnation, and the state that its driver would keep.
#[derive(Debug)]
struct Half {
    decider: Decider,
    /// Number and time of the newest scheduled tick.
    tick: (u64, Option<u64>),
    asked: BTreeSet<(MemberId, u64)>,
    lease: Lease,
    /// When each chain receives the last order sent to it.
    ordered: BTreeMap<usize, u64>,
    /// When the node receives the last word sent by each chain.
    said: BTreeMap<usize, u64>,
    /// The history that the node belongs to; `None` until it learns of one.
    history: Option<History>,
}

impl Control {
    /// The control half of a cluster that exists from the start.
    pub(super) fn new(seed: u64, control: &ControlSetup, setup: &Setup, nodes: &[Node]) -> Self {
        let ids = nodes.iter().map(|node| node.id);
        let mut rng = Rng::new(seed, Concern::Control);
        let settings =
            ChainSettings { chains: setup.chains as u32, replicas: control.replicas, mode: setup.mode, min_members: 1 };
        let founders = ids.take(control.founders).enumerate();
        let members = founders.map(|(index, id)| Founders::founder(index, id)).collect();
        let cluster = ClusterId(u128::from(rng.below(u64::MAX)));
        let timing = control.timing();
        let founding = Bootstrap { settings, timing, ..Bootstrap::new(cluster, "simulated", members) };
        Self::founded(seed, control, setup, nodes, founding, rng)
    }

    /// The control half of a cluster that these nodes have just formed.
    pub(super) fn formed(seed: u64, setup: &Setup, nodes: &[Node], lives: &[u64], founding: Bootstrap) -> Option<Self> {
        let control = setup.control.as_ref()?;
        let mut formed = Self::founded(seed, control, setup, nodes, founding, Rng::new(seed, Concern::Control));
        formed.lives = lives.to_vec();
        for node in nodes {
            // A founder may have restarted after it accepted: a voter is identified by its store.
            formed.group.has_lived_on(node.id);
        }
        Some(formed)
    }

    fn founded(
        seed: u64,
        control: &ControlSetup,
        setup: &Setup,
        nodes: &[Node],
        founding: Bootstrap,
        rng: Rng,
    ) -> Self {
        let cluster = founding.cluster;
        let settings = CoordinatorSettings {
            cluster,
            replicas: control.replicas as usize,
            tick: control.suspect / 10,
            guards: setup.guards,
            ..CoordinatorSettings::default()
        };
        let group = Group::new(&founding, Rng::new(seed, Concern::Group));
        let mut new = Self {
            seed,
            rng,
            operator: Rng::new(seed, Concern::Operator),
            rolling: Rolling::default(),
            successor: None,
            stranger: None,
            heard: BTreeMap::new(),
            settings,
            group,
            nodes: Vec::new(),
            lives: vec![1; nodes.len()],
            appends: 0,
            founding,
        };
        for node in nodes {
            let Some(opened) = &node.opened else { continue };
            // Disks do not fail before the run begins.
            let _ = opened.control.change(|record| record.keep_founding(node.id, &new.founding));
        }
        new.nodes = nodes.iter().enumerate().map(|(index, node)| new.half(index, node, false)).collect();
        new
    }

    /// The control half of a node. With `loads` the node has not loaded its directory yet.
    fn half(&self, index: usize, node: &Node, loads: bool) -> Half {
        let (me, times) = (Founders::founder(index, node.id), self.own_times(index));
        let founded = || Arc::new(Configs::of(&self.founding));
        let kept = node.opened.as_ref().map(|opened| (opened.control.record(), opened.holds.clone()));
        let (decider, history) = match kept {
            None => (Decider::new(me, founded(), times), World::first_history(&self.founding, node.id)),
            Some((record, holds)) => {
                let configs = record.configs.map_or_else(founded, Arc::new);
                let history = record.history.or_else(|| World::first_history(&self.founding, node.id));
                let holds = (!loads).then_some(holds);
                (Decider::durable(me, configs, times, holds, record.heard), history)
            }
        };
        Half {
            decider,
            tick: (0, None),
            asked: BTreeSet::new(),
            lease: Lease::default(),
            ordered: BTreeMap::new(),
            said: BTreeMap::new(),
            history,
        }
    }

    /// The settings with which a node was started. Times that differ from the cluster's must have no effect (trap 63).
    fn own_times(&self, index: usize) -> CoordinatorSettings {
        let factor = [4, 1][index % 2];
        let Timing { lease, drift_ppm, suspect, slow } = self.founding.timing;
        CoordinatorSettings { lease: lease * factor, drift_ppm, suspect: suspect * factor, slow, ..self.settings }
    }

    pub(super) fn majority_in(&self, counts: impl Fn(MemberId) -> bool) -> bool {
        self.group.has_majority_of(counts)
    }

    pub(super) fn configs(&self) -> &Configs {
        self.group.configs()
    }
}

impl ControlSetup {
    pub(super) fn timing(&self) -> Timing {
        Timing { lease: self.lease, suspect: self.suspect, slow: self.slow, drift_ppm: self.drift_ppm() }
    }
}

impl World {
    pub(super) fn set_clocks(&mut self) {
        let Some(control) = &mut self.control else { return };
        let most = i64::from(self.setup.control.as_ref().map_or(0, |control| control.drift));
        for node in &mut self.nodes {
            node.fast = control.rng.between(0, 2 * most as u64) as i64 - most;
        }
    }

    pub(super) fn begin_control(&mut self) {
        let drift = self.setup.control.as_ref().map_or(0, |control| control.drift);
        for oracle in &mut self.oracles {
            *oracle = ChainOracle::moving(drift);
        }
        for node in 0..self.nodes.len() {
            for peer in 0..node {
                self.set_connection(node, peer, true);
            }
            self.begin_half(node);
        }
        self.queue.push(self.now, super::Event::Control(Event::Look));
        if self.setup.control.is_some_and(|control| control.rolls) {
            self.queue.push(2 * SECOND, super::Event::Control(Event::Operate));
        }
        if self.setup.control.is_some_and(|control| control.founds) {
            self.queue.push(2 * SECOND, super::Event::Control(Event::WantFounding));
        }
        if self.setup.control.is_some_and(|control| control.accepts)
            && let Some(control) = &mut self.control
        {
            let at = control.operator.between(3 * SECOND, 9 * SECOND);
            self.queue.push(at, super::Event::Control(Event::LoseStores));
            self.queue.push(2 * SECOND, super::Event::Control(Event::WantReopening));
        }
        if self.setup.control.is_some_and(|control| control.loses)
            && let Some(control) = &mut self.control
        {
            let at = control.operator.between(3 * SECOND, 9 * SECOND);
            self.queue.push(at, super::Event::Control(Event::Disaster));
        }
        if self.setup.control.is_some_and(|control| control.meets) {
            return self.begin_meeting();
        }
        self.begin_clients();
    }

    /// Schedules the moment at which an incarnation enters its chains and begins to renew its lease.
    fn begin_half(&mut self, node: usize) {
        let Some(control) = &mut self.control else { return };
        let at = self.now + control.rng.below(50_000_000);
        self.queue.push(at, super::Event::Control(Event::Begin { node, id: self.ids[node] }));
    }

    pub(super) fn control_event(&mut self, event: Event) -> Result<(), Failure> {
        let lives = |node: usize, id: MemberId| self.nodes[node].is_alive() && self.ids[node] == id;
        match event {
            Event::Look => {
                self.look();
                self.look_at_service();
            }
            Event::Operate => self.operate(),
            Event::Stop(node) => self.sigterm(node),
            Event::Drain(node) => self.drain_at_last(node),
            Event::Disaster => self.disaster(),
            Event::LoseStores => self.lose_stores(),
            Event::WantReopening => self.want_reopening(),
            Event::WantRecovery => self.want_recovery(),
            Event::Recover { node, id, since } if lives(node, id) => self.recover(node, since),
            Event::WantFounding => self.want_founding(),
            Event::Found { node, id, since } if lives(node, id) => self.found_another(node, since),
            Event::Meet => self.meet_stranger()?,
            Event::Met { node, id, by } if lives(node, id) => self.outranked(node, by),
            Event::GaveWay { node, id, by } if lives(node, id) => self.gave_way(node, by),
            Event::BeginClients => self.begin_clients(),
            Event::Greet => self.greet(),
            Event::Greeted { node, id, by } if lives(node, id) => self.greeted(node, by),
            // Its chains receive the orders that its state machine issued at creation.
            Event::Begin { node, id } if lives(node, id) => self.obey(node),
            Event::Loaded { node, id } if lives(node, id) => self.has_loaded(node),
            Event::Log { node, id } if lives(node, id) => self.hear_of_log(node, id),
            Event::Tick { node, id, number } if lives(node, id) => self.look_at_clock(node, number),
            Event::Order { node, id, slot, order } if lives(node, id) => {
                self.enqueue(node, Work { slot, input: Comes::Order(order), flight: None });
            }
            Event::Lease { node, id, slot } if lives(node, id) => {
                let Some(control) = &self.control else { return Ok(()) };
                let input = Comes::Lease(control.nodes[node].lease);
                self.enqueue(node, Work { slot, input, flight: None });
            }
            Event::Word { node, id, slot, word } if lives(node, id) => {
                self.hand_in(node, NodeInput::Word { chain: ChainId(slot as u32), word });
            }
            Event::Unanswered { node, id, to, number } if lives(node, id) => self.unheard(node, to, number),
            Event::Confirmed { node, id, round, leads, answered } if lives(node, id) => {
                self.hand_in(node, NodeInput::Confirmed { round, leads, answered });
            }
            Event::Append { node, id, term, at, change } => self.append(node, id, term, at, *change),
            Event::Appended { node, id, at, fate } if lives(node, id) => {
                self.hand_in(node, NodeInput::Appended { at, fate });
            }
            Event::Keep { node, id, configs } if lives(node, id) => self.keep(node, &configs),
            Event::KeepHeard { node, id, heard } if lives(node, id) => self.keep_heard(node, heard),
            Event::SetVoters { node, id, term, voters } if lives(node, id) => self.set_voters(node, id, term, voters),
            Event::Message { from, to, ends, flight, message } => self.heard(from, to, ends, flight, *message),
            Event::Start(node) => return self.start_again(node),
            Event::Reorder { node, id, order } if lives(node, id) => {
                self.hand_in(node, NodeInput::Reorder { token: 0, chain: ChainId(0), order });
            }
            Event::Mend(a, b) => self.set_connection(a, b, !self.is_broken(a, b)),
            _ => {}
        }
        self.check_given_way()?;
        self.check_reopenings()
    }

    fn hear_of_log(&mut self, node: usize, id: MemberId) {
        let Some((leads, leader, configs)) = self.said_of_log(id) else { return };
        let Some(control) = &self.control else { return };
        // With disks, the log identifies voters by store rather than by incarnation.
        let stores = |id: MemberId| if self.setup.durable.is_some() { first_life(id) } else { id };
        let voters = control.group.voters().into_iter().map(stores).collect();
        self.hand_in(node, NodeInput::Log { leads, leader: Some(stores(leader)), configs, voters });
        let is_retired = self.control.as_ref().is_some_and(|control| control.group.is_retired(id));
        if is_retired && leader != id {
            // The leader dialled this node to send the entry.
            self.hand_in(node, NodeInput::Reached { by: leader });
        }
    }

    pub(super) fn meets(&mut self, node: usize, id: MemberId) {
        if self.control.is_some() {
            let addrs = vec![([127, 0, 0, 1], 1).into()];
            self.hand_in(node, NodeInput::Met { id, addrs });
        }
    }

    /// By chance, isolates the source of a joiner's snapshot, or breaks the link between them.
    pub(super) fn disturb(&mut self, joiner: usize, slot: usize) {
        let disturbed = self.setup.control.map_or(0, |control| control.disturbed);
        let (Some(control), true) = (&mut self.control, disturbed > 0) else { return };
        if !control.rng.chance(disturbed) {
            return;
        }
        let start = self.now + control.rng.below(60_000_000);
        let (gone, length) = (control.rng.chance(400), control.rng.between(20_000_000, 700_000_000));
        let tail = control.configs().get(ChainId(slot as u32)).and_then(|config| config.tail());
        let Some(source) = self.ids.iter().position(|&id| Some(id) == tail) else { return };
        let fault = if gone { Fault::Isolate(source) } else { Fault::Break(source, joiner) };
        self.strike(fault, start, start + length);
    }

    /// Schedules the delivery of a chain's word to its node. Words stay in order.
    pub(super) fn chain_says(&mut self, node: usize, slot: usize, word: Word) {
        if self.control.is_none() {
            return;
        }
        self.trace.line(self.now, |out| write!(out, "n{node} c{slot} reports {word:?}"));
        if let Word::Promote(promotion) = word {
            self.disturb_promotion(node, promotion);
        }
        let (now, id) = (self.now, self.ids[node]);
        let Some(control) = &mut self.control else { return };
        let longest = if control.rng.chance(50) { 20_000_000 } else { 200_000 };
        let after = control.rng.below(longest);
        let said = control.nodes[node].said.entry(slot).or_default();
        *said = (now + after).max(*said);
        self.queue.push(*said, super::Event::Control(Event::Word { node, id, slot, word }));
    }

    fn disturb_promotion(&mut self, node: usize, promotion: Promotion) {
        self.note_promotion(node);
        let ControlSetup { cut_off, last_words, .. } = self.setup.control.unwrap_or_default();
        let Some(control) = &mut self.control else { return };
        if last_words > 0 && control.rng.chance(last_words) && self.strikes.is_empty() {
            let start = self.now + control.rng.between(100_000, 40_000_000);
            let end = start + control.rng.between(500_000_000, 2_500_000_000);
            self.strike(Fault::Isolate(node), start, end);
        }
        let Some(control) = &mut self.control else { return };
        if self.now < HEALED
            && control.rng.chance(cut_off)
            && let Some(joiner) = self.ids.iter().position(|&id| id == promotion.member)
        {
            let until = self.now + control.rng.between(20_000_000, 600_000_000);
            self.set_connection(node, joiner, false);
            self.queue.push(until, super::Event::Control(Event::Mend(node, joiner)));
        }
    }

    fn schedule_look(&mut self, node: usize) {
        let Some(control) = &mut self.control else { return };
        let half = &mut control.nodes[node];
        let wanted = half.decider.next_tick().map(|at| self.nodes[node].moment(at).max(self.now + 1));
        if half.tick.1 == wanted {
            return;
        }
        half.tick = (half.tick.0 + 1, wanted);
        if let Some(at) = wanted {
            let event = Event::Tick { node, id: self.ids[node], number: half.tick.0 };
            self.queue.push(at, super::Event::Control(event));
        }
    }

    fn look_at_clock(&mut self, node: usize, number: u64) {
        let Some(control) = &mut self.control else { return };
        let half = &mut control.nodes[node];
        if half.tick.0 == number {
            half.tick.1 = None;
            self.hand_in(node, NodeInput::Tick);
        }
    }

    pub(super) fn hand_in(&mut self, node: usize, input: NodeInput) {
        let clock = self.nodes[node].clock(self.now);
        self.trace.line(self.now, |out| write!(out, "n{node} receives {input:?}"));
        let Some(control) = &mut self.control else { return };
        control.nodes[node].decider.handle(clock, input);
        self.obey(node);
    }

    fn obey(&mut self, node: usize) {
        self.renew(node);
        while let Some(control) = &mut self.control
            && let Some(output) = control.nodes[node].decider.poll_output()
        {
            self.act(node, output);
        }
        self.schedule_look(node);
    }

    fn act(&mut self, node: usize, output: NodeOutput) {
        let id = self.ids[node];
        let Some(control) = &mut self.control else { return };
        let delay = 1 + control.rng.below(2 * self.setup.profile.delay + 1_000_000);
        let event = match output {
            NodeOutput::Order(chain, order) => return self.order(node, chain, order),
            NodeOutput::Lease(lease) => return self.lease_all(node, lease),
            NodeOutput::Begins(_) | NodeOutput::Acts(_) => return,
            NodeOutput::Coordinator(Decision::Answer { to, renewed }) => {
                self.check_answer(node, to, &renewed);
                return self.say(node, to, Message::Renewed(self.history_of(node), renewed));
            }
            NodeOutput::Left => return self.left(node),
            NodeOutput::Ready => return self.ready(node),
            NodeOutput::Succeeded { .. } => {
                self.go_over(node);
                return self.join_stranger(node);
            }
            NodeOutput::Over => return self.join_stranger(node),
            NodeOutput::Coordinator(Decision::GivenUp { .. }) => return,
            NodeOutput::Event(event) => return self.trace.line(self.now, |out| write!(out, "n{node}: {event:?}")),
            NodeOutput::Coordinator(Decision::Reordered { result, .. }) => return self.reordered(&result),
            NodeOutput::Coordinator(Decision::Reopened { result, .. }) => return self.answered_operator(&result),
            NodeOutput::Coordinator(Decision::Confirm { round, term }) => {
                // The answer only promises that the node led after the question. The model decides at once whether it
                // leads, and reports the answer later.
                let (leads, closes, answered) = (self.has_majority(id, term), self.is_closing(), self.answered(node));
                let Some(control) = &mut self.control else { return };
                let slow = if control.rng.chance(50) && !closes { control.rng.below(400_000_000) } else { 0 };
                let event = Event::Confirmed { node, id, round, leads, answered };
                return self.queue.push(self.now + delay + slow, super::Event::Control(event));
            }
            NodeOutput::Coordinator(Decision::Append { term, at, change, why }) => {
                self.trace.line(self.now, |out| {
                    write!(out, "n{node} proposes {at} in term {term}: {change:?}")?;
                    why.iter().try_for_each(|why| write!(out, "; {why}"))
                });
                if let Some(control) = &mut self.control {
                    control.appends += 1;
                }
                self.check_loss(node, &change);
                self.counts.disks.reopened += u64::from(why.iter().any(|why| why.why == Why::Reopened));
                Event::Append { node, id, term, at, change: Box::new(change) }
            }
            NodeOutput::Coordinator(Decision::Resign { .. }) => return self.may_lead(node, false),
            NodeOutput::Coordinator(Decision::Stand) => return self.may_lead(node, true),
            NodeOutput::Coordinator(Decision::Warn(warning)) => {
                return self.trace.line(self.now, |out| write!(out, "n{node}: {warning:?}"));
            }
            NodeOutput::Coordinator(Decision::SetVoters { term, voters }) => {
                Event::SetVoters { node, id, term, voters }
            }
            NodeOutput::Keep(configs) => Event::Keep { node, id, configs },
            NodeOutput::KeepHeard(heard) => Event::KeepHeard { node, id, heard },
            NodeOutput::RolledBack { to, .. } => return self.say(node, to, Message::RolledBack),
        };
        self.queue.push(self.now + delay, super::Event::Control(event));
    }

    fn lags(&self) -> u32 {
        self.setup.control.filter(|_| self.tasks_lag()).map_or(0, |control| control.lags)
    }

    /// Delivers orders to a chain in sequence, with a delay per chain. Occasionally a chain lags.
    fn order(&mut self, node: usize, chain: ChainId, order: ChainOrder) {
        let (now, id, slot, lags) = (self.now, self.ids[node], chain.0 as usize, self.lags());
        let Some(control) = &mut self.control else { return };
        let after = lag(&mut control.rng, lags);
        let ordered = control.nodes[node].ordered.entry(slot).or_default();
        *ordered = (now + after).max(*ordered);
        self.queue.push(*ordered, super::Event::Control(Event::Order { node, id, slot, order }));
    }

    fn lease_all(&mut self, node: usize, lease: Lease) {
        let (now, id, lags) = (self.now, self.ids[node], self.lags());
        for slot in 0..self.setup.chains {
            let Some(control) = &mut self.control else { return };
            control.nodes[node].lease = lease;
            let after = lag(&mut control.rng, lags);
            self.queue.push(now + after, super::Event::Control(Event::Lease { node, id, slot }));
        }
    }
}

/// The first incarnation of the store of `id`.
fn first_life(id: MemberId) -> MemberId {
    MemberId { incarnation: Incarnation { starts: 1, ..id.incarnation }, ..id }
}

/// The delay before the task of a chain receives an order or a lease: up to a second in `late` of a thousand cases, and
/// up to 20 ms in four times as many.
fn lag(rng: &mut Rng, late: u32) -> u64 {
    let longest = match rng.below(1000) as u32 {
        draw if draw < late => SECOND,
        draw if draw < late * 5 => SECOND / 50,
        _ => QUICK,
    };
    rng.below(longest)
}
