//! A few replicas, and the frames between them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;

use super::super::*;
use crate::api::*;
use crate::{
    Epoch, Role, Version,
    fixtures::{self, number},
    guards::Mutant,
    journal::JournalEntry,
    message::{Control, SessionEntry, Updates},
    store::{Held, MemoryStore},
    types::update::RequestKey,
};
pub(super) use crate::{
    api::Reply,
    message::{ChainFrame, ChainMessage},
};

pub(super) use crate::fixtures::id as member;

pub(super) const FAR: Timestamp = Timestamp::from_nanos(u64::MAX / 2);

/// Default settings, with the guard of `mutant` disabled.
pub(super) fn without(mutant: Option<Mutant>) -> ReplicaSettings {
    ReplicaSettings { guards: mutant.into(), ..ReplicaSettings::default() }
}

pub(super) fn config(epoch: u64, members: &[u8]) -> Arc<ChainConfig> {
    Arc::new(fixtures::serving(epoch, members))
}

/// A configuration in which `joiner` is syncing behind the serving members.
pub(super) fn joining(epoch: u64, serving: &[u8], joiner: u8) -> Arc<ChainConfig> {
    let mut with_joiner = (*config(epoch, &[serving, &[joiner]].concat())).clone();
    with_joiner.members[serving.len()].role = Role::Syncing;
    Arc::new(with_joiner)
}

/// Replicas on virtual time. Frames wait in queues, one per ordered pair of members, until the test delivers them.
pub(super) struct Rig {
    pub(super) now: Timestamp,
    pub(super) replicas: BTreeMap<u8, Replica>,
    pub(super) gates: BTreeMap<u8, Arc<Gate>>,
    pub(super) stores: BTreeMap<u8, Arc<MemoryStore>>,
    pub(super) wire: BTreeMap<(u8, u8), VecDeque<ChainFrame>>,
    pub(super) replies: BTreeMap<u64, Reply>,
    pub(super) events: Vec<(u8, ReplicaEvent)>,
    /// Every update that was ever in some history.
    pub(super) updates: BTreeMap<Version, Update>,
    /// Requests for promotion: the tail, the epoch and the joiner.
    pub(super) promotions: Vec<(u8, Epoch, u8)>,
    pub(super) room: usize,
    /// Maximum number of frames on one link, in addition to control frames.
    pub(super) frames: usize,
    pub(super) journals: BTreeMap<u8, Vec<JournalEntry>>,
    /// Members whose journals currently accept no writes.
    pub(super) unwritten: BTreeSet<u8>,
    /// The last batch in each journal, and whether its disk syncs.
    pub(super) disks: BTreeMap<u8, (u64, bool)>,
    next_token: u64,
}

impl Rig {
    pub(super) fn new(nodes: &[u8], settings: &ReplicaSettings) -> Self {
        Self::with_stores(nodes, settings, || MemoryStore::with_seed(1))
    }

    fn with_stores(nodes: &[u8], settings: &ReplicaSettings, make: impl Fn() -> MemoryStore) -> Self {
        let mut rig = Self {
            now: Timestamp::from_nanos(1),
            replicas: BTreeMap::new(),
            gates: BTreeMap::new(),
            stores: BTreeMap::new(),
            wire: BTreeMap::new(),
            replies: BTreeMap::new(),
            events: Vec::new(),
            updates: BTreeMap::new(),
            promotions: Vec::new(),
            room: 1 << 20,
            frames: usize::MAX,
            journals: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            disks: BTreeMap::new(),
            next_token: 0,
        };
        for &n in nodes {
            let gate = Arc::new(Gate::new(ChainId(0)).with_guards(settings.guards));
            let store = Arc::new(make());
            let replica = Replica::new(member(n), ChainId(0), settings.clone(), store.clone(), gate.clone());
            rig.replicas.insert(n, replica);
            rig.gates.insert(n, gate);
            rig.stores.insert(n, store);
            rig.input(n, ReplicaInput::Lease(Timestamp::MAX));
            rig.input(n, ReplicaInput::Served(rig.now));
            for &other in nodes.iter().filter(|&&other| other != n) {
                rig.input(n, ReplicaInput::Connected(member(other)));
            }
        }
        rig
    }

    pub(super) fn chain(nodes: &[u8]) -> Self {
        Self::open(nodes, &ReplicaSettings::default())
    }

    pub(super) fn chain_of_durable(nodes: &[u8]) -> Self {
        Self::open(nodes, &ReplicaSettings { durable: true, ..ReplicaSettings::default() })
    }

    /// A chain that is open everywhere.
    pub(super) fn open(nodes: &[u8], settings: &ReplicaSettings) -> Self {
        Self::new(nodes, settings).opened()
    }

    /// An open chain with default settings, on stores that `make` returns.
    pub(super) fn chain_with(nodes: &[u8], make: impl Fn() -> MemoryStore) -> Self {
        Self::with_stores(nodes, &ReplicaSettings::default(), make).opened()
    }

    fn opened(mut self) -> Self {
        self.enter_all(&config(1, &self.nodes()));
        self.settle();
        self
    }

    pub(super) fn enter_all(&mut self, config: &Arc<ChainConfig>) {
        for n in self.nodes() {
            self.input(n, ReplicaInput::Enter(config.clone()));
        }
    }

    pub(super) fn nodes(&self) -> Vec<u8> {
        self.replicas.keys().copied().collect()
    }

    pub(super) fn input(&mut self, n: u8, input: ReplicaInput) {
        let now = self.now;
        let replica = self.replicas.get_mut(&n).unwrap();
        replica.handle(now, input);
        for update in replica.history().rev() {
            // Keep the first update of a version: no other update may have that version.
            let Entry::Vacant(place) = self.updates.entry(update.version) else { break };
            place.insert(update.clone());
        }
        while let Some(output) = replica.poll_output() {
            match output {
                ReplicaOutput::Reply(token, reply) => {
                    assert_eq!(self.replies.insert(token.0, reply), None, "one reply per request");
                }
                ReplicaOutput::Event(event) => self.events.push((n, event)),
                ReplicaOutput::Promote { epoch, member } => {
                    self.promotions.push((n, epoch, number(member)));
                }
            }
        }
    }

    /// Sets whether the disk of a member syncs.
    pub(super) fn disk(&mut self, n: u8, syncs: bool) {
        self.disks.entry(n).or_default().1 = syncs;
    }

    fn write_journals(&mut self) {
        for n in self.nodes() {
            while !self.unwritten.contains(&n)
                && let Some(batch) = self.replicas.get_mut(&n).unwrap().poll_journal(self.room)
            {
                if batch.awaits {
                    self.replicas.get_mut(&n).unwrap().begin_checkpoint();
                }
                self.journals.entry(n).or_default().extend(batch.entries);
                self.disks.entry(n).or_insert((0, true)).0 = batch.upto;
            }
            if let Some(&(upto, true)) = self.disks.get(&n) {
                self.input(n, ReplicaInput::Durable(upto));
            }
        }
    }

    /// Puts all frames on the wire that the replicas have to send.
    pub(super) fn transmit(&mut self) {
        self.write_journals();
        for n in self.nodes() {
            let replica = self.replicas.get_mut(&n).unwrap();
            for to in replica.peers().collect::<Vec<_>>() {
                let queue = self.wire.entry((n, number(to))).or_default();
                queue.extend(replica.poll_control(self.now, to));
                // Control frames don't count.
                let controls = queue.iter().filter(|frame| matches!(frame.message, ChainMessage::Control(_))).count();
                let most = self.frames.saturating_add(controls);
                while queue.len() < most
                    && let Some(frame) = replica.poll_updates(self.now, to, self.room)
                {
                    queue.push_back(frame);
                }
                while queue.len() < most
                    && let Some(frame) = replica.poll_snapshot(self.now, to, self.room)
                {
                    queue.push_back(frame);
                }
            }
            replica.settle(self.now);
        }
    }

    pub(super) fn deliver(&mut self, from: u8, to: u8) -> bool {
        let frame = self.wire.entry((from, to)).or_default().pop_front();
        let has_come = frame.is_some();
        self.receive(from, to, frame);
        has_come
    }

    /// Delivers all frames from one member to another, and no others.
    pub(super) fn run(&mut self, from: u8, to: u8) {
        self.transmit();
        while self.deliver(from, to) {}
    }

    /// Calls [`run`](Self::run) from each of these members to the next, in turn.
    pub(super) fn run_along(&mut self, path: &[u8]) {
        path.windows(2).for_each(|hop| self.run(hop[0], hop[1]));
    }

    /// Delivers these frames, bypassing those queued on the link.
    pub(super) fn receive(&mut self, from: u8, to: u8, frames: impl IntoIterator<Item = ChainFrame>) {
        for frame in frames {
            self.input(to, ReplicaInput::Receive { from: member(from), frame });
        }
    }

    /// Drops all frames on links, and all frames that members have to send now.
    pub(super) fn lose_frames(&mut self) {
        self.transmit();
        self.wire.clear();
    }

    /// Delivers the frames on all links except this one.
    pub(super) fn run_others(&mut self, from: u8, to: u8) {
        let links: Vec<_> = self.wire.keys().copied().filter(|&link| link != (from, to)).collect();
        for (from, to) in links {
            while self.deliver(from, to) {}
        }
    }

    /// Delivers all frames until no member has more to send.
    pub(super) fn settle(&mut self) {
        self.settle_without(&[]);
    }

    /// Like [`settle`](Self::settle), but frames on these links are not delivered.
    pub(super) fn settle_without(&mut self, cut: &[(u8, u8)]) {
        for _ in 0..10_000 {
            self.transmit();
            let busy: Vec<_> = self
                .wire
                .iter()
                .filter(|(link, q)| !q.is_empty() && !cut.contains(link))
                .map(|(&link, _)| link)
                .collect();
            // A joiner sends nothing while it clears its store.
            if busy.is_empty() && !self.replicas.values().any(Replica::is_behind) {
                return;
            }
            for (from, to) in busy {
                self.deliver(from, to);
            }
        }
        panic!("the chain never settles");
    }

    /// Lets heartbeats pass, and delivers all frames after each of them.
    pub(super) fn beat(&mut self, times: usize) {
        for _ in 0..times {
            self.settle();
            self.heartbeat();
        }
        self.settle();
    }

    /// Checks that after this many heartbeats two members hold identical data.
    pub(super) fn become_same(&mut self, times: usize, a: u8, b: u8) {
        self.beat(times);
        self.assert_same(a, b);
    }

    pub(super) fn enter(&mut self, nodes: &[u8], config: &Arc<ChainConfig>) {
        nodes.iter().for_each(|&n| self.input(n, ReplicaInput::Enter(config.clone())));
    }

    /// Breaks the connection between two members and loses its frames.
    pub(super) fn cut_link(&mut self, a: u8, b: u8) {
        self.wire.remove(&(a, b));
        self.wire.remove(&(b, a));
        self.input(a, ReplicaInput::Disconnected(member(b)));
        self.input(b, ReplicaInput::Disconnected(member(a)));
    }

    pub(super) fn join_link(&mut self, a: u8, b: u8) {
        self.input(a, ReplicaInput::Connected(member(b)));
        self.input(b, ReplicaInput::Connected(member(a)));
    }

    /// The newest record of each key of a store, committed or not.
    pub(super) fn contents(&self, n: u8) -> Vec<crate::store::ScanRecord> {
        self.stores[&n].scan(ChainId(0), b"", Sequence::MAX).map(Result::unwrap).collect()
    }

    pub(super) fn sessions(&self, n: u8) -> String {
        format!("{:?}", self.replicas[&n].log.sessions())
    }

    pub(super) fn status(&self, n: u8) -> Status {
        self.replicas[&n].status()
    }

    /// Asserts that two members hold the same data, except for taken values that a joiner did not receive.
    pub(super) fn assert_alike(&self, a: u8, b: u8) {
        assert_eq!(self.contents(a), self.contents(b));
        assert_eq!(self.stores[&a].bytes(), self.stores[&b].bytes());
        assert_eq!(self.requests(a), self.requests(b));
        assert_eq!((self.last(a), self.watermark(a)), (self.last(b), self.watermark(b)));
    }

    /// The session table without taken values.
    pub(super) fn requests(&self, n: u8) -> Vec<SessionEntry> {
        let forgets = |entry| match entry {
            SessionEntry::Record { number, version, outcome, .. } => {
                SessionEntry::Record { number, version, outcome, taken: None }
            }
            session => session,
        };
        self.replicas[&n].log.sessions().copy().into_iter().map(forgets).collect()
    }

    pub(super) fn assert_same(&self, a: u8, b: u8) {
        assert_eq!(self.contents(a), self.contents(b));
        assert_eq!(self.stores[&a].bytes(), self.stores[&b].bytes());
        assert_eq!(self.sessions(a), self.sessions(b));
        assert_eq!((self.last(a), self.watermark(a)), (self.last(b), self.watermark(b)));
    }

    pub(super) fn heartbeat(&mut self) {
        self.now = self.now + Duration::from_millis(100);
        for n in self.nodes() {
            self.input(n, ReplicaInput::Tick);
        }
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    pub(super) fn write(&mut self, n: u8, write: Write) -> u64 {
        self.request(n, None, write)
    }

    pub(super) fn request(&mut self, n: u8, request: Option<RequestKey>, write: Write) -> u64 {
        let token = self.token();
        self.input(n, ReplicaInput::Write { token, request, write, deadline: FAR });
        token.0
    }

    pub(super) fn session(&mut self, n: u8) -> Version {
        let token = self.write(n, Write::OpenSession);
        self.settle();
        self.committed(token)
    }

    pub(super) fn put(&mut self, n: u8, key: &'static str, value: &'static str) -> u64 {
        self.write(n, Write::put(key.into(), value.into()))
    }

    /// Puts a value at the head `n`. Returns its committed version.
    pub(super) fn commit(&mut self, n: u8, key: &'static str, value: &'static str) -> Version {
        let token = self.put(n, key, value);
        self.settle();
        self.committed(token)
    }

    pub(super) fn read(&mut self, n: u8, key: &'static str, mode: ReadMode) -> u64 {
        self.ask(n, Query::Key(key.into()), mode, None)
    }

    pub(super) fn ask(&mut self, n: u8, query: Query, mode: ReadMode, floor: Option<Sequence>) -> u64 {
        let token = self.token();
        self.input(n, ReplicaInput::Read { token, query, mode, floor, deadline: FAR });
        token.0
    }

    /// Like [`ask`](Self::ask), without a floor, and with a deadline.
    pub(super) fn ask_until(&mut self, n: u8, query: Query, mode: ReadMode, deadline: Timestamp) -> u64 {
        let token = self.token();
        self.input(n, ReplicaInput::Read { token, query, mode, floor: None, deadline });
        token.0
    }

    pub(super) fn local(&self, n: u8, key: &str) -> Result<Option<Held>, NotLocal> {
        self.gates[&n].read(&*self.stores[&n], key.as_bytes(), || self.now)
    }

    pub(super) fn found(&self, token: u64) -> (Option<Bytes>, bool, ReadPath) {
        match &self.replies[&token] {
            Reply::Read(read) => (read.held.as_ref().and_then(|held| held.value.clone()), read.clean, read.way),
            other => panic!("{other:?} is no read"),
        }
    }

    pub(super) fn committed(&self, token: u64) -> Version {
        match &self.replies[&token] {
            Reply::Committed(committed) => committed.version,
            other => panic!("{other:?} is no commit"),
        }
    }

    /// The version of a committed request, whether the reply repeats an earlier one, and the result.
    pub(super) fn computed(&self, token: u64) -> (Version, bool, Computed) {
        match &self.replies[&token] {
            Reply::Committed(done) => (done.version, done.replayed, done.result.clone()),
            other => panic!("{other:?} is no commit"),
        }
    }

    pub(super) fn is_open(&self, n: u8) -> bool {
        self.replicas[&n].status().open
    }

    pub(super) fn last(&self, n: u8) -> Version {
        self.replicas[&n].status().last
    }

    pub(super) fn watermark(&self, n: u8) -> u64 {
        self.replicas[&n].status().watermark.0
    }

    pub(super) fn on_link<'a, T>(&'a self, from: u8, to: u8, choose: impl Fn(&'a ChainMessage) -> Option<T>) -> Vec<T> {
        let frames = self.wire.get(&(from, to)).into_iter().flatten();
        frames.filter_map(|frame| choose(&frame.message)).collect()
    }

    pub(super) fn controls(&self, from: u8, to: u8) -> Vec<&Control> {
        self.on_link(from, to, |message| match message {
            ChainMessage::Control(control) => Some(control),
            _ => None,
        })
    }

    pub(super) fn updates(&self, from: u8, to: u8) -> Vec<&Updates> {
        self.on_link(from, to, |message| match message {
            ChainMessage::Updates(updates) => Some(updates),
            _ => None,
        })
    }
}
