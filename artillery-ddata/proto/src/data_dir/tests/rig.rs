//! The rig of the tests: a node that is started repeatedly.

use std::{cell::Cell, collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::*;
use crate::{
    ChainMember, ClusterId, MemberId, Role, Sequence, Timestamp,
    api::{Reply, Write},
    control::log::LogIndex,
    disk::{
        Disk,
        simulated::{CutSettings, SimulatedDisk},
    },
    fixtures,
    guards::Guards,
    journal::{JournalError, SyncMode},
    replica::{Gate, JournalBatch, ReplicaSettings},
    runner::{ChainOrder, ChainRunner, Lease, ReadRequest, RunnerOutput, Turn, WriteRequest},
    store::{MemoryStore, Store},
};

pub(super) const CHAINS: u32 = 3;
pub(super) const NODE: u8 = 1;
const HARSH: CutSettings = CutSettings { tears_sectors: true, leaves_garbage: true };

pub(super) type Received = Turn<ReadRequest<u64>, WriteRequest<u64>>;

pub(super) fn settings(mode: SyncMode, guards: Guards) -> OpenSettings {
    let node = fixtures::id(NODE).node;
    OpenSettings {
        node,
        mode,
        segment_bytes: 16 << 10,
        room: 6 << 10,
        reserve: 512 << 10,
        most: u64::MAX,
        backlog: 1 << 20,
        guards,
    }
}

pub(super) struct Start {
    pub(super) me: MemberId,
    pub(super) store: Arc<dyn Store>,
    pub(super) control: ControlFile,
    pub(super) journal: JournalWriter,
    pub(super) chains: Vec<ChainRunner<u64>>,
}

impl Start {
    fn batches(&mut self, bytes: usize) -> Vec<(ChainId, JournalBatch)> {
        let runners = self.chains.iter_mut();
        runners.filter_map(|runner| Some((runner.replica().chain(), runner.poll_journal(bytes)?))).collect()
    }

    /// Writes one group. A batch accepts no further record once it has about `bytes` bytes. The disk must not refuse
    /// the group: only clients' data fills the disk.
    pub(super) fn persist(&mut self, bytes: usize, replies: &mut BTreeMap<u64, Reply>) {
        let batches = self.batches(bytes);
        let journal = &mut self.journal;
        if batches.is_empty() {
            journal.close().unwrap();
        } else {
            journal.write(&batches).unwrap();
        }
        let (durable, wanted) = (journal.sync().unwrap(), journal.tidy().unwrap());
        for runner in &mut self.chains {
            let chain = runner.replica().chain();
            let upto = durable.iter().find(|durable| durable.chain == chain).map(|durable| durable.upto);
            let (checkpoint, disk_full) = (wanted.contains(&chain), self.journal.is_full());
            take(runner, &mut Received { durable: upto, checkpoint, disk_full, ..Received::default() });
            while let Some(output) = runner.poll_output() {
                if let RunnerOutput::Reply(caller, reply) = output {
                    replies.insert(caller, reply);
                }
            }
        }
    }

    /// Passes a write to a chain. The caller's token is 0.
    pub(super) fn write(&mut self, chain: usize, write: Write) {
        let (caller, deadline) = (0, Timestamp::from_nanos(u64::MAX / 2));
        let writes = vec![WriteRequest { request: None, history: None, write, deadline, caller }];
        let disk_full = self.journal.is_full();
        take(&mut self.chains[chain], &mut Received { writes, disk_full, ..Received::default() });
    }
}

pub(super) struct Run {
    rng: ChaCha8Rng,
    pub(super) disk: SimulatedDisk,
    pub(super) mode: SyncMode,
    pub(super) settings: OpenSettings,
    /// The size of a part of a checkpoint, in bytes.
    pub(super) chunk: usize,
    /// The number of each key's last write that was acknowledged, and of the last one that was ordered.
    keys: BTreeMap<(u32, u8), [u64; 2]>,
    writes: u64,
    epoch: u64,
    /// The number of the last start that began.
    promised: u64,
    /// The last content of the log that was promised.
    voted: u8,
}

impl Run {
    pub(super) fn new(seed: u64, guards: Guards) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let disk = SimulatedDisk::new(rng.random(), 1 << 30, HARSH);
        let (keys, mode) = (BTreeMap::new(), SyncMode::Batch);
        let settings = settings(mode, guards);
        Self { rng, disk, mode, settings, chunk: 300, keys, writes: 0, epoch: 0, promised: 0, voted: 0 }
    }

    pub(super) fn open(&mut self) -> Result<Start, OpenError> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let settings = OpenSettings { mode: self.mode, ..self.settings.clone() };
        let found = FoundStore::check(disk, settings, self.rng.random())?;
        let store = memory();
        let LoadedStore { incarnation, control, journal, mut chains, .. } = found.open(&store, self.rng.random())?;
        let me = MemberId { node: fixtures::id(NODE).node, incarnation };
        let chunk = self.chunk;
        let runner = |chain| {
            let gate = Arc::new(Gate::new(chain));
            let settings = ReplicaSettings { durable: true, chunk, ..ReplicaSettings::default() };
            let runner = ChainRunner::new(me, chain, settings, store.clone(), gate);
            match chains.remove(&chain) {
                Some(restored) => runner.restored(restored),
                None => runner,
            }
        };
        let runners = (0..CHAINS).map(ChainId).map(runner).collect();
        Ok(Start { me, store, control, journal, chains: runners })
    }

    /// Checks that the store holds each acknowledged write, and nothing that was never written.
    pub(super) fn check(&mut self, start: &Start) -> Result<(), String> {
        let record = start.control.record();
        if record.incarnation.starts <= self.promised || record.log.first().is_some_and(|vote| *vote < self.voted) {
            return Err(format!("the control file is of start {}, {} began", record.incarnation.starts, self.promised));
        }
        self.promised = record.incarnation.starts;
        for (&(chain, key), [acknowledged, ordered]) in &mut self.keys {
            let held = start.store.read(ChainId(chain), &[key], Sequence::MAX).map_err(|error| error.to_string())?;
            let number = held.and_then(|held| held.value).map_or(0, |value| number(&value));
            if number < *acknowledged || number > *ordered {
                return Err(format!("chain {chain} has write {number} of key {key}: {acknowledged} was acknowledged"));
            }
            // The chain commits all its updates when it opens.
            *acknowledged = number;
        }
        Ok(())
    }

    /// Opens the chains again. They commit all their updates.
    pub(super) fn enter(&mut self, start: &mut Start) {
        self.epoch += 1;
        for (number, runner) in (0..).zip(&mut start.chains) {
            let member = ChainMember { id: start.me, role: Role::Serving };
            let config = crate::ChainConfig { chain: ChainId(number), ..fixtures::chain(self.epoch, [member]) };
            let order =
                ChainOrder::Enter { config: Arc::new(config), history: ClusterId(1), upto: LogIndex(self.epoch) };
            let lease = Lease { until: Timestamp::MAX, asked: Timestamp::ZERO, stretch: 0 };
            let mut turn = Received { orders: vec![order], lease: Some(lease), ..Received::default() };
            take(runner, &mut turn);
        }
    }

    pub(super) fn write(&mut self, start: &mut Start) {
        let mut turns: Vec<Received> = start.chains.iter().map(|_| Received::default()).collect();
        for _ in 0..self.rng.random_range(0..4) {
            let (chain, key) = (self.rng.random_range(0..CHAINS), self.rng.random_range(0..6));
            self.writes += 1;
            let len = if self.rng.random_range(0..8) == 0 { 900 } else { self.rng.random_range(8..60) };
            let value = [self.writes.to_le_bytes().as_slice(), &vec![key; len - 8]].concat();
            let write = Write::put(Bytes::from(vec![key]), value.into());
            let caller = self.writes << 10 | u64::from(chain) << 8 | u64::from(key);
            let deadline = Timestamp::from_nanos(u64::MAX / 2);
            turns[chain as usize].writes.push(WriteRequest { request: None, history: None, write, deadline, caller });
            self.keys.entry((chain, key)).or_default()[1] = self.writes;
        }
        start.chains.iter_mut().zip(&mut turns).for_each(|(runner, turn)| take(runner, turn));
        self.hear(start);
    }

    fn hear(&mut self, start: &mut Start) {
        for runner in &mut start.chains {
            while let Some(output) = runner.poll_output() {
                if let RunnerOutput::Reply(caller, Reply::Committed(_)) = output {
                    let key = ((caller >> 8 & 3) as u32, caller as u8);
                    let [acknowledged, _] = self.keys.entry(key).or_default();
                    *acknowledged = (*acknowledged).max(caller >> 10);
                }
            }
        }
    }

    /// Writes one group, like the journal's thread. An error ends the process.
    pub(super) fn persist(&mut self, start: &mut Start) -> Result<(), JournalError> {
        let batches = start.batches(700);
        if self.rng.random_range(0..10) == 0 {
            let room = (1 << 30) - self.disk.free().unwrap_or(0);
            self.disk.set_room(room + self.rng.random_range(0..9000));
        }
        let full = |result: Result<(), JournalError>| if result == Err(JournalError::Full) { Ok(()) } else { result };
        let written = start.journal.write(&batches);
        self.disk.set_room(1 << 30);
        if written == Err(JournalError::Full) {
            start.journal.write(&batches)?;
        } else {
            written?;
        }
        if self.rng.random_range(0..3) == 0 {
            return Ok(());
        }
        let durable = start.journal.sync()?;
        for DurableBatch { chain, upto } in durable {
            take(&mut start.chains[chain.0 as usize], &mut Received { durable: Some(upto), ..Received::default() });
        }
        self.hear(start);
        match start.journal.tidy() {
            Ok(wanted) => wanted.into_iter().for_each(|chain| {
                take(&mut start.chains[chain.0 as usize], &mut Received { checkpoint: true, ..Received::default() });
            }),
            Err(JournalError::Full) => {}
            Err(error) => return Err(error),
        }
        if self.rng.random_range(0..5) == 0 {
            full(start.journal.close())?;
            full(start.journal.note_synced())?;
        }
        Ok(())
    }

    /// Writes a vote, which is promised to others once it is written.
    pub(super) fn vote(&mut self, start: &Start) -> Result<(), ControlFileError> {
        let vote = self.voted + 1;
        start.control.change(|record| record.log = vec![vote])?;
        self.voted = vote;
        Ok(())
    }

    /// Runs one start of the node, until a random end.
    fn start(&mut self) -> Result<(), String> {
        let cut = self.rng.random_range(0..150);
        if self.rng.random_range(0..4) > 0 {
            self.disk.cut_power_after(cut);
        }
        self.disk.fail_sync_after((self.rng.random_range(0..4) == 0).then_some(self.rng.random_range(0..40)));
        match self.open() {
            Ok(mut start) => {
                self.check(&start)?;
                self.enter(&mut start);
                for _ in 0..self.rng.random_range(0..200) {
                    self.write(&mut start);
                    let votes = self.voted < u8::MAX - 1 && self.rng.random_range(0..20) == 0;
                    if self.persist(&mut start).is_err() || votes && self.vote(&start).is_err() {
                        break;
                    }
                }
            }
            Err(error) if error.is_damage() => return Err(error.to_string()),
            // The disk failed, or the power was lost.
            Err(_) => {}
        }
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        self.disk.fail_sync_after(None);
        if self.rng.random_range(0..4) == 0 {
            self.disk.forget_pages();
        }
        if self.rng.random_range(0..3) > 0 {
            self.disk.cut_power();
        } else {
            self.disk.restart();
        }
    }
}

pub(super) fn take(runner: &mut ChainRunner<u64>, turn: &mut Received) {
    let now = Cell::new(1);
    let clock = || Timestamp::from_nanos(now.replace(now.get() + 1));
    runner.take(clock, turn, |_| None);
    while runner.is_behind() {
        runner.settle(clock);
    }
}

fn number(value: &Bytes) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| value[n]))
}

pub(super) fn run(seed: u64, guards: Guards) -> Result<u64, String> {
    let mut run = Run::new(seed, guards);
    (0..8).try_for_each(|_| run.start())?;
    Ok(run.disk.counts().lossy_cuts)
}

/// A node that has written some values, and ended.
pub(super) fn ended(mode: SyncMode, guards: Guards) -> Run {
    let mut run = Run::new(1, guards);
    run.mode = mode;
    let mut start = run.open().unwrap();
    run.enter(&mut start);
    for _ in 0..120 {
        run.write(&mut start);
        run.persist(&mut start).unwrap();
    }
    run.vote(&start).unwrap();
    start.journal.sync().unwrap();
    drop(start);
    run.disk.restart();
    run
}

pub(super) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_seed(1))
}
