//! Test vectors of chain messages, which every later release with wire format 1 must decode and encode.
//!
//! A vector in `wire-1/` never changes: the additions of a later release get vectors of their own.

use artillery_proto::{
    ChainId, Epoch, Sequence, Version,
    message::{
        ChainFrame, ChainMessage, Chunk, ChunkPart, Control, Fullness, Lengths, Outline, Partial, Position,
        RecordPiece, SessionEntry, SnapshotContent, SnapshotCursor, SnapshotHeader, SnapshotPart, SnapshotProgress,
        Truncate, Updates, ValueOutline, VersionAnswer,
    },
    store::{Held, ScanRecord},
    types::update::{KeyChange, RequestFailure, RequestKey, RequestOutcome, Update, UpdateKind},
    wire::chain::{decode, encode},
};
use bytes::Bytes;

use crate::vectors::{check, check_listed};

fn vectors() -> [(&'static str, ChainFrame); 16] {
    [
        ("chain-control-empty", control(ChainId(0), Epoch(1), 1, Control::default())),
        ("chain-control-full", control(ChainId(250), Epoch(251), 70_000, full_control())),
        ("chain-updates-one", updates(vec![put(Version::new(1, 1), "greeting", "hello")])),
        ("chain-updates-many", updates(many_updates())),
        ("chain-updates-ran", updates(ran())),
        ("chain-chunk-first", chunk(ChunkPart::First(outline()), "keyval")),
        ("chain-chunk-behind", chunk(ChunkPart::Behind(65_536), "ue")),
        ("chain-control-joiner", control(ChainId(3), Epoch(5), 6, joiner_control())),
        ("chain-snapshot-begin", snapshot(SnapshotCursor::default(), SnapshotContent::Begin(beginning()))),
        ("chain-snapshot-sessions", snapshot(SnapshotCursor::default(), SnapshotContent::Sessions(sessions()))),
        ("chain-snapshot-records", snapshot(mark(0), SnapshotContent::Records(records()))),
        ("chain-snapshot-piece", snapshot(mark(65_536), SnapshotContent::Piece(piece()))),
        ("chain-snapshot-end", snapshot(mark(0), SnapshotContent::End)),
        ("chain-durable", durable(Version::new(251, 65_536))),
        ("chain-disk-full", full(Fullness::Disk)),
        ("chain-memory-full", full(Fullness::Memory)),
    ]
}

fn control(chain: ChainId, epoch: Epoch, index: u64, control: Control) -> ChainFrame {
    ChainFrame { chain, epoch, index, message: ChainMessage::Control(control) }
}

fn durable(version: Version) -> ChainFrame {
    ChainFrame { chain: ChainId(3), epoch: Epoch(251), index: 6, message: ChainMessage::Durable(version) }
}

fn full(what: Fullness) -> ChainFrame {
    ChainFrame { chain: ChainId(3), epoch: Epoch(251), index: 6, message: ChainMessage::Full(what) }
}

fn updates(updates: Vec<Update>) -> ChainFrame {
    let first = updates[0].version;
    let after = if first.sequence == Sequence(1) { Version::NONE } else { Version::new(4, first.sequence.0 - 1) };
    let message = ChainMessage::Updates(Updates { watermark: Sequence(65_535), after, updates });
    ChainFrame { chain: ChainId(3), epoch: Epoch(5), index: 1 << 32, message }
}

/// Updates of two scripts: one succeeded, and the results of the other one were too large.
fn ran() -> Vec<Update> {
    let ran = Update { outcome: RequestOutcome::Ran, ..put(Version::new(1, 1), "greeting", "hello") };
    let failed = RequestOutcome::Failed(RequestFailure::ResultsTooLarge(1 << 40));
    vec![ran, Update { outcome: failed, changes: Default::default(), ..put(Version::new(1, 2), "", "") }]
}

fn chunk(part: ChunkPart, bytes: &'static str) -> ChainFrame {
    let (watermark, version) = (Sequence(250), Version::new(5, 251));
    let after = Version::new(4, 250);
    let message = ChainMessage::Chunk(Chunk { watermark, after, version, part, bytes: Bytes::from(bytes) });
    ChainFrame { chain: ChainId(3), epoch: Epoch(5), index: 6, message }
}

fn snapshot(at: SnapshotCursor, content: SnapshotContent) -> ChainFrame {
    let message = ChainMessage::Snapshot(SnapshotPart { id: 251, at, watermark: Sequence(65_537), content });
    ChainFrame { chain: ChainId(3), epoch: Epoch(5), index: 6, message }
}

fn mark(bytes: u64) -> SnapshotCursor {
    SnapshotCursor { sessions: 3, behind: Some(Bytes::from("greeting")), bytes }
}

fn beginning() -> SnapshotHeader {
    SnapshotHeader {
        said: Version::new(1, 17),
        version: Version::new(4, 70_000),
        epochs: vec![(Epoch(1), Sequence(1)), (Epoch(4), Sequence(300))],
        chain_time: 1_700_000_000_000,
        sessions: 3,
    }
}

fn sessions() -> Vec<SessionEntry> {
    let record =
        |number, outcome, taken| SessionEntry::Record { number, version: Version::new(4, 301), outcome, taken };
    vec![
        SessionEntry::Session { id: Version::new(2, 300), lowest: 15, used: Sequence(65_536) },
        record(17, RequestOutcome::Took(Version::new(1, 2)), Some(Bytes::from("gone"))),
        record(18, RequestOutcome::Done, None),
    ]
}

fn records() -> Vec<ScanRecord> {
    let record = |key: &'static str, version, value: &'static str| ScanRecord {
        key: Bytes::from(key),
        held: Held::new(version, Some(Bytes::from(value))),
    };
    vec![record("hello", Version::new(1, 2), "world"), record("world", Version::new(4, 70_000), "")]
}

fn piece() -> RecordPiece {
    RecordPiece {
        key: Bytes::from("large"),
        version: Version::new(1, 251),
        len: 70_000,
        expires: None,
        bytes: Bytes::from("of its value"),
    }
}

fn joiner_control() -> Control {
    let progress = SnapshotProgress {
        id: 251,
        mark: mark(7),
        again: true,
        upto: Sequence(300),
        missed: true,
        hold: true,
        ended: true,
    };
    Control { snapshot: Some(Box::new(progress)), ..Control::default() }
}

fn outline() -> Outline {
    Outline {
        kind: UpdateKind::WRITE,
        request: Some(RequestKey { session: Version::new(2, 300), number: 17, lowest: 15 }),
        outcome: RequestOutcome::Length(70_000),
        chain_time: 1_700_000_000_000,
        changes: vec![
            Lengths { key: 3, value: ValueOutline::Set(70_000) },
            Lengths { key: 4, value: ValueOutline::Deleted },
        ],
    }
}

fn full_control() -> Control {
    Control {
        watermark: Sequence(1),
        echo: Sequence(251),
        confirm: true,
        is_open: true,
        acknowledged: Version::new(2, 65_536),
        resume: Some(Position {
            last: Version::new(3, 1 << 32),
            epochs: vec![(Epoch(1), Sequence(1)), (Epoch(3), Sequence(u64::MAX))],
        }),
        partial: Some(Partial { version: Version::new(3, 15), bytes: 70_001 }),
        following: true,
        cut: Some(Truncate { said: Version::new(4, 5), keep: Version::new(6, 7) }),
        open: Some(Sequence(8)),
        query: 9,
        answer: Some(VersionAnswer { number: 10, sequence: Sequence(11) }),
        barrier: 12,
        ordered: Some(VersionAnswer { number: 13, sequence: Sequence(14) }),
        snapshot: None,
    }
}

fn put(version: Version, key: &'static str, value: &'static str) -> Update {
    let change = KeyChange::new(Bytes::from(key), Some(Bytes::from(value)));
    Update {
        version,
        kind: UpdateKind::WRITE,
        request: None,
        outcome: RequestOutcome::Done,
        chain_time: 1_700_000_000_000,
        changes: [change].into_iter().collect(),
    }
}

fn many_updates() -> Vec<Update> {
    let change =
        |key: &'static str, value: Option<&'static str>| KeyChange::new(Bytes::from(key), value.map(Bytes::from));
    let batch = [change("gone", None), change("", Some("")), change("stays", Some("value"))];
    let request = RequestKey { session: Version::new(2, 300), number: 17, lowest: 15 };
    let noop = Update {
        kind: UpdateKind::NOOP,
        changes: [].into_iter().collect(),
        chain_time: 0,
        ..put(Version::new(5, 65_539), "", "")
    };
    vec![
        Update { changes: batch.into_iter().collect(), ..put(Version::new(4, 65_536), "", "") },
        Update {
            request: Some(request),
            outcome: RequestOutcome::Conflict(Version::new(4, 65_536)),
            changes: [].into_iter().collect(),
            ..put(Version::new(4, 65_537), "", "")
        },
        Update { kind: UpdateKind::BARRIER, ..noop.clone() },
        noop,
        Update { kind: UpdateKind(0xfe), ..put(Version::new(6, 65_540), "later", "release") },
    ]
    .into_iter()
    .zip(65_536..)
    .map(|(mut update, sequence)| {
        update.version.sequence = Sequence(sequence);
        update
    })
    .collect()
}

#[test]
fn vectors_are_understood_and_sent() {
    for (name, message) in vectors() {
        check(name, &message, &encode(&message).expect("a vector can be encoded").to_frame(), decode);
    }
}

#[test]
fn no_vector_is_forgotten() {
    check_listed(&["chain-"], &vectors().map(|(name, _)| name));
}
