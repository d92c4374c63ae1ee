//! Backups: copies of a chain while it is written, as files.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use proptest::prelude::*;

use super::{super::*, rig::*};
use crate::{
    ClusterId,
    api::*,
    backup::*,
    control::History,
    guards::{Guards, Mutant},
    store::ScanRecord,
};

const HASH: HashKey = HashKey([3; 16]);
const CHAIN: ChainId = ChainId(0);
const SALT: u128 = 0x1234_5678_9abc_def0_1234_5678_9abc_def0;
const CLUSTER: ClusterId = ClusterId(7);

/// The records at each sequence.
type States = BTreeMap<u64, Vec<ScanRecord>>;

fn history() -> History {
    History { generation: 0, id: 7 }
}

/// Answers the next query of a copy at member `n`. Returns `None` once the copy is complete.
fn step(rig: &mut Rig, n: u8, copy: &mut ChainCopy) -> Option<Vec<crate::message::ChainMessage>> {
    let (query, mode) = (copy.next()?, copy.mode());
    let token = rig.ask(n, query, mode, None);
    rig.settle();
    match &rig.replies[&token] {
        Reply::Copied(reply) => Some(copy.answer(CopyReply::clone(reply)).expect("a part that follows")),
        Reply::Refused(Refusal::Compacted { .. }) => {
            *copy = ChainCopy::new(Guards::ALL);
            Some(Vec::new())
        }
        other => panic!("{other:?} is no part of a copy"),
    }
}

/// Copies the chain, with a call of `meanwhile` between two parts. Returns the file.
fn backup(rig: &mut Rig, members: &[u8], meanwhile: impl FnMut(&mut Rig, usize)) -> Vec<u8> {
    backup_by(ChainCopy::new(Guards::ALL), rig, members, meanwhile)
}

fn backup_by(
    mut copy: ChainCopy,
    rig: &mut Rig,
    members: &[u8],
    mut meanwhile: impl FnMut(&mut Rig, usize),
) -> Vec<u8> {
    let (mut writer, mut file) = BackupWriter::new(SALT);
    for turn in 0.. {
        let Some(messages) = step(rig, members[turn % members.len()], &mut copy) else { break };
        for message in messages {
            file.extend(writer.message(CHAIN, message).unwrap().unwrap_or_default());
        }
        assert!(turn < 10_000, "the copy doesn't end");
        meanwhile(rig, turn);
    }
    file.extend(writer.end_chain(CHAIN, copy.at()).unwrap().unwrap_or_default());
    file.extend(writer.finish(CLUSTER, history()).unwrap());
    file
}

fn read(file: &[u8], piece: usize) -> Result<BackupReport, BackupError> {
    let (mut reader, mut load) = (BackupReader::default(), BackupLoad::new(1));
    for bytes in file.chunks(piece) {
        reader.push(bytes);
        while let Some(entries) = reader.next_group()? {
            load.add(entries)?;
        }
    }
    load.finish(reader.finish()?, HASH)
}

fn records(backup: &ChainBackup) -> Vec<ScanRecord> {
    backup.store.scan(CHAIN, b"", Sequence::MAX).map(Result::unwrap).collect()
}

fn values(records: Vec<ScanRecord>) -> Vec<ScanRecord> {
    records.into_iter().filter(|record| record.held.value.is_some()).collect()
}

fn key(n: u64) -> Bytes {
    Bytes::from(format!("k/{:02}", n % 17))
}

/// A write of any kind to one of a few keys.
fn write(rig: &mut Rig, n: u64) {
    let value = |len: u64| Bytes::from(vec![n as u8; len as usize]);
    let ttl = Ttl::Set(5_000 + n);
    rig.write(
        1,
        match n % 7 {
            0 => Write::Delete { key: key(n / 7) },
            1 => Write::Expire { key: key(n / 7), ttl: Some(100_000 + n), when: None },
            2 => Write::Put { key: key(n / 7), value: value(9), ttl },
            3 => Write::append(key(n / 7), value(3)),
            4 => Write::Batch(vec![Step::put(key(n), value(4)), Step::Delete { key: key(n / 3) }]),
            5 => Write::Expire { key: key(n / 7), ttl: None, when: None },
            _ => Write::put(key(n / 7), value(n % 900)),
        },
    );
    rig.settle();
    rig.beat(1);
}

fn note(rig: &Rig, states: &mut States) {
    states.insert(rig.watermark(1), values(rig.contents(1)));
}

fn small_answers() -> ReplicaSettings {
    ReplicaSettings { answer: 600, ..without(None) }
}

#[test]
fn a_backup_shows_one_point_although_writes_continue() {
    for seed in 0..40_u64 {
        let mut rig = Rig::open(&[1, 2, 3], &small_answers());
        let mut states = States::new();
        for n in 0..60 {
            write(&mut rig, n * 7 + 6);
            write(&mut rig, n.wrapping_mul(seed + 31) >> 1);
            note(&rig, &mut states);
        }
        let members: &[u8] = [&[2][..], &[3, 2, 1], &[1]][seed as usize % 3];
        let mut n = seed;
        let file = backup(&mut rig, members, |rig, _| {
            for _ in 0..n % 4 {
                write(rig, n.wrapping_mul(0x9E37_79B9) >> 7);
                n += 1;
                note(rig, &mut states);
            }
            n += 1;
        });
        let report = read(&file, 1 + seed as usize * 100).unwrap();
        let [chain] = &report.chains[..] else { panic!("{report:?}") };
        assert_eq!(records(chain), states[&chain.at.0], "seed {seed}");
        assert_eq!((report.end.cluster, report.end.history), (CLUSTER, history()));
        let mut sums = Sums::default();
        states[&chain.at.0].iter().for_each(|record| sums.add_record(HASH, &record.key, &record.held));
        assert_eq!(chain.sums, sums);
    }
}

/// The backlog keeps so little that a copy falls behind, and begins again.
#[test]
fn a_backup_that_fell_behind_begins_again() {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { backlog: 2000, ..small_answers() });
    for n in 0..200 {
        write(&mut rig, n * 7 + 6);
    }
    let mut begun = 0;
    let file = backup(&mut rig, &[2], |rig, turn| {
        if turn == 3 {
            (0..200).for_each(|n| write(rig, n * 7 + 6));
            begun += 1;
        }
    });
    let report = read(&file, 4096).unwrap();
    assert_eq!((records(&report.chains[0]), begun), (values(rig.contents(1)), 1));
}

fn file() -> Vec<u8> {
    let mut rig = Rig::open(&[1, 2], &small_answers());
    (0..80).for_each(|n| write(&mut rig, n * 7 + 6));
    backup(&mut rig, &[2], |rig, turn| write(rig, turn as u64 * 5))
}

#[test]
fn damaged_backups_are_refused() {
    let file = file();
    assert!(read(&file, 1000).is_ok());
    for place in (0..file.len() * 8).step_by(file.len() * 8 / 4000) {
        let mut damaged = file.clone();
        damaged[place / 8] ^= 1 << (place % 8);
        assert!(read(&damaged, 1 << 20).is_err(), "bit {place} of {}", file.len() * 8);
    }
    for len in (0..file.len()).step_by(file.len() / 400) {
        let error = read(&file[..len], 1 << 20).unwrap_err();
        assert!(matches!(error, BackupError::Cut(_) | BackupError::NotABackup), "{len} bytes: {error}");
    }
    let doubled = [&file[..], &[0; 4096]].concat();
    assert_eq!(read(&doubled, 1 << 20), Err(BackupError::Trailing(file.len() as u64)));
    // Groups in another order.
    let mut swapped = file.clone();
    swapped[4096..12288].rotate_left(4096);
    assert!(read(&swapped, 1 << 20).is_err());
}

#[test]
fn a_file_that_ends_before_its_point_is_refused() {
    let mut rig = Rig::open(&[1, 2], &small_answers());
    (0..80).for_each(|n| write(&mut rig, n * 7 + 6));
    let early = ChainCopy::new(Guards::without(Mutant::EndEarly));
    let file = backup_by(early, &mut rig, &[2], |rig, turn| write(rig, turn as u64 * 5));
    assert!(matches!(read(&file, 4096), Err(BackupError::Restore { .. })));
}

/// All keys after the last part are deleted before the end is asked for.
#[test]
fn the_end_of_a_copy_shows_that_keys_are_absent() {
    let mut rig = Rig::open(&[1, 2], &small_answers());
    let mut states = States::new();
    for key in ["a", "z"] {
        rig.write(1, Write::put(key.into(), vec![7; 500].into()));
        rig.beat(1);
        note(&rig, &mut states);
    }
    let file = backup(&mut rig, &[2], |rig, turn| {
        if turn == 1 {
            rig.write(1, Write::Delete { key: "z".into() });
            rig.beat(1);
            note(rig, &mut states);
        }
    });
    let report = read(&file, 4096).unwrap();
    let chain = &report.chains[0];
    assert_eq!(records(chain), states[&chain.at.0], "at {:?}", chain.at);
}

/// Many deleted keys, which a pin keeps, use several steps.
#[test]
fn a_copy_visits_few_keys_at_once() {
    let mut rig = Rig::chain(&[1, 2]);
    let scan = ScanQuery { prefix: Bytes::new(), after: None, limit: 1, snapshot: Snapshot::Begin };
    rig.commit(1, "a", "x");
    rig.commit(1, "z", "x");
    rig.beat(1);
    rig.ask(2, Query::Scan(scan), ReadMode::Eventual, None);
    for n in 0..9 {
        let key = |at: u32| Bytes::from(format!("k/{n}/{at}"));
        rig.write(1, Write::Batch((0..4000).map(|at| Step::put(key(at), Bytes::new())).collect()));
        rig.write(1, Write::Batch((0..4000).map(|at| Step::Delete { key: key(at) }).collect()));
        rig.beat(1);
    }
    let mut steps = 0;
    let file = backup(&mut rig, &[2], |_, _| steps += 1);
    assert_eq!(records(&read(&file, 1 << 20).unwrap().chains[0]), values(rig.contents(1)));
    assert!((4..9).contains(&steps), "{steps} steps");
}

#[test]
fn a_member_without_the_next_update_lets_a_copy_wait() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.commit(1, "a", "x");
    rig.beat(1);
    let after = Sequence(rig.watermark(2));
    let token = rig.ask(2, Query::Copy(CopyStep::Updates { after }), ReadMode::Eventual, None);
    assert!(!rig.replies.contains_key(&token));
    rig.commit(1, "a", "y");
    rig.beat(1);
    assert!(matches!(rig.replies[&token], Reply::Copied(_)));
}

/// The member learns by a version query that a write is committed, before its watermark reaches that write.
#[test]
fn a_backup_has_every_write_that_was_acknowledged_before() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.commit(1, "a", "old");
    rig.beat(1);
    let put = rig.put(1, "a", "new");
    rig.run(1, 2);
    rig.run(2, 3);
    rig.run(3, 1);
    let acknowledged = rig.committed(put).sequence;
    assert!(rig.watermark(2) < acknowledged.0);
    let (mut copy, token) =
        (ChainCopy::new(Guards::ALL), rig.ask(2, Query::Copy(CopyStep::Begin), ReadMode::Strong, None));
    rig.run(2, 3);
    rig.run(3, 2);
    let Reply::Copied(begun) = rig.replies[&token].clone() else { panic!("{:?}", rig.replies[&token]) };
    assert!(begun.watermark >= acknowledged, "the copy could end before");
    copy.answer(*begun).unwrap();
    while step(&mut rig, 2, &mut copy).is_some() {}
    assert!(copy.at() >= acknowledged);
}

#[test]
fn a_member_that_is_behind_waits_for_the_beginning() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.commit(1, "a", "old");
    rig.beat(1);
    let floor = Sequence(rig.watermark(1) + 1);
    let token = rig.ask(2, Query::Copy(CopyStep::Records { behind: None, floor }), ReadMode::Eventual, None);
    assert!(!rig.replies.contains_key(&token));
    rig.commit(1, "a", "new");
    rig.beat(1);
    let Reply::Copied(reply) = &rig.replies[&token] else { panic!() };
    assert_eq!(reply.watermark, floor);
    rig.now = rig.now + Duration::from_secs(1);
}

proptest! {
    #[test]
    fn no_bytes_stop_a_reader(bytes in prop::collection::vec(any::<u8>(), 0..6000), valid in any::<bool>()) {
        let mut file = if valid { BackupWriter::new(SALT).1 } else { Vec::new() };
        file.extend(bytes);
        prop_assert!(read(&file, 777).is_err());
    }
}
