//! A small store, written group by group: three chains, each kind of entry, several starts and segments, and no
//! randomness, so that its bytes are always the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;

use super::super::*;
use crate::{
    ClusterId, Epoch, Sequence, Version,
    control::{StorePosition, StoreStart, StoreStarts, message::StoreHolding},
    disk::{
        Disk,
        simulated::{CutSettings, SimulatedDisk},
    },
    fixtures,
    guards::Guards,
    journal::JournalEntry,
    message::{
        ChainFrame, ChainMessage, RecordPiece, SessionEntry, SnapshotContent, SnapshotCursor, SnapshotHeader,
        SnapshotPart, Updates,
    },
    replica::JournalBatch,
    store::{Held, MemoryStore, ScanRecord, Store},
    types::update::{KeyChange, RequestKey, RequestOutcome, Update, UpdateKind},
};

pub(super) const STORE: u128 = 0x5708_e000_0000_0000_0000_0000_0000_0001;
pub(super) const CLUSTER: ClusterId = ClusterId(0xc105_7e80);
const ZERO: ChainId = ChainId(0);
const ONE: ChainId = ChainId(1);
const TWO: ChainId = ChainId(2);
/// The session of chain 0.
const SESSION: Version = Version::new(1, 1);
/// Bytes of the value of key `a`, which a checkpoint writes in two pieces.
const LARGE: usize = 3000;

pub(super) fn settings(mode: SyncMode) -> OpenSettings {
    let node = fixtures::id(1).node;
    OpenSettings { mode, segment_bytes: 20 << 10, room: 1 << 30, backlog: 1 << 20, ..OpenSettings::new(node) }
}

/// The last known position of another store.
fn position() -> StorePosition {
    let mut starts = StoreStarts::default();
    starts.begin(StoreStart { number: 1, id: 77, control: 3, groups: 300 });
    StorePosition { control: 12, groups: 345, starts }
}

/// A value that contains its key, and no long sequence of zeros.
pub(super) fn value(key: &str, len: usize) -> Bytes {
    key.bytes().chain((1..=251).cycle()).take(len).collect()
}

fn put(version: Version, key: &str, len: usize) -> Update {
    let change = KeyChange::new(key.to_owned().into(), Some(value(key, len)));
    Update { chain_time: 1000 + version.sequence.0, ..fixtures::update(version, [change]) }
}

/// Marks `update` as the one of request `number` in the session of chain 0.
fn asked(update: Update, number: u64, outcome: RequestOutcome) -> Update {
    Update { request: Some(RequestKey { session: SESSION, number, lowest: 1 }), outcome, ..update }
}

fn sent(chain: ChainId, message: ChainMessage) -> JournalEntry {
    JournalEntry::Sent(Box::new(ChainFrame { chain, epoch: Epoch(0), index: 0, message }))
}

fn updates(chain: ChainId, watermark: u64, after: Version, updates: Vec<Update>) -> JournalEntry {
    sent(chain, ChainMessage::Updates(Updates { watermark: Sequence(watermark), after, updates }))
}

/// A part of the checkpoint with this number.
fn part(chain: ChainId, id: u64, watermark: u64, at: SnapshotCursor, content: SnapshotContent) -> JournalEntry {
    sent(chain, ChainMessage::Snapshot(SnapshotPart { id, at, watermark: Sequence(watermark), content }))
}

fn begin(version: Version, sessions: u64) -> SnapshotContent {
    let epochs = if version == Version::NONE { vec![] } else { vec![(version.epoch, Sequence(1))] };
    let chain_time = 1000 + version.sequence.0;
    SnapshotContent::Begin(SnapshotHeader { said: Version::NONE, version, epochs, chain_time, sessions })
}

fn record(version: Version, key: &str, len: usize) -> ScanRecord {
    ScanRecord { key: key.to_owned().into(), held: Held::new(version, Some(value(key, len))) }
}

fn mark(behind: Option<&str>, bytes: u64) -> SnapshotCursor {
    SnapshotCursor { sessions: 3, behind: behind.map(|key| key.to_owned().into()), bytes }
}

fn born(chain: ChainId) -> Vec<JournalEntry> {
    let at = SnapshotCursor::default;
    vec![part(chain, 1, 0, at(), begin(Version::NONE, 0)), part(chain, 1, 0, at(), SnapshotContent::End)]
}

/// A node that writes the store.
struct Writer {
    disk: SimulatedDisk,
    control: ControlFile,
    journal: JournalWriter,
    upto: u64,
}

impl Writer {
    fn start(disk: SimulatedDisk, mode: SyncMode, start: u128) -> Self {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let found = FoundStore::check(shared, settings(mode), STORE).expect("the written store is complete");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(1));
        let LoadedStore { control, journal, .. } =
            found.open(&store, start << 64).expect("the written store is complete");
        Self { disk, control, journal, upto: 0 }
    }

    fn restart(self, mode: SyncMode, start: u128) -> Self {
        let Self { disk, control, journal, .. } = self;
        drop((control, journal));
        disk.restart();
        Self::start(disk, mode, start)
    }

    /// Writes these entries as one group, and syncs it.
    fn group(&mut self, entries: impl IntoIterator<Item = JournalEntry>) {
        let mut chains: BTreeMap<_, Vec<_>> = BTreeMap::new();
        entries.into_iter().for_each(|entry| chains.entry(entry.chain()).or_default().push(entry));
        self.upto += 1;
        let batch = |(chain, entries)| {
            (chain, JournalBatch { upto: self.upto, entries, bytes: 0, queued: 0, data: 0, awaits: false })
        };
        let batches: Vec<_> = chains.into_iter().map(batch).collect();
        self.journal.write(&batches).expect("there is space");
        self.journal.sync().expect("the disk works");
        self.journal.tidy().expect("the disk works");
    }

    /// Writes the first entries of the chains. Later, checkpoints of chains 0 and 2 and a resync of chain 1 supersede
    /// them.
    fn history(&mut self) {
        let opened = Update { kind: UpdateKind::SESSION_OPEN, ..fixtures::update(SESSION, []) };
        let mut large = asked(put(Version::new(1, 2), "a", LARGE), 1, RequestOutcome::Done);
        large.changes.push(KeyChange::new("aa".into(), Some(value("aa", 20))));
        let deleted = fixtures::update(Version::new(1, 4), [KeyChange::new("b".into(), None)]);
        let took = asked(deleted, 2, RequestOutcome::Took(Version::new(1, 3)));
        let taken = JournalEntry::Taken { chain: ZERO, version: took.version, value: value("b", 1500) };
        self.group([born(ZERO), born(ONE), born(TWO)].concat());
        self.group([updates(ZERO, 0, Version::NONE, vec![opened]), updates(ZERO, 1, SESSION, vec![large])]);
        self.group([
            updates(ZERO, 2, Version::new(1, 2), vec![put(Version::new(1, 3), "b", 1500)]),
            updates(TWO, 0, Version::NONE, vec![put(Version::new(1, 1), "x", 700)]),
        ]);
        self.group([taken, updates(ZERO, 2, Version::new(1, 3), vec![took])]);
        self.group([
            updates(ZERO, 3, Version::new(1, 4), vec![put(Version::new(1, 5), "a", 900)]),
            updates(ONE, 0, Version::NONE, vec![put(Version::new(1, 1), "q", 600)]),
        ]);
        self.group([
            JournalEntry::Cut { chain: ZERO, keep: Version::new(1, 4) },
            updates(ZERO, 4, Version::new(1, 4), vec![put(Version::new(2, 5), "c", 2900)]),
        ]);
    }

    fn checkpoints(&mut self) {
        let session = SessionEntry::Session { id: SESSION, lowest: 1, used: Sequence(4) };
        let entry = |number, version, outcome, taken| SessionEntry::Record { number, version, outcome, taken };
        let took = RequestOutcome::Took(Version::new(1, 3));
        let sessions = vec![
            session,
            entry(1, Version::new(1, 2), RequestOutcome::Done, None),
            entry(2, Version::new(1, 4), took, Some(value("b", 1500))),
        ];
        let piece = |from, to| {
            let (key, bytes) = ("a".into(), value("a", LARGE).slice(from..to));
            SnapshotContent::Piece(RecordPiece {
                key,
                version: Version::new(1, 2),
                len: LARGE as u32,
                expires: None,
                bytes,
            })
        };
        let records = vec![record(Version::new(1, 2), "aa", 20), record(Version::new(2, 5), "c", 2900)];
        let at = SnapshotCursor::default;
        self.group([
            part(ZERO, 2, 4, at(), begin(Version::new(1, 4), 3)),
            updates(ZERO, 4, Version::new(1, 4), vec![put(Version::new(2, 5), "c", 2900)]),
            part(ZERO, 2, 4, at(), SnapshotContent::Sessions(sessions)),
        ]);
        self.group([
            part(ZERO, 2, 4, mark(None, 0), piece(0, 2000)),
            updates(ZERO, 5, Version::new(2, 5), vec![put(Version::new(2, 6), "f", 1200)]),
        ]);
        self.group([
            part(ZERO, 2, 5, mark(None, 2000), piece(2000, LARGE)),
            part(ZERO, 2, 5, mark(Some("a"), 0), SnapshotContent::Records(records)),
            part(ZERO, 2, 5, mark(Some("c"), 0), SnapshotContent::End),
        ]);
        let (none, x) = (SnapshotCursor { sessions: 0, ..mark(None, 0) }, Some("x"));
        let records = SnapshotContent::Records(vec![record(Version::new(1, 1), "x", 700)]);
        self.group([
            part(TWO, 2, 1, at(), begin(Version::new(1, 1), 0)),
            part(TWO, 2, 1, none, records),
            part(TWO, 2, 1, SnapshotCursor { sessions: 0, ..mark(x, 0) }, SnapshotContent::End),
        ]);
    }

    /// A cut, a resync, and a value that is removed. The oldest segments are no longer needed.
    fn later(&mut self) {
        self.group([
            JournalEntry::Cut { chain: ZERO, keep: Version::new(2, 6) },
            updates(ZERO, 5, Version::new(2, 6), vec![put(Version::new(3, 7), "d", 3000)]),
            JournalEntry::NotWhole { chain: ONE },
            JournalEntry::Watermark { chain: TWO, watermark: Sequence(2) },
        ]);
        let deleted = fixtures::update(Version::new(3, 8), [KeyChange::new("f".into(), None)]);
        let took = asked(deleted, 3, RequestOutcome::Took(Version::new(2, 6)));
        let taken = JournalEntry::Taken { chain: ZERO, version: took.version, value: value("f", 1200) };
        self.group([taken, updates(ZERO, 6, Version::new(3, 7), vec![took])]);
    }

    fn promises(&self) {
        let mut bootstrap = Bootstrap::new(CLUSTER, "small", vec![fixtures::founder(1), fixtures::founder(2)]);
        bootstrap.settings.chains = 3;
        let (me, of) = (fixtures::incarnation(1, STORE), Configs::of(&bootstrap));
        let promised = self.control.change(|record| {
            record.keep_founding(me, &bootstrap);
            record.keep(me, &of, SyncMode::Batch);
            record.heard.hear(fixtures::id(2), position()).expect("this is the first report");
            record.log = b"a vote in term 7".to_vec();
        });
        promised.expect("the disk works");
    }
}

/// Writes the store, kills the node, and returns its disk. The last group is written only if `last`. No later group
/// proves that the final one was synced.
pub(super) fn small_store(last: bool) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1, 1 << 30, CutSettings { tears_sectors: true, leaves_garbage: true });
    let mut writer = Writer::start(disk.clone(), SyncMode::Batch, 1);
    writer.promises();
    writer.history();
    writer.journal.close().expect("the disk works");
    writer.checkpoints();
    writer.journal.close().expect("the disk works");
    let mut writer = writer.restart(SyncMode::Never, 2);
    writer.group([
        updates(ZERO, 5, Version::new(2, 6), vec![put(Version::new(2, 7), "cut", 200)]),
        updates(TWO, 1, Version::new(1, 1), vec![put(Version::new(3, 2), "y", 2500)]),
    ]);
    let mut writer = writer.restart(SyncMode::Batch, 3);
    writer.control.change(|record| record.strong = BTreeSet::from([ZERO])).expect("the disk works");
    writer.later();
    if last {
        writer.group([updates(ZERO, 7, Version::new(3, 8), vec![put(Version::new(3, 9), "g", 300)])]);
    }
    drop(writer);
    disk.restart();
    disk
}

/// Everything that a start loads from a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opened {
    /// The content of the control file, without the parts that each start changes.
    pub(super) record: ControlRecord,
    /// The debug output of each restored chain, including its sessions.
    pub(super) chains: BTreeMap<ChainId, String>,
    pub(super) holdings: Vec<StoreHolding>,
    pub(super) records: Vec<(ChainId, ScanRecord)>,
}

pub(super) fn opened(disk: &SimulatedDisk) -> Result<Opened, OpenError> {
    opened_by(disk, Guards::ALL)
}

pub(super) fn opened_by(disk: &SimulatedDisk, guards: Guards) -> Result<Opened, OpenError> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(1));
    let settings = OpenSettings { guards, ..settings(SyncMode::Batch) };
    let dir = FoundStore::check(shared, settings, STORE + 1)?.open(&store, 9 << 64)?;
    let all = [ZERO, ONE, TWO];
    let records = all.into_iter().flat_map(|chain| {
        let records = store.scan(chain, b"", Sequence::MAX);
        records.map(move |record| (chain, record.expect("a store in memory works"))).collect::<Vec<_>>()
    });
    Ok(Opened {
        record: ControlRecord { segment: 0, synced: 0, starts: StoreStarts::default(), ..dir.control.record() },
        records: records.collect(),
        holdings: all.map(|chain| dir.holding(chain)).into(),
        chains: dir.chains.into_iter().map(|(chain, restored)| (chain, format!("{restored:?}"))).collect(),
    })
}

/// Checks that a store holds the data of [`small_store`].
pub(super) fn assert_all_there(opened: &Opened) {
    let holding = |chain, whole, last, watermark, synced| {
        let watermark = Sequence(watermark);
        StoreHolding { chain, whole, last, watermark, synced }
    };
    let expected = [
        holding(ZERO, true, Version::new(3, 9), 7, true),
        holding(ONE, false, Version::NONE, 0, false),
        holding(TWO, true, Version::new(3, 2), 2, false),
    ];
    assert_eq!(opened.holdings, expected);
    let gone = ScanRecord { key: "f".into(), held: Held::new(Version::new(3, 8), None) };
    let of_zero = [
        record(Version::new(1, 2), "a", LARGE),
        record(Version::new(1, 2), "aa", 20),
        record(Version::new(2, 5), "c", 2900),
        record(Version::new(3, 7), "d", 3000),
        gone,
        record(Version::new(3, 9), "g", 300),
    ];
    let of_two = [record(Version::new(1, 1), "x", 700), record(Version::new(3, 2), "y", 2500)];
    let of = |chain, records: Vec<ScanRecord>| records.into_iter().map(move |record| (chain, record));
    assert_eq!(opened.records, of(ZERO, of_zero.into()).chain(of(TWO, of_two.into())).collect::<Vec<_>>());
    let sessions = &opened.chains[&ZERO];
    for taken in [value("b", 1500), value("f", 1200)] {
        assert!(sessions.contains(&format!("{taken:?}")), "{sessions}");
    }
    let ControlRecord { node, incarnation, founding, configs, weak, strong, heard, log, .. } = &opened.record;
    assert_eq!((*node, incarnation.store, incarnation.starts), (fixtures::id(1).node, STORE, 4));
    assert_eq!(founding.as_ref().map(|founding| (founding.cluster, founding.members.len())), Some((CLUSTER, 2)));
    assert_eq!(configs.as_ref().map(|configs| configs.iter().count()), Some(3));
    assert_eq!((*weak, strong), (true, &BTreeSet::from([ZERO])));
    assert!(heard.covers(fixtures::id(2), position()));
    assert_eq!(log, b"a vote in term 7");
}
