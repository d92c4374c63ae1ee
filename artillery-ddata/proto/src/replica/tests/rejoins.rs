//! Restarts of members that join, leave and rejoin, from every prefix of their journals, and from simulated disks.

use std::collections::BTreeMap;

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    super::*,
    restore::{restored, values},
    rig::*,
};
use crate::{
    Version,
    api::Write,
    data_dir::{FoundStore, JournalWriter, LoadedStore, OpenSettings},
    disk::{
        Disk,
        simulated::{CutSettings, SimulatedDisk},
    },
    guards::Guards,
    journal::{JournalEntry, JournalError, SyncMode},
    store::MemoryStore,
    types::update::RequestKey,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Third {
    Out,
    Joins,
    Serves,
}

/// A chain of two members with a short or a long backlog, and a third one that joins and leaves.
struct Company {
    rig: Rig,
    rng: ChaCha8Rng,
    epoch: u64,
    order: [u8; 2],
    third: Third,
    session: Version,
    number: u64,
}

impl Company {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let backlog = if rng.random() { 300 } else { 1 << 20 };
        let (joiner_buffer, clear_keys) = (rng.random_range(200..2000), rng.random_range(1..4));
        let (durable, chunk) = (true, rng.random_range(40..300));
        let settings =
            ReplicaSettings { durable, chunk, backlog, joiner_buffer, clear_keys, ..ReplicaSettings::default() };
        let mut rig = Rig::new(&[1, 2, 3], &settings);
        rig.enter(&[1, 2], &config(1, &[1, 2]));
        rig.settle();
        let session = rig.session(1);
        Self { rig, rng, epoch: 1, order: [1, 2], third: Third::Out, session, number: 0 }
    }

    fn write(&mut self) {
        let key = Bytes::from(format!("k{}", self.rng.random_range(0..9)));
        let len = if self.rng.random_range(0..6) == 0 { 400 } else { self.rng.random_range(0..30) };
        let write = match self.rng.random_range(0..5) {
            0 => Write::Delete { key },
            1 => Write::GetDelete { key },
            _ => Write::put(key, vec![self.number as u8; len].into()),
        };
        self.number += 1;
        let lowest = self.number.saturating_sub(3).max(1);
        let request = RequestKey { session: self.session, number: self.number, lowest };
        self.rig.request(self.order[0], Some(request), write);
    }

    /// Starts another epoch: the head and its successor may swap, and the third member joins, is promoted, or leaves.
    fn change(&mut self) {
        let promoted = self.rig.promotions.iter().any(|&(_, epoch, member)| (epoch.0, member) == (self.epoch, 3));
        self.rig.reconnect();
        self.epoch += 1;
        if self.rng.random() && self.third != Third::Serves {
            self.order.rotate_left(1);
        }
        let (epoch, [head, next]) = (self.epoch, self.order);
        self.third = match self.third {
            Third::Joins if promoted => Third::Serves,
            Third::Out | Third::Joins if self.rng.random_range(0..4) > 0 => Third::Joins,
            Third::Serves if self.rng.random() => Third::Serves,
            _ => Third::Out,
        };
        match self.third {
            Third::Out => {
                self.rig.enter(&[1, 2], &config(epoch, &[head, next]));
                self.rig.input(3, ReplicaInput::Expelled(crate::Epoch(epoch)));
            }
            Third::Joins => self.rig.enter_all(&joining(epoch, &[head, next], 3)),
            Third::Serves => self.rig.enter_all(&config(epoch, &[head, next, 3])),
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..24) {
            0..8 => self.write(),
            8 => self.change(),
            9 => self.rig.begin_a_checkpoint(&mut self.rng),
            10 | 11 => self.rig.heartbeat(),
            _ => {
                self.rig.room = self.rng.random_range(30..2000);
                self.rig.pass(&mut self.rng);
            }
        }
    }

    fn rest(&mut self) {
        self.rig.unwritten.clear();
        self.rig.room = 1 << 20;
        [1, 2, 3].into_iter().for_each(|n| self.rig.disk(n, true));
        self.rig.beat(6);
    }

    /// Takes this many steps. Afterwards the first two members hold the same data.
    fn run(seed: u64, steps: usize) -> Rig {
        let mut company = Self::new(seed);
        (0..steps).for_each(|_| company.step());
        company.rest();
        let rig = company.rig;
        assert_eq!((rig.status(1).halted, rig.status(2).halted), (None, None), "seed {seed}");
        assert_eq!(rig.watermark(1), rig.last(1).sequence.0, "seed {seed}");
        rig
    }
}

/// The records after all updates up to `upto`, according to the history of member 1.
fn folded(rig: &Rig, upto: u64) -> BTreeMap<Bytes, (Version, Bytes)> {
    let mut records = BTreeMap::new();
    let is_good = |version: Version| rig.replicas[&1].log.history().version_at(version.sequence) == Some(version);
    let updates: BTreeMap<_, _> =
        rig.updates.iter().filter(|(version, _)| is_good(**version)).map(|(v, update)| (v.sequence, update)).collect();
    for (_, update) in updates.into_iter().take_while(|(sequence, _)| sequence.0 <= upto) {
        for change in &update.changes {
            match &change.value {
                Some(value) => drop(records.insert(change.key.clone(), (update.version, value.clone()))),
                None => drop(records.remove(&change.key)),
            }
        }
    }
    records
}

#[test]
fn each_beginning_of_a_journal_with_resyncs_makes_a_state_that_was_committed() {
    let (mut whole, mut lacking, mut resyncs, mut pending, mut cuts) = (0, 0, 0, 0, 0);
    for seed in 0..120 {
        let rig = Company::run(seed, 160);
        for (n, journal) in &rig.journals {
            resyncs += journal.iter().filter(|entry| matches!(entry, JournalEntry::NotWhole { .. })).count();
            cuts += journal.iter().filter(|entry| matches!(entry, JournalEntry::Cut { .. })).count();
            for end in 0..=journal.len() {
                let found = restored(&journal[..end]).unwrap_or_else(|why| panic!("seed {seed}, n{n}, {end}: {why}"));
                let Some(found) = found else {
                    lacking += 1;
                    continue;
                };
                whole += 1;
                pending += found.unreplicated;
                let records = found.replica.log.store().scan(b"", Sequence(found.watermark));
                let records: Vec<_> = records.map(Result::unwrap).collect();
                assert_eq!(values(&records), folded(&rig, found.watermark), "seed {seed}, n{n}, {end} entries");
            }
        }
    }
    let enough = whole > 5000 && lacking > 500 && resyncs > 100 && pending > 1000 && cuts > 20;
    assert!(enough, "{whole} whole, {lacking} not whole, {resyncs} resyncs, {pending} pending updates, {cuts} cuts");
}

fn of_chain(chain: ChainId, mut entry: JournalEntry) -> JournalEntry {
    match &mut entry {
        JournalEntry::Sent(frame) => frame.chain = chain,
        JournalEntry::NotWhole { chain: of }
        | JournalEntry::Cut { chain: of, .. }
        | JournalEntry::Watermark { chain: of, .. }
        | JournalEntry::Taken { chain: of, .. } => *of = chain,
    }
    entry
}

/// A node whose chains write the journal entries of other runs, to a disk that loses unsynced data in a power cut.
struct Scribe {
    rng: ChaCha8Rng,
    disk: SimulatedDisk,
    /// The entries that each chain writes, in order.
    traces: Vec<Vec<JournalEntry>>,
    /// The number of entries of each chain in each group.
    groups: Vec<Vec<usize>>,
    /// How many groups were synced, how many were passed to the kernel, and how many the next start must find.
    synced: usize,
    written: usize,
    kept: usize,
    counts: [usize; 3],
}

impl Scribe {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let cuts = CutSettings { tears_sectors: true, leaves_garbage: true };
        let trace = |n: u64| {
            let mut rig = Company::run(1000 * n + seed, 140);
            rig.journals.remove(&(1 + (seed + n) as u8 % 3)).unwrap_or_default()
        };
        let disk = SimulatedDisk::new(rng.random(), 1 << 30, cuts);
        Self {
            rng,
            disk,
            traces: (1..=3).map(trace).collect(),
            groups: vec![],
            synced: 0,
            written: 0,
            kept: 0,
            counts: [0; 3],
        }
    }

    fn at(&self, chain: usize) -> usize {
        self.groups.iter().map(|group| group[chain]).sum()
    }

    /// Opens the directory, which must restore the state after some prefix of each trace. The prefix must include all
    /// synced entries.
    fn open(&mut self, mode: SyncMode) -> Result<JournalWriter, String> {
        let settings = OpenSettings {
            node: member(1).node,
            mode,
            segment_bytes: 1 << self.rng.random_range(12..15),
            room: 1 << self.rng.random_range(9..14),
            reserve: 512 << 10,
            most: u64::MAX,
            backlog: 1 << 20,
            guards: Guards::ALL,
        };
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(1));
        let found = FoundStore::check(disk, settings, self.rng.random());
        let dir = match found.and_then(|found| found.open(&store, self.rng.random())) {
            Err(error) if !error.is_damage() => return Err(String::new()),
            opened => opened.map_err(|error| error.to_string())?,
        };
        let end = dir.journal.synced().0 as usize;
        if end < self.kept || end > self.groups.len() {
            return Err(format!("{end} groups found, {} were kept, {} written", self.kept, self.groups.len()));
        }
        self.groups.truncate(end);
        (self.synced, self.written) = (end, end);
        for (n, trace) in self.traces.iter().enumerate() {
            let (chain, entries) = (ChainId(n as u32), &trace[..self.at(n)]);
            let records = store.scan(chain, b"", Sequence::MAX).map(Result::unwrap).collect::<Vec<_>>();
            match (restored(entries).map_err(|error| error.to_string())?, dir.chains.get(&chain)) {
                (Some(good), Some(found)) => {
                    self.counts[0] += 1;
                    let same = (good.last, good.watermark, good.unreplicated)
                        == (found.last(), found.watermark().0, found.unreplicated());
                    if !same || good.records != records {
                        return Err(format!("chain {n} after {} entries: {found:?}", entries.len()));
                    }
                }
                (None, None) if records.is_empty() => self.counts[1] += 1,
                (good, found) => {
                    return Err(format!("chain {n}: {} but {}", good.is_some(), found.is_some()));
                }
            }
        }
        let LoadedStore { journal, .. } = dir;
        Ok(journal)
    }

    /// Writes the next entries of some chains as one group. An error ends the process.
    fn write(&mut self, journal: &mut JournalWriter) -> Result<(), JournalError> {
        let mut group = Vec::new();
        let mut batches = Vec::new();
        for n in 0..self.traces.len() {
            let (at, most) = (self.at(n), self.rng.random_range(0..5));
            let next = self.traces[n].iter().skip(at).take(most).cloned();
            let entries: Vec<_> = next.map(|entry| of_chain(ChainId(n as u32), entry)).collect();
            group.push(entries.len());
            if !entries.is_empty() {
                batches.push((
                    ChainId(n as u32),
                    JournalBatch { upto: at as u64, entries, bytes: 100, queued: 0, data: 0, awaits: false },
                ));
            }
        }
        if self.rng.random_range(0..10) == 0 {
            let used = (1 << 30) - self.disk.free().unwrap_or(0);
            self.disk.set_room(used + self.rng.random_range(0..9000));
        }
        // If power is lost during the write, the group may be on the disk.
        self.groups.push(group);
        let written = journal.write(&batches);
        self.disk.set_room(1 << 30);
        if written == Err(JournalError::Full) {
            self.groups.pop();
            return Ok(());
        }
        written?;
        self.written = self.groups.len();
        if self.rng.random_range(0..3) == 0 {
            return Ok(());
        }
        journal.sync()?;
        self.synced = journal.synced().0 as usize;
        journal.tidy()?;
        self.synced = journal.synced().0 as usize;
        if self.rng.random_range(0..5) == 0 {
            journal.note_synced()?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        if self.rng.random_range(0..4) > 0 {
            self.disk.cut_power_after(self.rng.random_range(0..150));
        }
        self.disk.fail_sync_after((self.rng.random_range(0..4) == 0).then_some(self.rng.random_range(0..40)));
        let mode = if self.rng.random_range(0..3) == 0 { SyncMode::Never } else { SyncMode::Batch };
        let has_failed = match self.open(mode) {
            Ok(mut journal) => (0..self.rng.random_range(0..80)).any(|_| self.write(&mut journal).is_err()),
            Err(why) if why.is_empty() => true,
            Err(why) => return Err(why),
        };
        self.counts[2] += usize::from(has_failed);
        self.disk.fail_sync_after(None);
        if self.rng.random_range(0..3) > 0 || self.disk.is_off() {
            self.kept = self.synced;
            self.disk.cut_power();
        } else {
            // The kernel keeps the data that was passed to it.
            self.kept = if has_failed { self.synced } else { self.written };
            self.disk.restart();
        }
        Ok(())
    }
}

/// Small segments, several chains, restarts and failures of all kinds.
#[test]
fn what_a_disk_keeps_of_several_chains_is_a_beginning_of_what_they_wrote() {
    let mut counts = [0; 3];
    for seed in 0..60 {
        let mut scribe = Scribe::new(seed);
        for start in 0..12 {
            scribe.start().unwrap_or_else(|why| panic!("seed {seed}, start {start}: {why}"));
        }
        (0..3).for_each(|n| counts[n] += scribe.counts[n]);
    }
    let [whole, lacking, failed] = counts;
    assert!(whole > 400 && lacking > 50 && failed > 100, "{whole} whole, {lacking} not whole, {failed} failed starts");
}
