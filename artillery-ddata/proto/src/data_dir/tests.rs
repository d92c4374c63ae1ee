//! A node of a few chains, alone in each, over a disk that loses unsynced bytes in a power cut.

mod check;
mod flips;
mod full;
mod release;
mod sizes;
mod small;

use std::{cell::Cell, collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::{
    ChainMember, ClusterId, MemberId, Role, Sequence, Timestamp,
    api::{Reply, Write},
    control::log::LogIndex,
    disk::{
        Disk,
        simulated::{CutSettings, SimulatedDisk},
    },
    fixtures,
    guards::{Guards, Mutant},
    journal::{JournalError, ReadBytes, SyncMode},
    replica::{Gate, ReplicaSettings},
    runner::{ChainOrder, ChainRunner, Lease, ReadRequest, RunnerOutput, Turn, WriteRequest},
    store::{MemoryStore, Store},
};

const CHAINS: u32 = 3;
const NODE: u8 = 1;
const HARSH: CutSettings = CutSettings { tears_sectors: true, leaves_garbage: true };

type Received = Turn<ReadRequest<u64>, WriteRequest<u64>>;

fn settings(mode: SyncMode, guards: Guards) -> OpenSettings {
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

/// The node in one start.
struct Start {
    me: MemberId,
    store: Arc<dyn Store>,
    control: ControlFile,
    journal: JournalWriter,
    chains: Vec<ChainRunner<u64>>,
}

/// All starts of a node, and their answers.
struct Run {
    rng: ChaCha8Rng,
    disk: SimulatedDisk,
    /// How the node is started.
    mode: SyncMode,
    settings: OpenSettings,
    /// The bytes of a part of a checkpoint.
    chunk: usize,
    /// The number of each key's last write that was acknowledged, and of the last one that was ordered.
    keys: BTreeMap<(u32, u8), [u64; 2]>,
    writes: u64,
    epoch: u64,
    /// The last starts whose number was promised in the control file.
    promised: u64,
    /// The last content of the log that was promised.
    voted: u8,
}

impl Run {
    fn new(seed: u64, guards: Guards) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let disk = SimulatedDisk::new(rng.random(), 1 << 30, HARSH);
        let (keys, mode) = (BTreeMap::new(), SyncMode::Batch);
        let settings = settings(mode, guards);
        Self { rng, disk, mode, settings, chunk: 300, keys, writes: 0, epoch: 0, promised: 0, voted: 0 }
    }

    fn open(&mut self) -> Result<Start, OpenError> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let settings = OpenSettings { mode: self.mode, ..self.settings.clone() };
        let found = FoundStore::check(disk, settings, self.rng.random())?;
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(1));
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
    fn check(&mut self, start: &Start) -> Result<(), String> {
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

    /// The chains are opened again, and commit all their updates.
    fn enter(&mut self, start: &mut Start) {
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

    /// Some writes, in some chains.
    fn write(&mut self, start: &mut Start) {
        let mut turns: Vec<Received> = start.chains.iter().map(|_| Received::default()).collect();
        for _ in 0..self.rng.random_range(0..4) {
            let (chain, key) = (self.rng.random_range(0..CHAINS), self.rng.random_range(0..6));
            self.writes += 1;
            let len = if self.rng.random_range(0..8) == 0 { 900 } else { self.rng.random_range(8..60) };
            let value = [self.writes.to_le_bytes().as_slice(), &vec![key; len - 8]].concat();
            let write = Write::Put { key: Bytes::from(vec![key]), value: value.into() };
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

    /// The journal's thread: one group. An error ends the process.
    fn persist(&mut self, start: &mut Start) -> Result<(), JournalError> {
        let mut batches = Vec::new();
        for runner in &mut start.chains {
            let chain = runner.replica().chain();
            batches.extend(runner.poll_journal(700).map(|batch| (chain, batch)));
        }
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

    /// A vote, which is promised to others once it is written.
    fn vote(&mut self, start: &Start) -> Result<(), ControlFileError> {
        let vote = self.voted + 1;
        start.control.change(|record| record.log = vec![vote])?;
        self.voted = vote;
        Ok(())
    }

    /// One start of the node, which ends in one way or another.
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

fn take(runner: &mut ChainRunner<u64>, turn: &mut Received) {
    let now = Cell::new(1);
    let clock = || Timestamp::from_nanos(now.replace(now.get() + 1));
    runner.take(clock, || 1, turn, |_| None);
    while runner.is_behind() {
        runner.settle(clock);
    }
}

fn number(value: &Bytes) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| value[n]))
}

fn run(seed: u64, guards: Guards) -> Result<u64, String> {
    let mut run = Run::new(seed, guards);
    (0..8).try_for_each(|_| run.start())?;
    Ok(run.disk.counts().lossy_cuts)
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_invented() {
    let lossy: u64 =
        (0..300).map(|seed| run(seed, Guards::ALL).unwrap_or_else(|why| panic!("seed {seed}: {why}"))).sum();
    assert!(lossy > 300, "only {lossy} power cuts lost anything");
}

fn caught(mutant: Mutant) -> bool {
    (0..1000).any(|seed| run(seed, Guards::without(mutant)).is_err())
}

#[test]
fn a_control_file_kept_once_is_torn() {
    assert!(caught(Mutant::KeepOneCopy));
}

#[test]
fn segments_removed_too_soon_are_missed() {
    assert!(caught(Mutant::ReleaseAll));
}

/// A node that has written some values, and ended.
fn ended(mode: SyncMode, guards: Guards) -> Run {
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

#[test]
fn damage_of_one_copy_of_the_control_file_loses_nothing() {
    let mut run = ended(SyncMode::Batch, Guards::ALL);
    let found = ControlFile::find(&run.disk).unwrap().unwrap();
    for name in ["control-1", "control-2"] {
        let len = run.disk.open(name).unwrap().length().unwrap();
        for bit in (0..len as usize).map(|byte| byte * 8 + byte % 8) {
            run.disk.flip(name, bit);
            let again = ControlFile::find(&run.disk).unwrap().unwrap();
            assert_eq!(again.record, found.record, "bit {bit} of {name}");
            run.disk.flip(name, bit);
        }
    }
    run.disk.flip("control-1", 100);
    run.disk.flip("control-2", 200);
    assert_eq!(run.open().err(), Some(OpenError::Control(ControlFileError::Damaged)));
}

/// The start over a journal whose newest file is lost.
fn without_its_newest_file(guards: Guards) -> Result<(), OpenError> {
    let mut run = ended(SyncMode::Batch, guards);
    let newest = run.disk.names().unwrap().into_iter().rfind(|name| name.starts_with("journal-"));
    run.disk.remove(&newest.unwrap()).unwrap();
    run.open().map(drop)
}

#[test]
fn a_journal_without_its_newest_file_is_damaged() {
    let error = without_its_newest_file(Guards::ALL).unwrap_err();
    assert!(error.is_damage(), "{error}");
}

#[test]
fn a_newest_segment_that_is_named_nowhere_is_not_missed() {
    assert_eq!(without_its_newest_file(Guards::without(Mutant::NameNoSegment)), Ok(()));
}

/// Whether a store is considered synced that was once started without that.
fn is_synced_after_never(guards: Guards) -> bool {
    let mut run = ended(SyncMode::Never, guards);
    run.mode = SyncMode::Batch;
    run.open().unwrap();
    run.disk.restart();
    let disk: Arc<dyn Disk> = Arc::new(run.disk.clone());
    let found = FoundStore::check(disk, settings(SyncMode::Batch, guards), 1).unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(1));
    found.open(&store, 2).unwrap().holding(ChainId(0)).synced
}

#[test]
fn a_store_that_was_not_synced_once_stays_weak() {
    assert!(!is_synced_after_never(Guards::ALL));
}

#[test]
fn a_store_that_forgets_that_it_was_weak_counts_as_synced() {
    assert!(is_synced_after_never(Guards::without(Mutant::ForgetWeak)));
}

/// Tasks that hold leases look at it, and a disk may take seconds.
#[test]
fn a_change_under_way_keeps_no_reader_waiting() {
    let control = Run::new(1, Guards::ALL).open().unwrap().control;
    let mut seen = None;
    control
        .change(|record| {
            record.log = vec![7];
            seen = Some((control.look(|record| record.log.clone()), control.position(0)));
        })
        .unwrap();
    let (log, position) = seen.unwrap();
    assert!(log.is_empty() && position.control < control.position(0).control);
    assert_eq!(control.look(|record| record.log.clone()), [7]);
}

/// A node was recovered while it still wrote down configurations of the history before.
#[test]
fn configurations_of_a_history_that_is_over_are_not_kept() {
    let run = ended(SyncMode::Batch, Guards::ALL);
    let mut record = ControlFile::find(&run.disk).unwrap().unwrap().record;
    let (me, cluster) = (fixtures::id(NODE), ClusterId(1));
    let old = crate::control::Configs::of(&Bootstrap::new(cluster, "shop", vec![fixtures::founder(NODE)]));
    record.keep(me, &old, SyncMode::Batch);
    record.refused = true;
    let recovered = old.recovered(old.history().next(7), fixtures::founder(NODE), crate::Epoch(3), LogIndex(9));
    record.go_on(recovered.clone());
    record.keep(me, &old, SyncMode::Batch);
    assert_eq!((record.history, record.configs), (Some(recovered.history()), Some(recovered)));
    assert!(!record.refused, "this store decides what its history is");
}

/// An operator may have abandoned the data of a store while its node was away.
#[test]
fn a_restored_store_serves_no_history_before_its_node_acts_by_one() {
    let mut run = ended(SyncMode::Batch, Guards::ALL);
    let mut start = run.open().unwrap();
    let read = |start: &mut Start| {
        let runner = &mut start.chains[0];
        let (query, deadline) = (crate::api::Query::Key(vec![0].into()), Timestamp::from_nanos(u64::MAX / 2));
        let mode = crate::api::ReadMode::Eventual;
        let read = ReadRequest { query, mode, floor: None, history: Some(ClusterId(1)), deadline, caller: 0 };
        take(runner, &mut Received { reads: vec![read], ..Received::default() });
        std::iter::from_fn(|| runner.poll_output()).find_map(|output| match output {
            RunnerOutput::Reply(_, reply) => Some(reply),
            RunnerOutput::Event(_) => None,
        })
    };
    assert_eq!(read(&mut start), Some(Reply::Refused(crate::api::Refusal::NoChain)));
    run.enter(&mut start);
    assert!(matches!(read(&mut start), Some(Reply::Read(_))));
}

#[test]
fn a_directory_belongs_to_one_node() {
    let run = ended(SyncMode::Batch, Guards::ALL);
    let disk: Arc<dyn Disk> = Arc::new(run.disk.clone());
    let other = OpenSettings { node: fixtures::id(2).node, ..settings(SyncMode::Batch, Guards::ALL) };
    let error = FoundStore::check(disk, other, 1).unwrap_err();
    assert_eq!(error, OpenError::OtherNode { found: fixtures::id(NODE).node });
}

#[test]
fn the_start_of_a_store_tells_how_far_it_has_come() {
    let run = ended(SyncMode::Batch, Guards::ALL);
    let disk: Arc<dyn Disk> = Arc::new(run.disk.clone());
    let mut told: Vec<LoadProgress> = Vec::new();
    let found =
        FoundStore::check_with(disk, settings(SyncMode::Batch, Guards::ALL), 1, &mut |so_far| told.push(so_far))
            .unwrap();
    let checked = told.len();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(1));
    found.begin(2).unwrap().load(&store, &mut |so_far| told.push(so_far)).unwrap();
    for (step, told) in [(LoadStep::Check, &told[..checked]), (LoadStep::TakeIn, &told[checked..])] {
        let rise = told.is_sorted_by_key(|so_far| (so_far.records, so_far.read.done));
        let ReadBytes { done, total, .. } = told.last().unwrap().read;
        assert!(rise && told.iter().all(|so_far| (so_far.step, so_far.read.total) == (step, total)), "{told:?}");
        assert!(done > 0 && done <= total && told.last().unwrap().records > 0, "{step:?}: {done} of {total}");
    }
    let store_keys = (0..CHAINS).map(|chain| store.size(ChainId(chain)).keys).sum::<u64>();
    assert!(told.last().unwrap().records >= store_keys, "each record was read");
}
