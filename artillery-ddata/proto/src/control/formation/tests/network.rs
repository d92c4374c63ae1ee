//! Many formations on one virtual clock, with all faults between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::super::*;
use crate::{ClusterId, Incarnation, NodeId, control::ChainSettings, guards::Mutant};

pub(super) const MILLI: u64 = 1_000_000;

/// Faults. Their probabilities, per message, are in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    pub(super) loss: u64,
    pub(super) repeat: u64,
    /// The longest delay of nine messages in ten, in milliseconds. The others have up to 20 times this delay.
    pub(super) delay: u64,
    /// The average interval of new partitions, in milliseconds.
    pub(super) cut_every: Option<u64>,
    /// The average interval of restarts, in milliseconds.
    pub(super) restart_every: Option<u64>,
}

impl Trouble {
    pub(super) const NONE: Self = Self { loss: 0, repeat: 0, delay: 5, cut_every: None, restart_every: None };
}

struct Node {
    id: MemberId,
    formation: Option<Formation>,
    /// Incarnations of other nodes whose end was reported to this one.
    told: BTreeSet<MemberId>,
    settled: Option<(Arc<Bootstrap>, bool)>,
    tick: Option<Timestamp>,
    /// Whether other nodes may see this one.
    visible: bool,
}

enum Event {
    Deliver {
        to: MemberId,
        from: MemberId,
        message: FormationMessage,
    },
    Tick(MemberId),
    Discover(MemberId),
    /// A node reaches its seed, if that is up.
    Contact(MemberId),
    Start(usize),
    Cut,
    Restart,
}

pub(super) struct Network {
    pub(super) now: Timestamp,
    rng: ChaCha8Rng,
    settings: FormationSettings,
    expects: Vec<u16>,
    /// Nodes discover each other only through node 0, their seed.
    seeded: bool,
    nodes: Vec<Node>,
    past: Vec<Vec<MemberId>>,
    events: BTreeMap<(Timestamp, u64), Event>,
    made: u64,
    /// Pairs (from, to) of nodes without a connection.
    cuts: BTreeSet<(usize, usize)>,
    trouble: Trouble,
    /// Each founding and the nodes that formed it, in the order in which they were first formed.
    formed: Vec<(Arc<Bootstrap>, BTreeSet<MemberId>)>,
    given_up: BTreeSet<ClusterId>,
    pub(super) violation: Option<String>,
    pub(super) trace: u64,
    pub(super) restarts: u32,
}

impl Network {
    /// `nodes` nodes that start within `spread` milliseconds. Hasty ones hold ballots all the time.
    pub(super) fn new(seed: u64, expect: u16, nodes: usize, spread: u64, hasty: bool, mutant: Option<Mutant>) -> Self {
        let mut settings = FormationSettings::new("shop", expect, ChainSettings::default());
        settings.guards = mutant.into();
        if hasty {
            settings.patience = Duration::from_millis(30);
            settings.repeat = Duration::from_millis(40);
            settings.stagger = Duration::from_millis(10);
            settings.settle = Duration::from_millis(20);
            settings.search = Duration::from_millis(50);
        }
        let mut network = Self {
            now: Timestamp::ZERO,
            rng: ChaCha8Rng::seed_from_u64(seed),
            settings,
            expects: vec![expect; nodes],
            seeded: false,
            nodes: vec![],
            past: vec![vec![]; nodes],
            events: BTreeMap::new(),
            made: 0,
            cuts: BTreeSet::new(),
            trouble: Trouble::NONE,
            formed: vec![],
            given_up: BTreeSet::new(),
            violation: None,
            trace: seed,
            restarts: 0,
        };
        for at in 0..nodes {
            let id = network.new_incarnation(at);
            network.nodes.push(Node {
                id,
                formation: None,
                told: BTreeSet::new(),
                settled: None,
                tick: None,
                visible: false,
            });
            let start = network.up_to(spread);
            network.after(start, Event::Start(at));
        }
        network
    }

    /// From now on nodes discover each other only through node 0.
    pub(super) fn find_by_seed(&mut self) {
        self.seeded = true;
    }

    /// Each node expects a random number, up to the common one.
    pub(super) fn mix_expectations(&mut self) {
        let most = u64::from(self.settings.expect);
        self.expects = (0..self.nodes.len()).map(|_| 1 + self.below(most) as u16).collect();
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    fn up_to(&mut self, millis: u64) -> u64 {
        self.below(millis * 1000 + 1) * 1000
    }

    fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }

    fn after(&mut self, nanos: u64, event: Event) {
        self.made += 1;
        self.events.insert((self.now + Duration::from_nanos(nanos), self.made), event);
    }

    fn new_incarnation(&mut self, at: usize) -> MemberId {
        let store = u128::from(self.rng.next_u64());
        MemberId { node: NodeId::from_name(&format!("n{at}")), incarnation: Incarnation { store, starts: 1 } }
    }

    pub(super) fn trouble(&mut self, trouble: Trouble) {
        let begins = |old: Option<u64>, new: Option<u64>| new.filter(|_| old.is_none());
        if let Some(every) = begins(self.trouble.cut_every, trouble.cut_every) {
            let wait = self.up_to(2 * every);
            self.after(wait, Event::Cut);
        }
        if let Some(every) = begins(self.trouble.restart_every, trouble.restart_every) {
            let wait = self.up_to(2 * every);
            self.after(wait, Event::Restart);
        }
        self.trouble = trouble;
        if trouble.cut_every.is_none() {
            self.cuts.clear();
        }
    }

    /// Cuts all links between the groups.
    pub(super) fn partition(&mut self, groups: &[&[usize]]) {
        let group = |at: usize| groups.iter().position(|group| group.contains(&at));
        let pairs = (0..self.nodes.len()).flat_map(|a| (0..self.nodes.len()).map(move |b| (a, b)));
        self.cuts = pairs.filter(|&(a, b)| group(a) != group(b)).collect();
    }

    pub(super) fn kill(&mut self, at: usize) {
        self.nodes[at].formation = None;
    }

    pub(super) fn restart(&mut self, at: usize) {
        self.restarts += 1;
        let id = self.new_incarnation(at);
        let old = std::mem::replace(
            &mut self.nodes[at],
            Node { id, formation: None, told: BTreeSet::new(), settled: None, tick: None, visible: false },
        );
        self.past[at].push(old.id);
        self.after(0, Event::Start(at));
    }

    /// The index of the node whose current incarnation is `id`.
    fn alive(&self, id: MemberId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id && node.formation.is_some())
    }

    pub(super) fn run_for(&mut self, millis: u64) {
        self.run_until(self.now + Duration::from_millis(millis), |_| false);
    }

    /// Runs until `done`, `end` or a violation. Returns whether it was `done`.
    pub(super) fn run_until(&mut self, end: Timestamp, done: impl Fn(&Self) -> bool) -> bool {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end || done(self) || self.violation.is_some() {
                break;
            }
            let ((now, _), event) = self.events.pop_first().unwrap();
            self.now = now;
            self.happen(event);
        }
        if !done(self) {
            self.now = end;
            return false;
        }
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver { to, from, message } => {
                // A careless driver: a message to an earlier incarnation reaches the current one.
                let Some(at) = self.nodes.iter().position(|node| node.id.node == to.node) else { return };
                let cut = self.nodes.iter().position(|node| node.id.node == from.node).map(|from| (from, at));
                if self.nodes[at].formation.is_some() && cut.is_none_or(|cut| !self.cuts.contains(&cut)) {
                    self.input(at, FormationInput::Receive { from, message });
                }
            }
            Event::Tick(id) => {
                if let Some(at) = self.alive(id).filter(|&at| self.nodes[at].tick == Some(self.now)) {
                    self.nodes[at].tick = None;
                    self.input(at, FormationInput::Tick);
                }
            }
            Event::Start(at) => self.start(at),
            Event::Contact(id) => self.contact(id),
            Event::Discover(id) => {
                if let Some(at) = self.alive(id) {
                    self.discover(at);
                    let wait = if self.settings.patience < Duration::from_millis(100) { 10 } else { 100 };
                    let wait = wait * MILLI + self.up_to(4 * wait);
                    self.after(wait, Event::Discover(id));
                }
            }
            Event::Cut => {
                let Some(every) = self.trouble.cut_every else { return };
                self.cut_somewhere();
                let wait = self.up_to(2 * every);
                self.after(wait, Event::Cut);
            }
            Event::Restart => {
                let Some(every) = self.trouble.restart_every else { return };
                let at = self.below(self.nodes.len() as u64) as usize;
                if self.nodes[at].formation.is_some() {
                    self.restart(at);
                }
                let wait = self.up_to(2 * every);
                self.after(wait, Event::Restart);
            }
        }
    }

    fn cut_somewhere(&mut self) {
        self.cuts.clear();
        let count = self.nodes.len();
        match self.below(4) {
            0 => {}
            1 => {
                for _ in 0..count {
                    let pair = (self.below(count as u64) as usize, self.below(count as u64) as usize);
                    self.cuts.insert(pair);
                }
            }
            _ => {
                let side: Vec<bool> = (0..count).map(|_| self.chance(500)).collect();
                let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
                self.cuts = pairs.filter(|&(a, b)| side[a] != side[b]).collect();
            }
        }
    }

    fn start(&mut self, at: usize) {
        let seed = u128::from(self.rng.next_u64());
        let founder = founder(self.nodes[at].id);
        let settings = FormationSettings { expect: self.expects[at], ..self.settings.clone() };
        let formation = Formation::new(founder, settings, seed).unwrap();
        self.nodes[at].formation = Some(formation);
        let id = self.nodes[at].id;
        if self.seeded && at > 0 {
            self.input(at, FormationInput::SeedsMissing(true));
            let wait = self.up_to(1000);
            self.after(wait, Event::Contact(id));
        } else {
            self.after(0, Event::Discover(id));
        }
        self.schedule(at);
    }

    /// The seed answers before the membership shows the nodes that it knows.
    fn contact(&mut self, id: MemberId) {
        let Some(at) = self.alive(id) else { return };
        if self.nodes[0].formation.is_none() {
            let wait = 100 * MILLI + self.up_to(1000);
            return self.after(wait, Event::Contact(id));
        }
        self.input(at, FormationInput::SeedsMissing(false));
        let wait = self.up_to(500);
        self.after(wait, Event::Discover(id));
    }

    /// Gossip reaches a node: it reports the reachable nodes, and sometimes retracts the others.
    fn discover(&mut self, at: usize) {
        self.nodes[at].visible = true;
        for other in (0..self.nodes.len()).filter(|&other| other != at) {
            let id = self.nodes[other].id;
            let reachable = self.nodes[other].formation.is_some()
                && (self.nodes[other].visible || !self.seeded)
                && !self.cuts.contains(&(other, at))
                && !self.cuts.contains(&(at, other));
            if reachable {
                for old in self.past[other].clone() {
                    if self.nodes[at].told.insert(old) {
                        self.input(at, FormationInput::Replaced(old));
                    }
                }
                let cluster = self.nodes[other].settled.as_ref().map(|(founding, _)| founding.cluster);
                let cluster = cluster.filter(|_| self.chance(800));
                self.input(at, FormationInput::Seen(FounderCandidate { founder: founder(id), cluster }));
            } else if self.chance(500) {
                self.input(at, FormationInput::Gone(id));
            }
        }
    }

    fn input(&mut self, at: usize, input: FormationInput) {
        let now = self.now;
        let formation = self.nodes[at].formation.as_mut().expect("only living nodes get inputs");
        let before = accepted(formation);
        formation.handle(now, input);
        let after = formation.founding().map(|founding| founding.cluster).or(accepted(formation));
        self.given_up.extend(before.filter(|_| after != before));
        let outputs: Vec<_> = std::iter::from_fn(|| formation.poll_output()).collect();
        let id = self.nodes[at].id;
        for output in outputs {
            match output {
                FormationOutput::Send { to, message } => self.send(id, to, message),
                FormationOutput::Formed(founding) => self.settled(at, founding, true),
                FormationOutput::Joined(founding) => self.settled(at, founding, false),
                FormationOutput::Stuck => return self.restart(at),
            }
        }
        self.check_nothing_formed_is_given_up();
        self.schedule(at);
    }

    fn check_nothing_formed_is_given_up(&mut self) {
        let given_up = |founding: &Bootstrap| self.given_up.contains(&founding.cluster) && !self.lost(founding);
        if let Some((founding, _)) = self.formed.iter().find(|(founding, _)| given_up(founding)) {
            self.violate(format!("{:?} was formed and abandoned", founding.cluster));
        }
    }

    fn schedule(&mut self, at: usize) {
        let Some(formation) = &self.nodes[at].formation else { return };
        let tick = formation.next_tick().map(|tick| tick.max(self.now));
        if let Some(tick) = tick.filter(|_| self.nodes[at].tick != tick) {
            self.nodes[at].tick = Some(tick);
            let id = self.nodes[at].id;
            self.after((tick - self.now).as_nanos() as u64, Event::Tick(id));
        }
    }

    fn send(&mut self, from: MemberId, to: MemberId, message: FormationMessage) {
        self.trace = self.trace.wrapping_mul(0x100_0000_01B3) ^ self.now.as_nanos() ^ to.incarnation.store as u64;
        let copies = 1 + u64::from(self.chance(self.trouble.repeat));
        for _ in 0..copies {
            if !self.chance(self.trouble.loss) {
                // One message in ten has twenty times the delay.
                let delay = if self.chance(100) { 20 * self.trouble.delay } else { self.trouble.delay };
                let wait = self.up_to(delay) + 1000;
                self.after(wait, Event::Deliver { to, from, message: message.clone() });
            }
        }
    }

    /// Checks every safety property when a node settles on a cluster.
    fn settled(&mut self, at: usize, founding: Arc<Bootstrap>, formed: bool) {
        let id = self.nodes[at].id;
        if let Some((first, _)) = &self.nodes[at].settled {
            let first = first.cluster;
            return self.violate(format!("{id:?} belongs to {first:?} and to {:?}", founding.cluster));
        }
        if founding.names(id) != formed || (formed && founding.members.len() < usize::from(self.expects[at])) {
            return self.violate(format!("{id:?} has the wrong role in {founding:?}"));
        }
        self.nodes[at].settled = Some((founding.clone(), formed));
        let known = self.formed.iter().position(|(known, _)| known.cluster == founding.cluster);
        let known = known.unwrap_or_else(|| {
            self.formed.push((founding.clone(), BTreeSet::new()));
            self.formed.len() - 1
        });
        if self.formed[known].0 != founding {
            return self.violate(format!("two foundings called {:?}", founding.cluster));
        }
        if formed {
            self.formed[known].1.insert(id);
        }
        let rivals = self.formed.iter().filter(|(other, _)| {
            let shared = other.members.iter().any(|founder| founding.names(founder.id));
            other.cluster != founding.cluster && shared && !self.lost(other) && !self.lost(&founding)
        });
        if let Some(rival) = rivals.map(|(other, _)| other.cluster).next() {
            self.violate(format!("{rival:?} and {:?} share a founder and both can act", founding.cluster));
        }
    }

    fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Whether a founding has lost the majority of its incarnations.
    pub(super) fn lost(&self, founding: &Bootstrap) -> bool {
        let over = |id: MemberId| self.past.iter().any(|past| past.contains(&id));
        let left = founding.members.iter().filter(|founder| !over(founder.id)).count();
        left < founding.majority()
    }

    pub(super) fn foundings(&self) -> Vec<Arc<Bootstrap>> {
        self.formed.iter().map(|(founding, _)| founding.clone()).collect()
    }

    /// The cluster of a node, and whether it is a founder.
    pub(super) fn cluster(&self, at: usize) -> Option<(ClusterId, bool)> {
        self.nodes[at].settled.as_ref().map(|(founding, formed)| (founding.cluster, *formed))
    }

    pub(super) fn phase(&self, at: usize) -> Option<FormationPhase> {
        self.nodes[at].formation.as_ref().map(Formation::phase)
    }

    pub(super) fn id(&self, at: usize) -> MemberId {
        self.nodes[at].id
    }

    pub(super) fn living(&self) -> usize {
        self.nodes.iter().filter(|node| node.formation.is_some()).count()
    }

    pub(super) fn all_settled(&self) -> bool {
        self.nodes.iter().all(|node| node.formation.is_none() || node.settled.is_some())
    }

    /// Checks that every living founder has joined its cluster, if that has kept the majority of its founders.
    pub(super) fn check_nobody_is_left_out(&mut self) {
        let foundings = self.foundings().into_iter().filter(|founding| !self.lost(founding));
        let left_out = foundings.filter(|founding| {
            let belongs = |node: &Node| node.settled.as_ref().is_some_and(|(own, _)| own.cluster == founding.cluster);
            self.nodes.iter().any(|node| node.formation.is_some() && founding.names(node.id) && !belongs(node))
        });
        if let Some(founding) = left_out.map(|founding| founding.cluster).next() {
            self.violate(format!("a founder of {founding:?} doesn't belong to it"));
        }
    }
}

fn accepted(formation: &Formation) -> Option<ClusterId> {
    match formation.phase() {
        FormationPhase::Accepted(id) => Some(id.cluster),
        _ => None,
    }
}

pub(super) fn founder(id: MemberId) -> NodeInfo {
    NodeInfo { id, name: id.node.to_string(), addrs: vec![([127, 0, 0, 1], 7400).into()], host: None }
}
