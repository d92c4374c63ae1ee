//! Parts of snapshots.

use super::*;
use crate::{
    Expiry,
    store::{Held, ScanRecord},
    types::update::MAX_TAKEN,
};

fn mark() -> impl Strategy<Value = SnapshotCursor> {
    let behind = prop::option::of(prop::collection::vec(any::<u8>(), 0..9).prop_map(Bytes::from));
    (number(), behind, number()).prop_map(|(sessions, behind, bytes)| SnapshotCursor { sessions, behind, bytes })
}

pub(super) fn some_progress() -> impl Strategy<Value = Option<Box<SnapshotProgress>>> {
    prop::option::of((number(), mark(), number(), any::<(bool, bool, bool, bool)>()).prop_map(
        |(id, mark, upto, (again, missed, hold, ended))| {
            Box::new(SnapshotProgress { id, mark, again, upto: Sequence(upto), missed, hold, ended })
        },
    ))
}

fn beginning() -> impl Strategy<Value = (SnapshotCursor, SnapshotContent)> {
    let steps = prop::collection::vec((1..300_u64, 1..300_u64), 0..4);
    (version(), steps, 0..300_u64, number(), number()).prop_map(|(said, steps, more, chain_time, sessions)| {
        let mut last = (Epoch(0), Sequence(0));
        let rising = steps.into_iter().map(|(epochs, sequences)| {
            last = (Epoch(last.0.0 + epochs), Sequence(last.1.0 + sequences));
            last
        });
        let epochs: Vec<_> = rising.collect();
        let of = |&(epoch, first): &(Epoch, Sequence)| Version { epoch, sequence: Sequence(first.0 + more) };
        let version = epochs.last().map_or(Version::NONE, of);
        (
            SnapshotCursor::default(),
            SnapshotContent::Begin(SnapshotHeader { said, version, epochs, chain_time, sessions }),
        )
    })
}

fn entries() -> impl Strategy<Value = (SnapshotCursor, SnapshotContent)> {
    let session = || {
        (version(), number(), number()).prop_map(|(id, lowest, used)| SessionEntry::Session {
            id,
            lowest,
            used: Sequence(used),
        })
    };
    let taken = prop::option::of(prop_oneof![0..40_usize, Just(MAX_TAKEN)]);
    let record = (number(), version(), version(), taken).prop_map(|(number, version, took, taken)| {
        let taken = taken.map(|len| vec![7; len].into());
        SessionEntry::Record { number, version, outcome: RequestOutcome::Took(took), taken }
    });
    let list = prop::collection::vec(prop_oneof![session(), record], 0..5);
    (0..1_u64 << 40, session(), list).prop_map(|(sessions, first, mut list)| {
        list.insert(0, first);
        (SnapshotCursor { sessions, ..SnapshotCursor::default() }, SnapshotContent::Sessions(list))
    })
}

fn expires() -> impl Strategy<Value = Option<Expiry>> {
    prop::option::weighted(0.2, number().prop_map(Expiry::at))
}

fn records() -> impl Strategy<Value = (SnapshotCursor, SnapshotContent)> {
    let value = prop_oneof![0..300_usize, Just(COPY_BELOW)];
    let list =
        prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..9), (1..u64::MAX, value, expires()), 1..5);
    (number(), any::<bool>(), list).prop_map(|(sessions, is_first, list)| {
        let record = |(key, (sequence, len, expires)): (Vec<u8>, (u64, usize, _))| ScanRecord {
            key: key.into(),
            held: Held { version: Version::new(3, sequence), value: Some(vec![1; len].into()), expires },
        };
        let mut records: Vec<_> = list.into_iter().map(record).collect();
        let behind = (!is_first && records.len() > 1).then(|| records.remove(0).key);
        (SnapshotCursor { sessions, behind, bytes: 0 }, SnapshotContent::Records(records))
    })
}

fn piece() -> impl Strategy<Value = (SnapshotCursor, SnapshotContent)> {
    let len = prop_oneof![1..300_usize, Just(MAX_CHUNK)];
    (number(), 0..1_u64 << 30, len, (0..1_u32 << 30, expires()), version()).prop_map(
        |(sessions, bytes, len, (more, expires), version)| {
            let version = Version { sequence: Sequence(version.sequence.0.clamp(1, u64::MAX - 1)), ..version };
            let whole = bytes as u32 + len as u32 + more;
            let piece = RecordPiece { key: "key".into(), version, len: whole, expires, bytes: vec![1; len].into() };
            (SnapshotCursor { sessions, behind: Some("kex".into()), bytes }, SnapshotContent::Piece(piece))
        },
    )
}

pub(super) fn some_part() -> impl Strategy<Value = ChainMessage> {
    let end = mark().prop_map(|mark| (SnapshotCursor { bytes: 0, ..mark }, SnapshotContent::End));
    (1..u64::MAX, number(), prop_oneof![beginning(), entries(), records(), piece(), end]).prop_map(
        |(id, watermark, (at, content))| {
            ChainMessage::Snapshot(SnapshotPart { id, at, watermark: Sequence(watermark), content })
        },
    )
}

fn refused(at: SnapshotCursor, content: SnapshotContent) -> HistoryError {
    match encode(&said(ChainMessage::Snapshot(SnapshotPart { id: 1, at, watermark: Sequence(9), content }))) {
        Err(EncodeError::History(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn record(key: &'static str, sequence: u64, value: Option<&'static str>) -> ScanRecord {
    ScanRecord { key: key.into(), held: Held::new(Version::new(1, sequence), value.map(Bytes::from)) }
}

fn behind(key: &'static str) -> SnapshotCursor {
    SnapshotCursor { behind: Some(key.into()), ..SnapshotCursor::default() }
}

#[test]
fn a_part_stands_where_it_can() {
    let place = || HistoryError::from(SnapshotError::Place);
    let beginning =
        SnapshotHeader { said: Version::NONE, version: Version::NONE, epochs: vec![], chain_time: 0, sessions: 0 };
    let begin = |beginning| SnapshotContent::Begin(beginning);
    assert_eq!(refused(behind("a"), begin(beginning.clone())), place());
    let session = SessionEntry::Session { id: Version::new(1, 1), lowest: 1, used: Sequence(1) };
    assert_eq!(refused(behind("a"), SnapshotContent::Sessions(vec![session])), place());
    let taken = |len| SessionEntry::Record {
        number: 1,
        version: Version::new(1, 1),
        outcome: RequestOutcome::Done,
        taken: Some(vec![0; len].into()),
    };
    assert_eq!(
        refused(SnapshotCursor::default(), SnapshotContent::Sessions(vec![taken(1)])),
        place(),
        "a record needs a session before it"
    );
    let at = SnapshotCursor { sessions: 1, ..SnapshotCursor::default() };
    let long = refused(at, SnapshotContent::Sessions(vec![taken(MAX_TAKEN + 1)]));
    assert_eq!(long, SnapshotError::Taken(4097).into());
    let within = SnapshotCursor { bytes: 1, ..behind("a") };
    assert_eq!(refused(within.clone(), SnapshotContent::Records(vec![record("b", 1, Some("v"))])), place());
    assert_eq!(refused(within, SnapshotContent::End), place());
    let epochs = vec![(Epoch(2), Sequence(5))];
    let ahead = SnapshotHeader { version: Version::new(2, 4), epochs, ..beginning.clone() };
    assert_eq!(refused(SnapshotCursor::default(), begin(ahead)), SnapshotError::Epochs.into());
    let unknown = SnapshotHeader { version: Version::new(2, 4), ..beginning };
    assert_eq!(refused(SnapshotCursor::default(), begin(unknown)), SnapshotError::Epochs.into());
    let long = SnapshotCursor { behind: Some(vec![0; MAX_KEY + 1].into()), ..SnapshotCursor::default() };
    assert_eq!(refused(long.clone(), SnapshotContent::End), HistoryError::KeyTooLong(4097));
    let progress = Control {
        snapshot: Some(Box::new(SnapshotProgress { mark: long, ..SnapshotProgress::default() })),
        ..Control::default()
    };
    assert!(encode(&said(ChainMessage::Control(progress))).is_err());
    let numberless =
        SnapshotPart { id: 0, at: SnapshotCursor::default(), watermark: Sequence(9), content: SnapshotContent::End };
    assert!(encode(&said(ChainMessage::Snapshot(numberless))).is_err());
}

#[test]
fn records_rise_and_have_values() {
    let records = SnapshotContent::Records;
    assert_eq!(refused(SnapshotCursor::default(), records(vec![])), SnapshotError::Empty.into());
    assert_eq!(
        refused(SnapshotCursor::default(), records(vec![record("a", 1, None)])),
        SnapshotError::Tombstone.into()
    );
    let same = vec![record("a", 1, Some("v")), record("a", 2, Some("v"))];
    assert_eq!(refused(SnapshotCursor::default(), records(same)), SnapshotError::Order.into());
    assert_eq!(refused(behind("a"), records(vec![record("a", 1, Some("v"))])), SnapshotError::Order.into());
    let none = refused(SnapshotCursor::default(), records(vec![record("a", 0, Some("v"))]));
    assert!(matches!(none, HistoryError::Sequence { .. }));
    let piece = |bytes, len, total| {
        let piece = RecordPiece {
            key: "b".into(),
            version: Version::new(1, 1),
            len: total,
            expires: None,
            bytes: vec![0; len].into(),
        };
        (SnapshotCursor { bytes, ..behind("a") }, SnapshotContent::Piece(piece))
    };
    let refuse = |(at, content)| refused(at, content);
    assert_eq!(refuse(piece(0, 0, 9)), HistoryError::PieceLength(0));
    assert_eq!(refuse(piece(5, 5, 9)), HistoryError::PieceTooFar { end: 10, len: 9 });
    assert_eq!(refuse(piece(u64::MAX, 5, 9)), HistoryError::PieceTooFar { end: u64::MAX, len: 9 });
}

#[test]
fn lengths_of_records_fill_the_body() {
    let part = SnapshotPart {
        id: 1,
        at: SnapshotCursor::default(),
        watermark: Sequence(9),
        content: SnapshotContent::Records(vec![record("ab", 1, Some("cde"))]),
    };
    let whole = framed(&said(ChainMessage::Snapshot(part)));
    for len in 0..5 {
        let cut = Frame { header: whole.header.clone(), body: whole.body.slice(..len) };
        assert_eq!(decode(&cut), Err(DecodeError::BodyLength { stated: 5, actual: len as u64 }));
    }
    let mut end = framed(&said(ChainMessage::Snapshot(SnapshotPart {
        id: 1,
        at: SnapshotCursor::default(),
        watermark: Sequence(9),
        content: SnapshotContent::End,
    })));
    end.body = Bytes::from_static(b"x");
    assert_eq!(decode(&end), Err(DecodeError::BodyLength { stated: 0, actual: 1 }));
}
