mod leaving;
mod one_way;
mod settled;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::*;
use crate::{
    ChainConfig, ChainId, ChainMember, ClusterId, Epoch, Incarnation, Role,
    control::{
        Bootstrap, ChainSettings, NodeInfo,
        log::{ChainChange, ConfigChange, Configs, LogEntry, LogIndex},
        message::{Farewell, Leave, LeaveStage, Promotion, Renewal, Renewed, Report, Unsettled},
        reopening::Reopened,
    },
    fixtures::{self, founder, id, number},
    guards::Mutant,
};

/// A leader over a log that accepts every proposal, with nodes that renew on command.
struct World {
    coordinator: Coordinator,
    configs: Configs,
    now: Timestamp,
    term: u64,
    number: u64,
    confirms: bool,
    answered: BTreeMap<u8, u64>,
    /// Pending proposals, if their decisions are delayed.
    put_off: Option<Vec<(Term, LogIndex, ConfigChange)>>,
    reordered: Vec<(u64, Result<Epoch, ReorderError>)>,
    reopened: Vec<(u64, Result<Reopened, NotReopened>)>,
    given_up: Vec<(u64, Result<(), NotGivenUp>)>,
    why: Vec<Why>,
    nodes: u8,
    said: BTreeMap<u8, Renewed>,
    leaves: BTreeMap<u8, Leave>,
    /// The current voters; `new_voters` are the ones requested by the leader.
    voters: BTreeSet<MemberId>,
    new_voters: Option<BTreeSet<MemberId>>,
    /// When each node last renewed: each of them answers the log too.
    renewed: BTreeMap<MemberId, Timestamp>,
    /// These nodes answer the log even if they don't renew.
    answering: Vec<u8>,
    /// These nodes don't answer the log even if they renew.
    undialable: Vec<u8>,
    resigned: bool,
    warnings: Vec<LogWarning>,
}

impl World {
    /// The first `founders` nodes form the cluster; node 0 leads.
    fn new(founders: u8, replicas: u32) -> Self {
        let settings = ChainSettings { replicas, ..ChainSettings::default() };
        let members = (0..founders).map(founder).collect();
        let founding = Bootstrap { settings, ..Bootstrap::new(ClusterId(5), "shop", members) };
        let settings = CoordinatorSettings { replicas: replicas as usize, ..CoordinatorSettings::default() };
        let mut world = Self {
            coordinator: Coordinator::new(id(0), settings),
            configs: Configs::of(&founding),
            now: Timestamp::from_nanos(1 << 40),
            term: 1,
            number: 0,
            confirms: true,
            answered: BTreeMap::new(),
            put_off: None,
            reordered: vec![],
            reopened: vec![],
            given_up: vec![],
            why: vec![],
            nodes: founders,
            said: BTreeMap::new(),
            leaves: BTreeMap::new(),
            voters: [id(0)].into(),
            new_voters: None,
            renewed: BTreeMap::new(),
            answering: vec![],
            undialable: vec![],
            resigned: false,
            warnings: vec![],
        };
        world.log();
        world
    }

    /// Like `new`, but two seconds later, with renewals of all nodes.
    fn running(founders: u8, replicas: u32) -> Self {
        let mut world = Self::new(founders, replicas);
        world.pass(2000, &world.all());
        world
    }

    /// Disables one guard of the leader.
    fn without(mut self, mutant: Option<Mutant>) -> Self {
        self.coordinator.cluster.settings_mut().guards = mutant.into();
        self
    }

    fn all(&self) -> Vec<u8> {
        (0..self.nodes).collect()
    }

    fn config(&self) -> &ChainConfig {
        self.configs.get(ChainId(0)).unwrap()
    }

    fn serving(&self) -> Vec<MemberId> {
        self.config().serving().collect()
    }

    fn head(&self) -> u8 {
        self.config().head().map(number).unwrap()
    }

    fn tail(&self) -> u8 {
        self.config().tail().map(number).unwrap()
    }

    fn spare(&self) -> u8 {
        self.all().into_iter().find(|&n| !self.serving().contains(&id(n))).unwrap()
    }

    /// Begins another term of the same leader.
    fn elect(&mut self, term: u64) {
        self.term = term;
        self.log();
    }

    fn log(&mut self) {
        let leads = (self.term > 0).then_some(Term(self.term));
        let configs = Arc::new(self.configs.clone());
        self.handle(CoordinatorInput::Log {
            leads,
            leader: leads.map(|_| id(0)),
            configs,
            voters: self.voters.clone(),
        });
    }

    fn handle(&mut self, input: CoordinatorInput) -> Vec<Renewed> {
        self.coordinator.handle(self.now, input);
        let mut answers = Vec::new();
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                CoordinatorOutput::Answer { to, renewed } => {
                    let n = number(to);
                    self.answered.insert(n, renewed.number);
                    self.said.insert(n, renewed.clone());
                    answers.push(renewed);
                }
                CoordinatorOutput::Confirm { round, .. } => {
                    let leads = self.confirms;
                    let (answering, now) = (self.answering.iter(), self.now);
                    let answering = answering.map(|&n| (id(n), now));
                    let dialable = |&(node, _): &(MemberId, Timestamp)| !self.undialable.contains(&number(node));
                    let answered = self.renewed.clone().into_iter().chain(answering).filter(dialable).collect();
                    self.coordinator.handle(self.now, CoordinatorInput::Confirmed { round, leads, answered });
                }
                CoordinatorOutput::Reopened { token, result } => self.reopened.push((token, result)),
                CoordinatorOutput::GivenUp { token, result } => self.given_up.push((token, result)),
                CoordinatorOutput::Reordered { token, result } => self.reordered.push((token, result)),
                CoordinatorOutput::Append { term, at, change, why } => {
                    self.why.extend(why.iter().map(|reason| reason.why));
                    match &mut self.put_off {
                        Some(waiting) => waiting.push((term, at, change)),
                        None => self.append(term, at, change),
                    }
                }
                CoordinatorOutput::SetVoters { voters, .. } => self.new_voters = Some(voters),
                CoordinatorOutput::Resign { .. } => self.resigned = true,
                CoordinatorOutput::Stand => self.resigned = false,
                CoordinatorOutput::Warn(warning) => self.warnings.push(warning),
            }
        }
        answers
    }

    fn append(&mut self, term: Term, at: LogIndex, change: ConfigChange) {
        let fate = match term == Term(self.term) && at == self.configs.applied().next() {
            true => ProposalFate::Decided,
            false => ProposalFate::Refused,
        };
        if fate == ProposalFate::Decided {
            self.configs.apply(&LogEntry { index: at, term, change }).unwrap();
        }
        self.coordinator.handle(self.now, CoordinatorInput::Appended { at, fate });
        self.log();
    }

    fn renewal(&mut self, n: u8) -> Renewal {
        self.number += 1;
        Renewal {
            answered: self.answered.get(&n).copied().unwrap_or(0),
            leave: self.leaves.get(&n).copied().unwrap_or_default(),
            ..fixtures::renewal(n, self.number, self.configs.applied())
        }
    }

    fn renew(&mut self, n: u8) -> Option<Duration> {
        let renewal = self.renewal(n);
        self.renew_with(n, renewal)
    }

    fn renew_with(&mut self, n: u8, renewal: Renewal) -> Option<Duration> {
        self.renewed.insert(renewal.me.id, self.now);
        self.answer(n, renewal).and_then(|renewed| renewed.lease)
    }

    /// The last answer to this renewal, if it is answered at once.
    fn answer(&mut self, n: u8, renewal: Renewal) -> Option<Renewed> {
        self.handle(CoordinatorInput::Renewal { from: id(n), renewal }).pop()
    }

    /// Like `answer`, for a renewal with this report.
    fn report(&mut self, n: u8, report: Report) -> Option<Renewed> {
        let renewal = Renewal { reports: vec![report], ..self.renewal(n) };
        self.answer(n, renewal)
    }

    fn wish(&mut self, n: u8, wish: Promotion) {
        let renewal = Renewal { promotions: vec![wish], ..self.renewal(n) };
        self.renew_with(n, renewal);
    }

    fn said(&mut self, n: u8) -> Renewed {
        let renewal = self.renewal(n);
        self.answer(n, renewal).unwrap()
    }

    /// Node `n` asks to leave. Returns the last answer to it.
    fn ask(&mut self, n: u8) -> Renewed {
        let leave = self.leaves.entry(n).or_default();
        leave.stage = leave.stage.max(LeaveStage::Asks);
        self.renew(n);
        self.said.remove(&n).unwrap()
    }

    /// Node `n` asks to leave, and executes the leader's next step. Returns the last answer to it.
    fn leave(&mut self, n: u8) -> Renewed {
        let mut answer = self.ask(n);
        if let Some(next) = answer.leave {
            self.leaves.insert(n, next);
            answer = self.ask(n);
        }
        answer
    }

    /// Lets time pass, while `there` renew. Returns after how many milliseconds the epoch first changed.
    fn pass(&mut self, millis: u64, there: &[u8]) -> Option<u64> {
        let (before, mut at) = (self.config().epoch, None);
        for passed in (0..millis).step_by(50) {
            self.now = self.now + Duration::from_millis(50);
            if passed % 250 == 0 {
                for &n in there {
                    self.renew(n);
                }
            }
            self.handle(CoordinatorInput::Tick);
            if self.config().epoch != before {
                at = at.or(Some(passed + 50));
            }
        }
        at
    }
}

#[test]
fn a_lease_needs_a_quorum() {
    let mut world = World::new(3, 3);
    assert_eq!(world.renew(1), Some(Duration::from_secs(1)));
    world.confirms = false;
    assert_eq!(world.renew(1), None, "another node may lead by now");
    world.confirms = true;
    world.elect(0);
    assert_eq!(world.renew(1), None, "a node that doesn't lead grants nothing");
}

#[test]
fn only_members_that_act_as_serving_get_leases() {
    let mut world = World::new(4, 3);
    let serving = world.serving();
    for n in 0..4 {
        assert_eq!(world.renew(n).is_some(), serving.contains(&id(n)), "{n}");
    }
    let n = (0..4).find(|&n| serving.contains(&id(n))).unwrap();
    let old = Renewal { applied: LogIndex(0), ..world.renewal(n) };
    assert_eq!(world.renew_with(n, old), None, "it may act in its former role");
    let boast = Renewal { me: founder(9), ..world.renewal(n) };
    assert_eq!(world.renew_with(n, boast), None, "it claims to be another node");
}

#[test]
fn a_dead_member_is_removed_after_its_lease() {
    let mut world = World::running(3, 3);
    assert_eq!(world.config().epoch, Epoch(1));
    world.renew(2);
    let granted = world.now;
    let at = world.pass(3000, &[0, 1]).expect("it is removed");
    assert!((1010..=1100).contains(&at), "{at} ms after its last renewal");
    assert_eq!(world.serving().len(), 2);
    assert!(world.now > granted);
    world.pass(3000, &[0]);
    assert_eq!(world.serving(), [id(0)], "the leader is alive");
    world.leave(0);
    world.pass(3000, &[0]);
    assert_eq!(world.serving(), [id(0)], "never the last one");
}

#[test]
fn a_new_leader_waits_for_leases_that_others_granted() {
    let mut world = World::running(3, 3);
    world.elect(2);
    let at = world.pass(3000, &[0, 1]).expect("it is removed");
    assert!((1010..=1100).contains(&at), "{at} ms after its term began");
}

#[test]
fn a_resigned_member_is_removed_at_once() {
    let mut world = World::running(3, 3);
    assert_eq!(world.leave(2).lease, None);
    assert!(!world.serving().contains(&id(2)));
    assert_eq!(world.renew(2), None);
}

#[test]
fn nothing_is_renewed_while_a_removal_is_decided() {
    let mut world = World::running(3, 3);
    world.put_off = Some(vec![]);
    world.pass(1200, &[0, 1]);
    assert_eq!(world.put_off.as_ref().unwrap().len(), 1, "one proposal at a time");
    assert_eq!(world.renew(2), None, "its removal may already be in the log");
    world.log();
    assert_eq!(world.renew(2), None, "the log shows no entry at that index yet");
    assert!(world.renew(1).is_some());
    // Another entry takes the index. Then the proposal is void, and the member is back.
    let (term, at, _) = world.put_off.take().unwrap().remove(0);
    world.append(term, at, ConfigChange::Nodes { add: vec![founder(7)], remove: vec![] });
    world.renew(2);
    assert!(world.renew(2).is_some());
    assert_eq!(world.serving().len(), 3);
}

#[test]
fn a_fenced_member_that_speaks_again_before_the_proposal_stays() {
    let mut world = World::running(3, 3);
    assert_eq!(world.pass(700, &[0, 1]), None);
    assert!(world.renew(2).is_some(), "nothing was proposed, so nothing is undecided");
    assert_eq!(world.pass(1000, &[0, 1, 2]), None);
}

/// Another term begins, in which nodes 1 and 2 send renewals but never show an answer: their messages may be old.
fn hear_old_messages(world: &mut World) {
    let old = [1, 2].map(|n| Renewal { answered: 0, ..world.renewal(n) });
    world.elect(2);
    for _ in 0..60 {
        world.pass(50, &[]);
        for (n, renewal) in [1, 2].into_iter().zip(&old) {
            world.renew_with(n, renewal.clone());
        }
    }
}

/// A chain of three that has lost one member; the spare that joins; and all living nodes, including the spare.
fn joined() -> (World, u8, Vec<u8>) {
    let mut world = World::running(4, 3);
    let spare = world.spare();
    let gone = (1..4).find(|&n| n != spare).unwrap();
    let there: Vec<u8> = (0..4).filter(|&n| n != gone).collect();
    world.pass(2000, &there);
    assert_eq!(world.config().syncing(), Some(id(spare)));
    (world, spare, there)
}

#[test]
fn a_spare_joins_and_is_promoted_when_the_tail_asks() {
    let (mut world, spare, _) = joined();
    assert_eq!(world.serving().len(), 2);
    let present = world.config().clone();
    let (head, tail) = (world.head(), world.tail());
    let wish = Promotion { chain: ChainId(0), epoch: present.epoch, member: id(spare) };
    let stale = Promotion { epoch: Epoch(present.epoch.0 - 1), ..wish };
    let of_another_chain = Promotion { chain: ChainId(1), ..wish };
    for (n, wish) in [(head, wish), (tail, stale), (tail, of_another_chain)] {
        world.wish(n, wish);
        assert_eq!(world.config().syncing(), Some(id(spare)), "not from the tail, or not of this epoch or chain");
    }
    world.wish(tail, wish);
    assert_eq!(world.config().tail(), Some(id(spare)));
    assert_eq!(world.config().role(id(spare)), Some(Role::Serving));
}

#[test]
fn a_deaf_leader_removes_no_member() {
    let mut world = World::running(3, 3);
    world.confirms = false;
    world.pass(5000, &[0]);
    assert_eq!(world.serving().len(), 3, "the others may be alive, and this node deaf");
    world.confirms = true;
    world.pass(500, &[0]);
    assert_eq!(world.serving(), [id(0)], "a quorum confirms the leader: these two are silent");
}

#[test]
fn a_joiner_that_dies_is_dropped() {
    let (mut world, spare, there) = joined();
    let left: Vec<u8> = there.into_iter().filter(|&n| n != spare).collect();
    world.pass(1000, &left);
    assert_eq!(world.config().syncing(), None);
}

#[test]
fn a_new_incarnation_waits_until_the_known_one_is_silent() {
    let mut world = World::running(3, 3);
    let mut again = founder(2);
    again.id.incarnation.store += 1;
    let renewal = Renewal { me: again.clone(), ..world.renewal(2) };
    world.handle(CoordinatorInput::Renewal { from: again.id, renewal });
    assert_eq!(world.configs.node(id(2)).map(|known| known.id), Some(id(2)));
    for _ in 0..8 {
        world.pass(250, &[0, 1]);
        let renewal = Renewal { me: again.clone(), ..world.renewal(2) };
        world.handle(CoordinatorInput::Renewal { from: again.id, renewal });
    }
    assert_eq!(world.configs.node(again.id), Some(&again));
    assert_eq!(world.config().syncing(), Some(again.id), "it returns as a new member");
    assert_eq!(world.serving().len(), 2);
}

#[test]
fn voters_are_living_nodes() {
    let mut world = World::new(5, 3);
    world.pass(3000, &[0, 1, 2, 3, 4]);
    let wanted = |voters: &[u8], there: &[u8], grows: bool| {
        let voters: BTreeSet<_> = voters.iter().copied().map(id).collect();
        super::voters::wanted(
            &world.configs,
            &voters,
            Some(id(0)),
            5,
            grows,
            |member| there.iter().any(|&n| id(n) == *member),
            |_| None,
        )
        .map(|set| (0..5).filter(|&n| set.contains(&id(n))).collect::<Vec<u8>>())
    };
    assert_eq!(wanted(&[0, 1, 2], &[0, 1, 2], true), None);
    assert_eq!(wanted(&[0, 1, 2], &[0, 1, 3], true), Some(vec![0, 1, 3]), "the dead one is replaced");
    assert_eq!(wanted(&[0, 1, 2], &[0, 1], true), None, "two voters are as fragile as three with a dead one");
    assert_eq!(wanted(&[0, 1, 2, 3, 4], &[0, 1, 2], true), Some(vec![0, 1, 2]));
    assert_eq!(wanted(&[0, 1, 2], &[0, 1, 2, 3, 4], true), Some(vec![0, 1, 2, 3, 4]));
    assert_eq!(wanted(&[0, 1, 2], &[0, 1, 3, 4], false), Some(vec![0, 1, 3]), "the set doesn't grow while one is dead");
    assert_eq!(wanted(&[0], &[0, 1], true), None);
    assert_eq!(wanted(&[0, 1], &[0, 1, 2], true), Some(vec![0, 1, 2]));
}

mod giving_way;
mod gray;
mod guards;
mod removals;
mod reopen;
mod reorder;
mod returning;

#[test]
fn an_old_message_is_no_sign_of_life() {
    let mut world = World::running(3, 3);
    hear_old_messages(&mut world);
    assert_eq!(world.serving().len(), 3, "the leader is alive, and the others send messages");
    world.leave(0);
    assert_eq!(world.serving().len(), 3, "no other member is known to be alive");
    world.pass(600, &[1]);
    world.leave(0);
    assert_eq!(world.serving(), [id(1)], "node 0 has left, and node 2 shows no answer");
}

#[test]
fn after_a_pause_the_leader_observes_anew() {
    let mut world = World::running(3, 3);
    world.now = world.now + Duration::from_secs(60);
    world.handle(CoordinatorInput::Tick);
    world.renew(1);
    assert_eq!(world.pass(900, &[0, 1, 2]), None);
}

/// The log names an elected node as leader at once. A majority may be lost before that node has committed anything.
#[test]
fn an_elected_node_that_has_committed_nothing_names_no_leader() {
    let mut world = World::new(3, 3);
    let renewal = world.renewal(1);
    let configs = Arc::new(world.configs.clone());
    for (leader, said) in [(id(0), None), (id(2), Some(id(2)))] {
        let voters = world.voters.clone();
        world.handle(CoordinatorInput::Log { leads: None, leader: Some(leader), configs: configs.clone(), voters });
        let answers = world.handle(CoordinatorInput::Renewal { from: id(1), renewal: renewal.clone() });
        assert_eq!(answers.first().map(|renewed| renewed.leader), Some(said));
    }
}

#[test]
fn a_leader_that_gave_no_answers_finds_no_deaf_member() {
    let mut world = World::running(4, 3);
    let before = world.serving();
    world.confirms = false;
    world.pass(5000, &[0, 1, 2, 3]);
    world.confirms = true;
    world.pass(2000, &[0, 1, 2, 3]);
    assert_eq!(world.serving(), before);
}
