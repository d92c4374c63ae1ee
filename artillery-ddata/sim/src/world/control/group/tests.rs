//! Runs the conformance suite for groups with cut links against the model. The nodes' own decisions are disabled.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    future::{Future, ready},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use artillery_proto::{
    Epoch, MemberId,
    control::{
        NodeInfo,
        conformance::{self, Rig},
        log::{AppendError, BoxFuture, ChainChange, ConfigChange, Configs, LogEntry, LogIndex, ProposalFuture, Term},
    },
    node::ProposalFate,
};

use super::{super::Founders, Event, Group, World};
use crate::{
    faults::Fault,
    scenario::{ControlSetup, Scenario},
    world,
};

/// Choices that these tests fix, and results that they read.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Whether nodes that are not voters follow the log too, as real ones do.
    pub(super) all_hear: bool,
    /// Whether the next leader has the proposal in limbo. `None`: drawn.
    pub(super) next_has_limbo: Option<bool>,
    /// All entries except that of the founding.
    pub(super) entries: Vec<LogEntry>,
}

#[derive(Clone)]
struct Heard {
    leads: Option<Term>,
    configs: Arc<Configs>,
}

struct Six {
    world: World,
    /// The number of nodes that take part.
    there: usize,
    cuts: BTreeSet<(usize, usize)>,
    heard: BTreeMap<usize, Heard>,
    first: Arc<Configs>,
}

impl Six {
    /// Five voters, and a sixth node that may join.
    fn new(seed: u64) -> Self {
        let mut setup = Scenario::Failover.setup(seed, None);
        (setup.members, setup.faults, setup.crash) = (6, Vec::new(), None);
        setup.control = setup.control.map(|control| ControlSetup { founders: 5, whims: 0, ..control });
        let mut world = World::new(seed, setup, false);
        let control = world.control.as_mut().unwrap();
        control.group.rig.all_hear = true;
        let first = Arc::new(Configs::of(&control.founding));
        Self { world, there: 5, cuts: BTreeSet::new(), heard: BTreeMap::new(), first }
    }

    fn group(&mut self) -> &mut Group {
        &mut self.world.control.as_mut().unwrap().group
    }

    fn at(&self, node: MemberId) -> usize {
        self.world.ids.iter().position(|&id| id == node).unwrap()
    }

    fn heard(&self, node: MemberId) -> Heard {
        let unheard = || Heard { leads: None, configs: self.first.clone() };
        self.heard.get(&self.at(node)).cloned().unwrap_or_else(unheard)
    }

    /// Handles the next event if it concerns the log, and discards it otherwise. Returns the fate of a proposal if the
    /// event reports one.
    fn step(&mut self) -> Option<ProposalFate> {
        let (now, event) = self.world.queue.pop().unwrap();
        self.world.now = now;
        match event {
            world::Event::Control(Event::Look) => self.world.look(),
            world::Event::Control(Event::Log { node, id }) if node < self.there => {
                if let Some((leads, _, configs)) = self.world.said_of_log(id) {
                    self.heard.insert(node, Heard { leads, configs });
                }
            }
            world::Event::Control(Event::Appended { fate, .. }) => return Some(fate),
            _ => {}
        }
        None
    }

    fn pass(&mut self) {
        let until = self.world.now + 2_000_000;
        while self.world.now < until {
            self.step();
        }
    }

    fn cut(&mut self, cuts: BTreeSet<(usize, usize)>) {
        self.world.network.set_faults(cuts.iter().map(|&(from, to)| Fault::Cut(from, to)));
        self.cuts = cuts;
    }

    fn append(&mut self, node: MemberId, term: Term, at: LogIndex, change: ConfigChange) -> Result<(), AppendError> {
        let leader = self.at(node);
        let entry = LogEntry { index: at, term, change };
        let free = self.group().configs().applied() < at;
        self.world.control.as_mut().unwrap().appends += 1;
        self.world.append(leader, node, term, at, entry.change.clone());
        // The next leader has the proposal if it reached a majority, even if the answers are lost.
        let (ids, cuts) = (self.world.ids.clone(), self.cuts.clone());
        let hears = |id| ids.iter().position(|&other| other == id).is_some_and(|to| !cuts.contains(&(leader, to)));
        let group = self.group();
        group.rig.next_has_limbo = Some(group.has_majority_of(hears));
        let fate = loop {
            if let Some(fate) = self.step() {
                break fate;
            }
        };
        let group = self.group();
        let mine = free && group.rig.entries.contains(&entry);
        match fate {
            ProposalFate::Decided if mine => Ok(()),
            ProposalFate::Decided => Err(AppendError::Taken { last: group.configs().applied() }),
            ProposalFate::Refused => Err(AppendError::NotLeading),
            ProposalFate::Unknown => Err(AppendError::OutcomeUnknown("as the model expects".into())),
        }
    }

    fn set_voters(&mut self, node: MemberId, term: Term, voters: BTreeSet<MemberId>) -> Result<(), AppendError> {
        if !self.world.has_majority(node, term) {
            return Err(AppendError::NotLeading);
        }
        self.world.set_voters(self.at(node), node, term, voters);
        match self.group().next {
            None => Ok(()),
            Some(_) => Err(AppendError::OutcomeUnknown("the new ones don't agree".into())),
        }
    }
}

/// The suite changes the cluster through shared references.
struct Cluster(RefCell<Six>);

impl Rig for Cluster {
    fn nodes(&self) -> Vec<MemberId> {
        let six = self.0.borrow();
        six.world.ids[..six.there].to_vec()
    }

    fn come(&self) -> BoxFuture<'_, NodeInfo> {
        let mut six = self.0.borrow_mut();
        let index = six.there;
        six.there += 1;
        Box::pin(ready(Founders::founder(index, six.world.ids[index])))
    }

    fn cut(&self, from: MemberId, to: MemberId) {
        let mut six = self.0.borrow_mut();
        let mut cuts = six.cuts.clone();
        cuts.insert((six.at(from), six.at(to)));
        six.cut(cuts);
    }

    fn heal(&self) {
        self.0.borrow_mut().cut(BTreeSet::new());
    }

    fn pass(&self) -> BoxFuture<'_, ()> {
        self.0.borrow_mut().pass();
        Box::pin(ready(()))
    }

    fn leads(&self, node: MemberId) -> Option<Term> {
        self.0.borrow().heard(node).leads
    }

    fn configs(&self, node: MemberId) -> Arc<Configs> {
        self.0.borrow().heard(node).configs
    }

    fn entries(&self, node: MemberId) -> Vec<LogEntry> {
        let mut six = self.0.borrow_mut();
        let applied = six.heard(node).configs.applied();
        let changes = six.first.iter().map(|config| ChainChange { replaces: Epoch(0), config: config.clone() });
        let first = LogEntry { index: LogIndex(1), term: Term(0), change: ConfigChange::Chains(changes.collect()) };
        let later = six.group().rig.entries.clone();
        [first].into_iter().chain(later).take_while(|entry| entry.index <= applied).collect()
    }

    fn voter_sets(&self, _: MemberId) -> Vec<BTreeSet<MemberId>> {
        self.0.borrow_mut().group().sets().cloned().collect()
    }

    fn append(&self, node: MemberId, term: Term, at: LogIndex, change: ConfigChange) -> ProposalFuture<'_> {
        Box::pin(ready(self.0.borrow_mut().append(node, term, at, change)))
    }

    fn set_voters(&self, node: MemberId, term: Term, voters: BTreeSet<MemberId>) -> ProposalFuture<'_> {
        Box::pin(ready(self.0.borrow_mut().set_voters(node, term, voters)))
    }
}

/// Runs a case in one poll: each call advances virtual time itself, so nothing is ever pending.
fn run(case: impl Future<Output = ()>) {
    assert_eq!(pin!(case).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()));
}

const SEEDS: std::ops::Range<u64> = 0..100;

#[test]
fn joint_set_stuck() {
    SEEDS.for_each(|seed| run(conformance::joint_set_stuck(&Cluster(Six::new(seed).into()))));
}

#[test]
fn catch_up() {
    SEEDS.for_each(|seed| run(conformance::catch_up(&Cluster(Six::new(seed).into()))));
}

#[test]
fn unknown_then_refused() {
    SEEDS.for_each(|seed| run(conformance::unknown_then_refused(&Cluster(Six::new(seed).into()))));
}

#[test]
fn unknown_then_taken() {
    SEEDS.for_each(|seed| run(conformance::unknown_then_taken(&Cluster(Six::new(seed).into()))));
}
