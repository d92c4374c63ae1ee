//! A small chain through random reconfigurations, joins, losses, delays and repetitions.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use rand::{
    RngExt, SeedableRng,
    seq::{IndexedRandom, SliceRandom},
};
use rand_chacha::ChaCha8Rng;

use super::{super::*, rig::*};
use crate::{ChainMember, Epoch, Role, Version, api::*, types::update::RequestKey};

const NODES: [u8; 5] = [1, 2, 3, 4, 5];
const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A broken promise, in words.
type Broken = String;

struct World {
    rig: Rig,
    rng: ChaCha8Rng,
    /// The newest configuration of the log.
    config: Arc<ChainConfig>,
    down: Vec<(u8, u8)>,
    session: Option<Version>,
    number: u64,
    next_value: u64,
    committed: BTreeMap<Sequence, Version>,
    /// The sequence up to which each member was compared with that.
    agreed: BTreeMap<u8, Sequence>,
    /// The newest committed update of each key.
    newest: BTreeMap<Bytes, Sequence>,
    /// The newest update of its key that was known to be committed when a read began.
    reads: BTreeMap<u64, (Bytes, Sequence)>,
    checked: usize,
    events: usize,
    promotions: usize,
    snapshots: u64,
}

fn settings(rng: &mut ChaCha8Rng) -> ReplicaSettings {
    ReplicaSettings {
        backlog: *[700, 1500, 1 << 20].choose(rng).unwrap(),
        chunk: 150,
        clear_keys: 1,
        close_behind: *[200, 1000].choose(rng).unwrap(),
        joiner_buffer: *[300, 1 << 20].choose(rng).unwrap(),
        resend: Some(std::time::Duration::from_millis(200)),
        ..ReplicaSettings::default()
    }
}

fn n_of(id: MemberId) -> u8 {
    id.node.as_bytes()[0]
}

impl World {
    fn new(seed: u64, change: impl FnOnce(&mut ReplicaSettings)) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut settings = settings(&mut rng);
        change(&mut settings);
        let mut rig = Rig::new(&NODES, &settings);
        rig.frames = 6;
        rig.room = 400;
        let config = config(1, &[1, 2, 3]);
        rig.enter(&[1, 2, 3], &config);
        Self {
            rig,
            rng,
            config,
            down: Vec::new(),
            session: None,
            number: 0,
            next_value: 0,
            committed: BTreeMap::new(),
            agreed: BTreeMap::new(),
            newest: BTreeMap::new(),
            reads: BTreeMap::new(),
            checked: 0,
            events: 0,
            promotions: 0,
            snapshots: 0,
        }
    }

    fn any(&mut self) -> u8 {
        *NODES.choose(&mut self.rng).unwrap()
    }

    fn key(&mut self) -> Bytes {
        (*KEYS.choose(&mut self.rng).unwrap()).into()
    }

    fn step(&mut self) -> Result<(), Broken> {
        match self.rng.random_range(0..100) {
            0..58 => self.deliver(),
            58..68 => self.write(),
            68..74 => self.look()?,
            74..78 => self.ask(),
            78..84 => self.rig.heartbeat(),
            84..92 => self.enter(),
            92..95 => self.change_link(),
            95..97 => self.promote(),
            _ => self.reconfigure(),
        }
        self.rig.transmit();
        self.down.clone().into_iter().for_each(|(a, b)| {
            self.rig.wire.remove(&(a, b));
            self.rig.wire.remove(&(b, a));
        });
        self.observe()
    }

    fn deliver(&mut self) {
        let busy: Vec<_> = self.rig.wire.iter().filter(|(_, queue)| !queue.is_empty()).map(|(&link, _)| link).collect();
        let Some(&(from, to)) = busy.choose(&mut self.rng) else { return };
        let queue = self.rig.wire.get_mut(&(from, to)).unwrap();
        match self.rng.random_range(0..40) {
            0 => drop(queue.pop_front()),
            1 => queue.push_back(queue[0].clone()),
            2 => queue.rotate_left(1),
            _ => drop(self.rig.deliver(from, to)),
        }
    }

    fn write(&mut self) {
        let (n, key) = (self.any(), self.key());
        self.next_value += 1;
        let value = |len: usize, n: u64| Bytes::from(format!("{n:0len$}"));
        let write = match self.rng.random_range(0..10) {
            0..3 => Write::Delete { key },
            3 => Write::Put { key, value: value(400, self.next_value) },
            4 => Write::OpenSession,
            5 => Write::GetDelete { key },
            _ => Write::Put { key, value: value(8, self.next_value) },
        };
        let request = self.session.filter(|_| !matches!(write, Write::OpenSession)).map(|session| {
            self.number += 1;
            RequestKey { session, number: self.number, lowest: self.number.saturating_sub(5) }
        });
        self.rig.request(n, request, write);
    }

    fn floor(&self, key: &Bytes) -> Sequence {
        self.newest.get(key).copied().unwrap_or_default()
    }

    /// A read must not find less than `floor`, which was committed before it began.
    fn check_read(&self, key: &Bytes, floor: Sequence, held: Option<&crate::store::Held>) -> Result<(), Broken> {
        let found = held.map_or(Sequence::ZERO, |held| held.version.sequence);
        // An absent key may have been deleted at any time since.
        let deletes = |version: &Version| {
            self.rig.updates[version].changes.iter().any(|change| change.key == *key && change.value.is_none())
        };
        let deleted = || self.committed.range(floor..).any(|(_, version)| deletes(version));
        let is_absent = held.is_none_or(|held| held.value.is_none());
        if found < floor && !(is_absent && deleted()) {
            return Err(format!("a read of {key:?} found {held:?}, {floor} was committed"));
        }
        match held {
            Some(held) if self.committed.get(&held.version.sequence) != Some(&held.version) => {
                Err(format!("a read of {key:?} found {held:?}, which isn't committed"))
            }
            _ => Ok(()),
        }
    }

    fn look(&mut self) -> Result<(), Broken> {
        let (n, key) = (self.any(), self.key());
        match self.rig.local(n, std::str::from_utf8(&key).unwrap()) {
            Ok(held) => self.check_read(&key, self.floor(&key), held.as_ref()),
            Err(_) => Ok(()),
        }
    }

    fn ask(&mut self) {
        let (n, key) = (self.any(), self.key());
        let mode = if self.rng.random() { ReadMode::Strong } else { ReadMode::ThroughChain };
        let floor = self.floor(&key);
        let token = self.rig.ask(n, Query::Key(key.clone()), mode, None);
        self.reads.insert(token, (key, floor));
    }

    fn enter(&mut self) {
        let n = self.any();
        if self.config.role(member(n)).is_some() {
            self.rig.enter(&[n], &self.config.clone());
        }
    }

    fn change_link(&mut self) {
        if !self.down.is_empty() && self.rng.random() {
            let (a, b) = self.down.swap_remove(0);
            return self.rig.join_link(a, b);
        }
        let (a, b) = (self.any(), self.any());
        if a < b && !self.down.contains(&(a, b)) {
            self.rig.cut_link(a, b);
            self.down.push((a, b));
        }
    }

    fn settle_config(&mut self, members: Vec<ChainMember>) {
        let epoch = Epoch(self.config.epoch.0 + 1);
        self.config = Arc::new(ChainConfig { epoch, index: epoch.0, members, ..ChainConfig::clone(&self.config) });
    }

    fn promote(&mut self) {
        let Some(joiner) = self.config.syncing() else { return };
        let epoch = self.config.epoch;
        if self.rig.promotions.iter().any(|&(_, asked, member)| (asked, member) == (epoch, n_of(joiner))) {
            let serving = |member: &ChainMember| ChainMember { role: Role::Serving, ..*member };
            self.promotions += 1;
            self.settle_config(self.config.members.iter().map(serving).collect());
        }
    }

    /// Removes a member, moves it out to catch up, lets another one join, or reorders the serving members.
    fn reconfigure(&mut self) {
        let mut members = self.config.members.clone();
        let serving = self.config.serving().count();
        let at = self.rng.random_range(0..members.len());
        let joins = self.config.syncing().is_none();
        match self.rng.random_range(0..5) {
            0 | 1 if joins => {
                let spares: Vec<_> = NODES.iter().filter(|&&n| self.config.role(member(n)).is_none()).collect();
                let Some(&&spare) = spares.choose(&mut self.rng) else { return };
                members.push(ChainMember { id: member(spare), role: Role::Syncing });
                self.settle_config(members);
            }
            2 if joins && serving > 1 => {
                let moved = members.remove(at);
                members.push(ChainMember { role: Role::Syncing, ..moved });
                self.settle_config(members);
                // The member is fenced first.
                self.rig.enter(&[n_of(moved.id)], &self.config.clone());
            }
            3 if members[at].role == Role::Syncing || serving > 1 => {
                let removed = members.remove(at);
                self.settle_config(members);
                self.rig.input(n_of(removed.id), ReplicaInput::Expelled(self.config.epoch));
            }
            4 => {
                members[..serving].shuffle(&mut self.rng);
                self.settle_config(members);
            }
            _ => {}
        }
    }

    fn observe(&mut self) -> Result<(), Broken> {
        for (n, replica) in &self.rig.replicas {
            let known = self.agreed.insert(*n, replica.watermark).unwrap_or_default();
            // A member that begins anew is compared from its beginning.
            let from = if known > replica.watermark { 1 } else { known.0 + 1 };
            for version in (from..=replica.watermark.0).map(|sequence| replica.history.version_at(Sequence(sequence))) {
                let Some(version) = version else { return Err(format!("{n} has a hole below its watermark")) };
                let agreed = *self.committed.entry(version.sequence).or_insert(version);
                if agreed != version {
                    return Err(format!("{n} has committed {version}, others {agreed}"));
                }
                for change in &self.rig.updates[&version].changes {
                    let newest = self.newest.entry(change.key.clone()).or_default();
                    *newest = version.sequence.max(*newest);
                }
            }
        }
        for (n, event) in &self.rig.events[self.events..] {
            if let ReplicaEvent::Halted(why) = event {
                return Err(format!("{n} halted: {why}"));
            }
            self.snapshots += u64::from(matches!(event, ReplicaEvent::Resynced { .. }));
        }
        self.events = self.rig.events.len();
        self.check_replies()
    }

    fn check_replies(&mut self) -> Result<(), Broken> {
        if self.rig.replies.len() == self.checked {
            return Ok(());
        }
        self.checked = self.rig.replies.len();
        for (token, reply) in &self.rig.replies {
            match reply {
                Reply::Committed(committed) => {
                    let at = committed.version;
                    if self.committed.get(&at.sequence) != Some(&at) {
                        return Err(format!("{at} was answered as committed, but isn't"));
                    }
                    self.check_taken(&committed.result)?;
                    let opens = |update: &Update| update.kind == crate::types::update::UpdateKind::SESSION_OPEN;
                    if self.rig.updates.get(&at).is_some_and(opens) {
                        self.session = Some(at);
                    }
                }
                Reply::Read(read) => {
                    if let Some((key, floor)) = self.reads.get(token) {
                        self.check_read(key, *floor, read.held.as_ref())?;
                    }
                }
                _ => {}
            }
        }
        self.reads.retain(|token, _| !self.rig.replies.contains_key(token));
        Ok(())
    }

    /// A value that is reported as taken away was there.
    fn check_taken(&self, result: &Computed) -> Result<(), Broken> {
        let Computed::Took(Some((version, value))) = result else { return Ok(()) };
        let made = |update: &Update| update.changes.iter().any(|change| change.value.as_ref() == Some(value));
        match self.rig.updates.get(version) {
            Some(update) if made(update) => Ok(()),
            update => Err(format!("{value:?} was taken, which {version} isn't: {update:?}")),
        }
    }

    /// Heals all links, and compares all members with each other and with the committed updates.
    fn finish(&mut self) -> Result<(), Broken> {
        for (a, b) in std::mem::take(&mut self.down) {
            self.rig.join_link(a, b);
        }
        for _ in 0..40 {
            self.rig.enter(
                &NODES.map(|n| n).into_iter().filter(|&n| self.config.role(member(n)).is_some()).collect::<Vec<_>>(),
                &self.config.clone(),
            );
            self.rig.beat(1);
            self.observe()?;
            self.promote();
        }
        if self.config.syncing().is_some() {
            return Err("the joiner is never promoted".into());
        }
        let members: Vec<u8> = self.config.members.iter().map(|member| n_of(member.id)).collect();
        let put = self.rig.put(members[0], "last", "word");
        self.rig.beat(4);
        self.observe()?;
        if !matches!(self.rig.replies.get(&put), Some(Reply::Committed(_))) {
            return Err(format!("the chain is stuck: {:?}", self.rig.replies.get(&put)));
        }
        for &n in &members {
            self.check_member(n, members[0])?;
        }
        Ok(())
    }

    fn check_member(&self, n: u8, head: u8) -> Result<(), Broken> {
        let mut model = BTreeMap::new();
        for (place, (sequence, version)) in (1..).zip(&self.committed) {
            if sequence.0 != place {
                return Err(format!("no update was seen at {place}"));
            }
            for change in &self.rig.updates[version].changes {
                model.insert(change.key.clone(), (*version, change.value.clone()));
            }
        }
        model.retain(|_, (_, value)| value.is_some());
        let held: BTreeMap<_, _> = self
            .rig
            .contents(n)
            .into_iter()
            .map(|record| (record.key, (record.held.version, record.held.value)))
            .collect();
        if held != model {
            return Err(format!("{n} holds {held:?}, committed was {model:?}"));
        }
        let same = self.rig.requests(n) == self.rig.requests(head)
            && self.rig.stores[&n].bytes() == self.rig.stores[&head].bytes()
            && (self.rig.last(n), self.rig.watermark(n)) == (self.rig.last(head), self.rig.watermark(head));
        if same { Ok(()) } else { Err(format!("{n} and {head} differ")) }
    }
}

fn run(seed: u64, steps: usize, change: impl FnOnce(&mut ReplicaSettings)) -> Result<World, Broken> {
    let mut world = World::new(seed, change);
    for step in 0..steps {
        world.step().map_err(|broken| format!("step {step}: {broken}"))?;
    }
    world.finish()?;
    Ok(world)
}

proptest! {
    #[test]
    fn nothing_committed_is_ever_lost(seed: u64) {
        if let Err(broken) = run(seed, 700, |_| ()) {
            return Err(TestCaseError::fail(broken));
        }
    }
}

/// The runs reach the cases that they are to test.
#[test]
fn the_runs_reach_promotions_snapshots_and_commits() {
    let (mut promotions, mut snapshots, mut committed) = (0, 0, 0);
    for seed in 0..20 {
        let world = run(seed, 700, |_| ()).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        promotions += world.promotions;
        snapshots += world.snapshots;
        committed += world.committed.len();
    }
    assert!(promotions > 10 && snapshots > 5 && committed > 200, "{promotions} {snapshots} {committed}");
}

mod mutants {
    use super::*;
    use crate::guards::{Guards, Mutant};

    /// The first seed at which the guard's absence is noticed, and by what.
    fn caught(mutant: Mutant, seeds: u64) -> Option<(u64, Broken)> {
        (0..seeds).find_map(|seed| {
            let run = || run(seed, 700, |settings| settings.guards = Guards::without(mutant)).err();
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            caught.unwrap_or_else(|_| Some("an assertion failed".into())).map(|broken| (seed, broken))
        })
    }

    /// Those that need more than chance stand in `guards.rs`.
    #[test]
    fn each_missing_guard_is_noticed() {
        let all = [
            Mutant::ServeWhenExpelled,
            Mutant::TakeOlderEpoch,
            Mutant::PromoteTooEarly,
            Mutant::ReuseEpoch,
            Mutant::KeepDirty,
            Mutant::NoWipe,
            Mutant::ForgetAsked,
            Mutant::RollBackFirst,
            Mutant::SkipFinished,
            Mutant::FollowTooSoon,
        ];
        let found: Vec<_> = all.into_iter().map(|mutant| (mutant, caught(mutant, 300))).collect();
        for (mutant, caught) in &found {
            println!("{mutant:?}: {caught:.300?}");
        }
        let missed: Vec<_> = found.iter().filter(|(_, caught)| caught.is_none()).map(|(mutant, _)| mutant).collect();
        assert!(missed.is_empty(), "{missed:?} went unnoticed");
    }
}
