use proptest::prelude::*;
use smallvec::smallvec;

use super::*;
use crate::{
    Expiry,
    message::{
        Outline, Partial, Position, RecordPiece, SessionEntry, SnapshotContent, SnapshotCursor, SnapshotHeader,
        SnapshotPart, SnapshotProgress, Truncate, VersionAnswer,
    },
    types::keep::COPY_BELOW,
};

mod snapshots;

fn frame(encoded: &Encoded) -> Frame {
    encoded.to_frame()
}

fn framed(message: &ChainFrame) -> Frame {
    frame(&encode(message).unwrap())
}

fn said(message: ChainMessage) -> ChainFrame {
    ChainFrame { chain: ChainId(3), epoch: Epoch(5), index: 70_000, message }
}

fn update(sequence: u64, changes: SmallVec<[KeyChange; 1]>) -> Update {
    Update {
        version: Version::new(5, sequence),
        kind: UpdateKind::WRITE,
        request: None,
        outcome: RequestOutcome::Done,
        chain_time: 1_700_000_000_000,
        changes,
    }
}

fn change(key: &str, value: Option<&[u8]>) -> KeyChange {
    KeyChange::new(Bytes::copy_from_slice(key.as_bytes()), value.map(Bytes::copy_from_slice))
}

fn updates(updates: Vec<Update>) -> ChainFrame {
    let before =
        |update: &Update| Version { sequence: Sequence(update.version.sequence.0.saturating_sub(1)), epoch: Epoch(0) };
    let after = updates.first().map_or(Version::NONE, before);
    said(ChainMessage::Updates(Updates { watermark: Sequence(7), after, updates }))
}

/// The value in a frame with one update of one change.
fn decoded_value(frame: &Frame) -> Bytes {
    let ChainMessage::Updates(updates) = decode(frame).unwrap().message else { panic!("updates were encoded") };
    updates.updates[0].changes[0].value.clone().unwrap()
}

fn shares(value: &Bytes, frame: &Frame) -> bool {
    frame.body.as_ptr_range().contains(&value.as_ptr())
}

#[test]
fn values_are_not_copied_on_the_way_out() {
    let value = Bytes::from(vec![1; 100]);
    let change = KeyChange::new(Bytes::from_static(b"key"), Some(value.clone()));
    let encoded = encode(&updates(vec![update(1, smallvec![change])])).unwrap();
    assert_eq!(encoded.body[1].as_ptr(), value.as_ptr());
}

#[test]
fn large_values_are_slices_of_their_frame() {
    let large = framed(&updates(vec![update(1, smallvec![change("key", Some(&[1; COPY_BELOW]))])]));
    assert!(shares(&decoded_value(&large), &large));
}

#[test]
fn small_values_keep_no_frame_alive() {
    let small = framed(&updates(vec![update(1, smallvec![change("key", Some(&[1; COPY_BELOW - 1]))])]));
    assert!(!shares(&decoded_value(&small), &small));

    let third = change("key", Some(&[1; 2 * COPY_BELOW]));
    let three = framed(&updates(vec![update(1, smallvec![third.clone(), third.clone(), third])]));
    assert!(!shares(&decoded_value(&three), &three), "less than half of the frame");
    let ChainMessage::Updates(decoded) = decode(&three).unwrap().message else { panic!("updates were encoded") };
    assert!(decoded.updates[0].changes.iter().all(|change| !shares(&change.key, &three)));
}

#[test]
fn unknown_kinds_are_kept() {
    let mut unknown = update(1, smallvec![]);
    unknown.kind = UpdateKind(0xfe);
    let message = updates(vec![unknown]);
    assert_eq!(decode(&framed(&message)), Ok(message));
}

#[test]
fn impossible_histories_are_refused() {
    let encode = |list| match encode(&updates(list)) {
        Err(EncodeError::History(error)) => error,
        other => panic!("{other:?}"),
    };
    let sequence = |expected, found| HistoryError::Sequence { expected: Sequence(expected), found: Sequence(found) };
    assert_eq!(encode(vec![]), HistoryError::Empty);
    assert_eq!(encode(vec![update(0, smallvec![])]), sequence(1, 0));
    assert_eq!(encode(vec![update(1, smallvec![]), update(3, smallvec![])]), sequence(2, 3));
    assert_eq!(encode(vec![update(u64::MAX, smallvec![])]), sequence(u64::MAX, u64::MAX));
    let mut old = update(2, smallvec![]);
    old.version.epoch = Epoch(4);
    assert_eq!(encode(vec![update(1, smallvec![]), old]), HistoryError::Epoch { before: Epoch(5), found: Epoch(4) });
    let long = "k".repeat(MAX_KEY + 1);
    assert_eq!(encode(vec![update(1, smallvec![change(&long, None)])]), HistoryError::KeyTooLong(4097));
    let many = (1..=MAX_UPDATES as u64 + 1).map(|sequence| update(sequence, smallvec![])).collect();
    assert_eq!(encode(many), HistoryError::TooMany(65_537));
}

/// Encodes `message` with a header modified by `change`, over `body`.
fn forged(message: &ChainFrame, change: impl FnOnce(&mut UpdatesHeader), body: &'static [u8]) -> Frame {
    let mut header: Header<DecodedMessage> = codec::decode(&encode(message).unwrap().header).unwrap();
    let DecodedMessage::Updates(updates) = &mut header.message else { panic!("updates were encoded") };
    change(updates);
    let mut out = Vec::new();
    codec::encode(&header, &mut out).unwrap();
    Frame { header: out.into(), body: Bytes::from_static(body) }
}

#[test]
fn a_header_must_fit_its_updates_and_its_body() {
    let message = updates(vec![update(8, smallvec![change("ab", Some(b"cde"))]), update(9, smallvec![])]);
    let forge = |change: &dyn Fn(&mut UpdatesHeader), body| decode(&forged(&message, change, body)).unwrap_err();
    assert!(decode(&forged(&message, |_| (), b"abcde")).is_ok());

    let length = |stated, actual| DecodeError::BodyLength { stated, actual };
    assert_eq!(forge(&|_| (), b"abcd"), length(5, 4));
    assert_eq!(forge(&|_| (), b"abcdef"), length(5, 6));
    assert_eq!(
        forge(&|header| header.changes[0].value = ValueOutline::Set(u32::MAX), b"abcde"),
        length(2 + (1 << 32) - 1, 5)
    );
    assert_eq!(forge(&|header| header.changes[0].key = 4097, b"abcde"), HistoryError::KeyTooLong(4097).into());
    assert_eq!(forge(&|header| header.updates.clear(), b"abcde"), HistoryError::Empty.into());
    let counts = |counted, listed| DecodeError::Changes { counted, listed };
    assert_eq!(forge(&|header| header.updates[1].changes = 1, b"abcde"), counts(2, 1));
    assert_eq!(forge(&|header| header.updates[0].changes = u32::MAX, b"abcde"), counts(u32::MAX.into(), 1));
    let sequence = |expected, found| HistoryError::Sequence { expected: Sequence(expected), found: Sequence(found) };
    for after in [Sequence(u64::MAX - 2), Sequence(u64::MAX)] {
        let forged = forge(&|header| header.after.sequence = after, b"abcde");
        assert_eq!(forged, sequence(u64::MAX, u64::MAX).into());
    }
    let later = HistoryError::Epoch { before: Epoch(6), found: Epoch(5) };
    assert_eq!(forge(&|header| header.after.epoch = Epoch(6), b"abcde"), later.into());
    let epochs = HistoryError::Epoch { before: Epoch(5), found: Epoch(4) };
    assert_eq!(forge(&|header| header.updates[1].epoch = Epoch(4), b"abcde"), epochs.into());
}

#[test]
fn control_has_no_body() {
    let mut control = framed(&said(ChainMessage::Control(Control::default())));
    control.body = Bytes::from_static(b"x");
    assert_eq!(decode(&control), Err(DecodeError::BodyLength { stated: 0, actual: 1 }));
}

#[test]
fn a_piece_has_bytes_and_lies_within_its_update() {
    let outline = Outline::of(&update(1, smallvec![change("key", Some(b"value"))]));
    let chunk = |sequence, part, len| Chunk {
        watermark: Sequence(0),
        after: Version::NONE,
        version: Version::new(1, sequence),
        part,
        bytes: vec![0; len].into(),
    };
    let refused = |chunk| match encode(&said(ChainMessage::Chunk(chunk))) {
        Err(EncodeError::History(error)) => error,
        other => panic!("{other:?}"),
    };
    let first = || ChunkPart::First(outline.clone());
    assert!(encode(&said(ChainMessage::Chunk(chunk(1, first(), 8)))).is_ok());
    assert_eq!(refused(chunk(1, first(), 9)), HistoryError::PieceTooFar { end: 9, len: 8 });
    assert_eq!(refused(chunk(1, first(), 0)), HistoryError::PieceLength(0));
    let long = MAX_CHUNK + 1;
    assert_eq!(refused(chunk(1, ChunkPart::Behind(5), long)), HistoryError::PieceLength(long as u64));
    let sequence = HistoryError::Sequence { expected: Sequence(1), found: Sequence(0) };
    assert_eq!(refused(chunk(0, ChunkPart::Behind(5), 1)), sequence);
    let key = Lengths { key: MAX_KEY as u32 + 1, value: ValueOutline::Deleted };
    let part = ChunkPart::First(Outline { changes: vec![key], ..outline.clone() });
    assert_eq!(refused(chunk(1, part, 1)), HistoryError::KeyTooLong(4097));

    let piece = chunk(1, ChunkPart::Behind(5), 5);
    let mut empty = framed(&said(ChainMessage::Chunk(piece)));
    empty.body = Bytes::new();
    assert_eq!(decode(&empty), Err(HistoryError::PieceLength(0).into()), "nor is it decoded");
}

#[test]
fn numbers_in_a_longer_form_are_refused() {
    let mut long = framed(&said(ChainMessage::Control(Control::default())));
    // The chain id 3 in the codec's form for numbers above 250.
    long.header = [&[251, 3, 0], &long.header[1..]].concat().into();
    assert_eq!(decode(&long), Err(DecodeError::NotCanonical));
}

#[test]
fn a_frame_filled_by_cost_has_room_for_its_header() {
    let big = Version::new(u64::MAX, u64::MAX);
    let mut list = Vec::new();
    let mut cost = 0;
    for sequence in u64::MAX / 2.. {
        let update = Update {
            version: Version::new(u64::MAX, sequence),
            kind: UpdateKind(255),
            request: Some(RequestKey { session: big, number: u64::MAX, lowest: u64::MAX }),
            outcome: RequestOutcome::Conflict(big),
            chain_time: u64::MAX,
            changes: smallvec![change("", Some(&[]))],
        };
        cost += update.cost();
        if cost > MAX_HEADER {
            break;
        }
        list.push(update);
    }
    let message = updates(list);
    assert_eq!(decode(&framed(&message)), Ok(message));
    let small = updates((1..=MAX_UPDATES as u64).map(|sequence| update(sequence, smallvec![])).collect());
    assert!(encode(&small).is_ok());
}

#[test]
fn a_header_that_no_receiver_takes_is_not_sent() {
    let many = (0..MAX_HEADER / 2 + 1).map(|_| change("k", None)).collect();
    let error = encode(&updates(vec![update(1, many)])).err();
    assert!(matches!(error, Some(EncodeError::Codec(CodecError::TooLarge(_)))), "{error:?}");
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..300u64, any::<u64>(), Just(u64::MAX)]
}

fn version() -> impl Strategy<Value = Version> {
    (number(), number()).prop_map(|(epoch, sequence)| Version::new(epoch, sequence))
}

fn some_change() -> impl Strategy<Value = KeyChange> {
    let value = prop::option::of(prop_oneof![9 => 0..300usize, 1 => Just(COPY_BELOW), 1 => Just(COPY_BELOW + 1)]);
    let expires = prop::option::of(number().prop_map(Expiry::at));
    (prop::collection::vec(any::<u8>(), 0..20), value, any::<u8>(), any::<bool>(), expires).prop_map(
        |(key, value, byte, renews, expires)| match value {
            Some(len) => KeyChange::new(key.into(), Some(vec![byte; len].into())).expiring(expires),
            None if renews => KeyChange::renewal(key.into(), expires),
            None => KeyChange::new(key.into(), None),
        },
    )
}

fn some_update() -> impl Strategy<Value = Update> {
    let request = (version(), number(), number());
    let request = request.prop_map(|(session, number, lowest)| RequestKey { session, number, lowest });
    let outcome = prop_oneof![Just(RequestOutcome::Done), version().prop_map(RequestOutcome::Conflict)];
    let changes = prop::collection::vec(some_change(), 0..4);
    (any::<u8>(), prop::option::of(request), outcome, number(), changes).prop_map(
        |(kind, request, outcome, chain_time, changes)| Update {
            version: Version::NONE,
            kind: UpdateKind(kind),
            request,
            outcome,
            chain_time,
            changes: changes.into(),
        },
    )
}

fn some_updates() -> impl Strategy<Value = ChainMessage> {
    let list = prop::collection::vec((0..3u64, some_update()), 1..6);
    (number(), 1..u64::MAX - 10, number(), list).prop_map(|(watermark, first, epoch, list)| {
        let mut version = Version::new(epoch, first);
        let updates = list.into_iter().map(|(step, update)| {
            version.epoch = Epoch(version.epoch.0.saturating_add(step));
            let update = Update { version, ..update };
            version.sequence = version.sequence.next();
            update
        });
        let after = Version { sequence: Sequence(first - 1), epoch: Epoch(epoch) };
        ChainMessage::Updates(Updates { watermark: Sequence(watermark), after, updates: updates.collect() })
    })
}

fn some_control() -> impl Strategy<Value = ChainMessage> {
    let sequence = || number().prop_map(Sequence);
    let epochs = prop::collection::vec((number().prop_map(Epoch), sequence()), 0..5);
    let position = (version(), epochs).prop_map(|(last, epochs)| Position { last, epochs });
    let cut = (version(), version()).prop_map(|(said, keep)| Truncate { said, keep });
    let answer =
        || prop::option::of((number(), sequence()).prop_map(|(number, sequence)| VersionAnswer { number, sequence }));
    let marks = (sequence(), sequence(), version(), number(), number());
    let states = (prop::option::of(position), prop::option::of(cut), prop::option::of(sequence()));
    (marks, states, (any::<(bool, bool, bool)>(), snapshots::some_progress()), answer(), answer()).prop_map(
        |(marks, states, flags, answer, ordered)| {
            let (watermark, echo, acknowledged, query, barrier) = marks;
            let ((resume, cut, open), ((confirm, is_open, following), snapshot)) = (states, flags);
            let (said, known) = ((watermark, confirm, is_open), (echo, acknowledged, following));
            ChainMessage::Control(Control {
                watermark: said.0,
                confirm: said.1,
                is_open: said.2,
                echo: known.0,
                acknowledged: known.1,
                partial: answer
                    .map(|answer| Partial { version: cut.map_or(Version::NONE, |cut| cut.said), bytes: answer.number }),
                following: known.2,
                resume,
                cut,
                open,
                query,
                answer,
                barrier,
                ordered,
                snapshot,
            })
        },
    )
}

fn some_chunk() -> impl Strategy<Value = ChainMessage> {
    let bytes = prop_oneof![1..300_usize, Just(MAX_CHUNK)];
    (number(), 1..u64::MAX, bytes, prop_oneof![some_update().prop_map(Ok), number().prop_map(Err)]).prop_map(
        |(watermark, sequence, len, part)| {
            let part = part.map_or_else(ChunkPart::Behind, |mut update| {
                update.changes.push(KeyChange::new("k".into(), Some(vec![0; len].into())));
                ChunkPart::First(Outline::of(&update))
            });
            let (watermark, version, bytes) = (Sequence(watermark), Version::new(7, sequence), vec![1; len].into());
            let after = Version::new(6, sequence - 1);
            ChainMessage::Chunk(Chunk { watermark, after, version, part, bytes })
        },
    )
}

fn some_frame() -> impl Strategy<Value = ChainFrame> {
    let message = prop_oneof![some_updates(), some_control(), some_chunk(), snapshots::some_part()];
    (any::<u32>(), number(), number(), message).prop_map(|(chain, epoch, index, message)| ChainFrame {
        chain: ChainId(chain),
        epoch: Epoch(epoch),
        index,
        message,
    })
}

/// Checks that a message that decodes encodes to the same frame.
fn check(received: &Frame) -> Result<(), TestCaseError> {
    if let Ok(message) = decode(received) {
        prop_assert_eq!(&framed(&message), received, "{:?}", message);
    }
    Ok(())
}

proptest! {
    #[test]
    fn messages_survive_encoding(message in some_frame()) {
        prop_assert_eq!(decode(&framed(&message)), Ok(message));
    }

    #[test]
    fn a_changed_byte_is_refused_or_means_itself(message in some_frame(), at: prop::sample::Index, to: u8) {
        let mut changed = framed(&message);
        let mut bytes = [&changed.header[..], &changed.body].concat();
        *at.get_mut(&mut bytes) = to;
        changed.body = bytes.split_off(changed.header.len()).into();
        changed.header = bytes.into();
        check(&changed)?;
    }

    #[test]
    fn any_bytes_are_refused_or_mean_themselves(header: Vec<u8>, body: Vec<u8>) {
        check(&Frame { header: header.into(), body: body.into() })?;
    }

    #[test]
    fn a_cut_frame_is_refused(message in some_frame(), at: prop::sample::Index) {
        let whole = framed(&message);
        let header = whole.header.slice(..at.index(whole.header.len()));
        let cut = Frame { header, body: whole.body.clone() };
        prop_assert!(decode(&cut).is_err());
        // A piece of an update may have any length, so a shorter body is valid.
        let is_piece = match &message.message {
            ChainMessage::Chunk(_) => true,
            ChainMessage::Snapshot(part) => matches!(part.content, SnapshotContent::Piece(_)),
            _ => false,
        };
        if !whole.body.is_empty() && !is_piece {
            let body = whole.body.slice(..at.index(whole.body.len()));
            let cut = Frame { header: whole.header, body };
            prop_assert!(decode(&cut).is_err());
        }
    }
}
