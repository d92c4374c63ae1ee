//! Clusters whose configuration changes: the coordinators and holders of the nodes, and a log that they agree on.
//!
//! The log itself is not under test here: [`group`] is a model of what a consensus log promises, as unfriendly as it
//! may be. Leaders come and go, old ones go on believing that they lead, proposals are lost, or come into the log late.

mod group;
mod lives;
mod wishes;

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use artillery_proto::{
    ChainId, ClusterId, MemberId,
    control::{
        ChainSettings, Founding, Timing,
        coordinator::{Coordinator, Fate, Input, Output, Settings},
        holder::Holder,
        log::{Change, Configs, LogIndex, Term},
        message::{Promotion, Renewal, Renewed},
    },
    replica,
};

use self::group::Group;
use super::{World, founding::Founders};
use crate::{
    faults::Fault,
    network::Flight,
    node::Work,
    oracle::{ChainOracle, Failure},
    rng::{Concern, Rng},
    scenario::{ControlSetup, HEALED, Setup},
};

/// What is going to happen about the configuration.
#[derive(Debug)]
pub(crate) enum Event {
    /// Whether there is a leader, and whether it goes on.
    Look,
    /// A life of a node begins with what the founding says.
    Begin { node: usize, id: MemberId },
    /// Who keeps the log learns what is new about it.
    Log { node: usize, id: MemberId },
    /// A coordinator looks at the clock.
    Tick { node: usize, id: MemberId },
    /// A holder may have something to say.
    Renew { node: usize, id: MemberId, number: u64 },
    /// A round of confirmation ends.
    Confirmed { node: usize, id: MemberId, round: u64, leads: bool },
    /// A proposal reaches the log.
    Append { node: usize, id: MemberId, term: Term, at: LogIndex, change: Box<Change> },
    /// Its fate is known to its proposer.
    Appended { node: usize, id: MemberId, at: LogIndex, fate: Fate },
    /// The log is kept by others from now on.
    SetVoters { node: usize, id: MemberId, term: Term, voters: BTreeSet<MemberId> },
    /// A message arrives.
    Message { from: usize, to: usize, ends: [MemberId; 2], flight: Flight, message: Box<Message> },
    /// A node starts another life.
    Start(usize),
    /// A link comes back.
    Mend(usize, usize),
    /// An operator wants the members of the first chain in another order.
    Reorder { node: usize, id: MemberId, order: Vec<MemberId> },
}

/// What nodes say to each other about leases.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Renewal(Renewal),
    Renewed(Renewed),
}

/// The control half of all nodes.
#[derive(Debug)]
pub(super) struct Control {
    seed: u64,
    rng: Rng,
    founding: Founding,
    settings: Settings,
    group: Group,
    nodes: Vec<Half>,
    lives: Vec<u64>,
    /// Proposals under way.
    appends: u64,
    /// What a paused node has to take in when it goes on.
    held: Vec<Vec<super::Event>>,
}

/// The control half of one life of a node.
#[derive(Debug)]
struct Half {
    coordinator: Coordinator,
    holder: Holder,
    /// Names the newest of its scheduled renewals.
    renewals: u64,
    ticks: bool,
}

impl Control {
    pub(super) fn new(seed: u64, control: &ControlSetup, setup: &Setup, ids: &[MemberId]) -> Self {
        let mut rng = Rng::new(seed, Concern::Control);
        let settings =
            ChainSettings { chains: setup.chains as u32, replicas: control.replicas, mode: setup.mode, min_members: 1 };
        let founders = ids.iter().take(control.founders).enumerate();
        let members = founders.map(|(index, &id)| Founders::founder(index, id)).collect();
        let cluster = ClusterId(u128::from(rng.below(u64::MAX)));
        let timing = Timing {
            lease: control.lease,
            suspect: control.suspect,
            slow: control.slow,
            // Of two clocks, one fast and one slow; and a little.
            drift_ppm: 2 * control.drift + 2 * control.drift / 10 + 200,
        };
        let founding = Founding { cluster, name: "simulated".into(), members, settings, timing };
        let settings = Settings {
            cluster,
            replicas: control.replicas as usize,
            tick: control.suspect / 10,
            ..Settings::default()
        };
        let group = Group::new(&founding, Rng::new(seed, Concern::Group));
        let mut new = Self {
            seed,
            rng,
            settings,
            group,
            nodes: Vec::new(),
            lives: vec![1; ids.len()],
            appends: 0,
            held: ids.iter().map(|_| Vec::new()).collect(),
            founding,
        };
        new.nodes = ids.iter().enumerate().map(|(index, &id)| new.half(index, id, setup)).collect();
        new
    }

    fn half(&self, index: usize, id: MemberId, setup: &Setup) -> Half {
        let configs = Arc::new(Configs::of(&self.founding));
        let coordinator = Coordinator::new(id, self.own_times(index));
        let mutant = setup.mutant.and_then(crate::mutants::MutantName::coordinator);
        Half {
            coordinator: coordinator.with_mutant(mutant),
            holder: Holder::new(Founders::founder(index, id), configs),
            renewals: 0,
            ticks: false,
        }
    }

    /// As node `index` was started: with times of its own, which count for nothing in a cluster (trap 63).
    fn own_times(&self, index: usize) -> Settings {
        let factor = [4, 1][index % 2];
        let Timing { lease, drift_ppm, suspect, slow } = self.founding.timing;
        Settings { lease: lease * factor, drift_ppm, suspect: suspect * factor, slow, ..self.settings }
    }

    /// What the log comes to.
    pub(super) fn configs(&self) -> &Configs {
        self.group.configs()
    }
}

impl World {
    pub(super) fn begin_control(&mut self) {
        let Some(control) = &mut self.control else { return };
        let most = i64::from(self.setup.control.as_ref().map_or(0, |control| control.drift));
        for node in &mut self.nodes {
            node.fast = control.rng.between(0, 2 * most as u64) as i64 - most;
        }
        for oracle in &mut self.oracles {
            *oracle = ChainOracle::moving();
        }
        for node in 0..self.nodes.len() {
            for peer in 0..node {
                self.set_connection(node, peer, true);
            }
            self.begin_half(node);
        }
        self.queue.push(0, super::Event::Control(Event::Look));
        self.begin_clients();
    }

    /// A life of a node enters the chains that name it, and begins to renew.
    fn begin_half(&mut self, node: usize) {
        let Some(control) = &mut self.control else { return };
        let at = self.now + control.rng.below(50_000_000);
        self.queue.push(at, super::Event::Control(Event::Begin { node, id: self.ids[node] }));
    }

    pub(super) fn control_event(&mut self, event: Event) -> Result<(), Failure> {
        let lives = |node: usize, id: MemberId| self.nodes[node].is_alive() && self.ids[node] == id;
        match event {
            Event::Look => self.look(),
            Event::Begin { node, id } if lives(node, id) => return self.act(node),
            Event::Log { node, id } if lives(node, id) => return self.hear_of_log(node, id),
            Event::Tick { node, id } if lives(node, id) => {
                if let Some(control) = &mut self.control {
                    control.nodes[node].ticks = false;
                }
                self.tell_coordinator(node, Input::Tick);
            }
            Event::Renew { node, id, number } if lives(node, id) => self.renew(node, number),
            Event::Confirmed { node, id, round, leads } if lives(node, id) => {
                self.tell_coordinator(node, Input::Confirmed { round, leads });
            }
            Event::Append { node, id, term, at, change } => self.append(node, id, term, at, *change),
            Event::Appended { node, id, at, fate } if lives(node, id) => {
                self.tell_coordinator(node, Input::Appended { at, fate });
            }
            Event::SetVoters { node, id, term, voters } if lives(node, id) => self.set_voters(node, id, term, voters),
            Event::Message { from, to, ends, flight, message } => return self.heard(from, to, ends, flight, *message),
            Event::Start(node) => self.start_again(node),
            Event::Reorder { node, id, order } if lives(node, id) => {
                let chain = artillery_proto::ChainId(0);
                self.tell_coordinator(node, Input::Reorder { token: 0, chain, order });
            }
            Event::Mend(a, b) => self.set_connection(a, b, !self.is_broken(a, b)),
            _ => {}
        }
        Ok(())
    }

    /// What is new about the log as of now, if the leader can still be heard.
    fn hear_of_log(&mut self, node: usize, id: MemberId) -> Result<(), Failure> {
        let Some((leads, leader, configs)) = self.said_of_log(id) else { return Ok(()) };
        let Some(control) = &mut self.control else { return Ok(()) };
        let voters = control.group.voters();
        let now = self.nodes[node].clock(self.now);
        let half = &mut control.nodes[node];
        half.holder.leads(now, leader);
        if half.holder.learn(&configs) {
            self.act(node)?;
        }
        self.tell_coordinator(node, Input::Log { leads, leader: Some(leader), configs, voters });
        self.schedule_renewal(node);
        Ok(())
    }

    /// A node acts by what the log comes to, and then says so.
    fn act(&mut self, node: usize) -> Result<(), Failure> {
        let Some(control) = &self.control else { return Ok(()) };
        let configs = control.nodes[node].holder.configs().clone();
        let me = self.ids[node];
        for config in configs.iter() {
            let slot = config.chain.0 as usize;
            let input = match config.role(me) {
                Some(_) => replica::Input::Enter(Arc::new(config.clone())),
                None => replica::Input::Expelled(config.epoch),
            };
            self.take_in(node, Work { slot, input, flight: None });
        }
        self.settle(node)?;
        self.send_all(node)?;
        let Some(control) = &mut self.control else { return Ok(()) };
        control.nodes[node].holder.acts_by(self.nodes[node].clock(self.now), configs.applied());
        self.schedule_renewal(node);
        Ok(())
    }

    pub(super) fn meets(&mut self, node: usize, id: MemberId) {
        if let Some(control) = &mut self.control {
            control.nodes[node].holder.meets(id);
        }
    }

    /// Something happens to a snapshot for this joiner: its source is lost for a while, or the link between them.
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

    /// A tail asks to have the member behind it serve.
    pub(super) fn promote(&mut self, node: usize, promotion: Promotion) {
        self.note_promotion(node);
        let clock = self.nodes[node].clock(self.now);
        let Some(control) = &mut self.control else { return };
        control.nodes[node].holder.promote(clock, promotion);
        let ControlSetup { cut_off, last_words, .. } = self.setup.control.unwrap_or_default();
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
        self.schedule_renewal(node);
    }

    fn schedule_renewal(&mut self, node: usize) {
        let Some(control) = &mut self.control else { return };
        let half = &mut control.nodes[node];
        half.renewals += 1;
        let at = self.nodes[node].moment(half.holder.next_tick()).max(self.now);
        let event = Event::Renew { node, id: self.ids[node], number: half.renewals };
        self.queue.push(at, super::Event::Control(event));
    }

    fn renew(&mut self, node: usize, number: u64) {
        let clock = self.nodes[node].clock(self.now);
        let Some(control) = &mut self.control else { return };
        if control.nodes[node].renewals != number {
            return;
        }
        while let Some(control) = &mut self.control
            && let Some((to, mut renewal)) = control.nodes[node].holder.renew(clock)
        {
            renewal.reports = self.reports(node);
            self.say(node, to, Message::Renewal(renewal));
        }
        self.schedule_renewal(node);
    }

    fn say(&mut self, from: usize, to: MemberId, message: Message) {
        let ends = [self.ids[from], to];
        let Some(index) = self.ids.iter().position(|id| id.node == to.node) else { return };
        self.trace.line(self.now, |out| write!(out, "n{from} says to n{index} {message:?}"));
        let message = Box::new(message);
        if index == from {
            let flight = Flight { at: self.now, generation: 0, lost: false, counted: 0 };
            let event = Event::Message { from, to: from, ends, flight, message };
            return self.queue.push(self.now + 1_000, super::Event::Control(event));
        }
        for flight in self.beside(from, index) {
            let event = Event::Message { from, to: index, ends, flight, message: message.clone() };
            self.queue.push(flight.at, super::Event::Control(event));
        }
    }

    fn heard(
        &mut self,
        from: usize,
        to: usize,
        ends: [MemberId; 2],
        flight: Flight,
        message: Message,
    ) -> Result<(), Failure> {
        let [sender, receiver] = ends;
        let there = self.ids[to] == receiver && self.nodes[to].is_alive();
        if !there || (from != to && !self.network.arrives(from, to, flight)) {
            return Ok(());
        }
        match message {
            Message::Renewal(renewal) => self.tell_coordinator(to, Input::Renewal { from: sender, renewal }),
            Message::Renewed(renewed) => {
                let clock = self.nodes[to].clock(self.now);
                self.close(to, &renewed.close);
                let Some(control) = &mut self.control else { return Ok(()) };
                let learned = control.nodes[to].holder.answered(clock, sender, renewed);
                if learned.configs.is_some() {
                    self.act(to)?;
                }
                if learned.released {
                    self.released(to);
                }
                if let Some(until) = learned.lease {
                    for slot in 0..self.setup.chains {
                        self.enqueue(to, Work { slot, input: replica::Input::Lease(until), flight: None });
                        let served = replica::Input::Served(learned.asked);
                        self.enqueue(to, Work { slot, input: served, flight: None });
                    }
                }
                if learned.resigns {
                    self.resign(to);
                }
                if learned.serves_again {
                    self.serve_again(to);
                }
                self.schedule_renewal(to);
            }
        }
        Ok(())
    }

    /// Hands a node's coordinator an input and does what it says.
    fn tell_coordinator(&mut self, node: usize, input: Input) {
        let (clock, id) = (self.nodes[node].clock(self.now), self.ids[node]);
        self.trace.line(self.now, |out| write!(out, "n{node} coordinator {input:?}"));
        let Some(control) = &mut self.control else { return };
        control.nodes[node].coordinator.handle(clock, input);
        while let Some(control) = &mut self.control
            && let Some(output) = control.nodes[node].coordinator.poll_output()
        {
            let delay = 1 + control.rng.below(2 * self.setup.profile.delay + 1_000_000);
            let at = self.now + delay;
            let event = match output {
                Output::Answer { to, renewed } => {
                    self.say(node, to, Message::Renewed(renewed));
                    continue;
                }
                Output::Confirm { round, term } => {
                    // That it led at some moment after the question is all that is promised: at the first one, and the
                    // answer may be long on its way.
                    let leads = self.has_majority(id, term);
                    let Some(control) = &mut self.control else { return };
                    let slow = if control.rng.chance(50) { control.rng.below(400_000_000) } else { 0 };
                    let event = Event::Confirmed { node, id, round, leads };
                    self.queue.push(at + slow, super::Event::Control(event));
                    continue;
                }
                Output::Reordered { result, .. } => {
                    self.reordered(&result);
                    continue;
                }
                Output::Append { term, at, change, why } => {
                    self.trace.line(self.now, |out| {
                        write!(out, "n{node} proposes {at} in term {term}: {change:?}")?;
                        why.iter().try_for_each(|why| write!(out, "; {why}"))
                    });
                    if let Some(control) = &mut self.control {
                        control.appends += 1;
                    }
                    Event::Append { node, id, term, at, change: Box::new(change) }
                }
                Output::SetVoters { term, voters } => Event::SetVoters { node, id, term, voters },
            };
            self.queue.push(at, super::Event::Control(event));
        }
        let Some(control) = &mut self.control else { return };
        let half = &mut control.nodes[node];
        if let Some(tick) = half.coordinator.next_tick(clock).filter(|_| !half.ticks) {
            half.ticks = true;
            let at = self.nodes[node].moment(tick).max(self.now + 1);
            self.queue.push(at, super::Event::Control(Event::Tick { node, id }));
        }
    }
}

impl Event {
    /// The node that it waits for, if that does nothing at the moment.
    pub(super) fn waits_for(&self) -> Option<usize> {
        match self {
            Self::Begin { node, .. }
            | Self::Log { node, .. }
            | Self::Tick { node, .. }
            | Self::Renew { node, .. }
            | Self::Confirmed { node, .. }
            | Self::Appended { node, .. }
            | Self::Reorder { node, .. }
            | Self::SetVoters { node, .. } => Some(*node),
            Self::Message { to, .. } => Some(*to),
            Self::Look | Self::Append { .. } | Self::Start(_) | Self::Mend(..) => None,
        }
    }
}
