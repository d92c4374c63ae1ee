//! Checkpoints, and the batches in which they are written.

use super::{super::*, rig::*};
use crate::{
    api::Write,
    journal::JournalEntry,
    message::{ChainMessage, SnapshotContent},
};

fn durable() -> ReplicaSettings {
    ReplicaSettings { durable: true, ..ReplicaSettings::default() }
}

/// The contents of the snapshot parts in a journal since the last beginning of a checkpoint.
fn checkpoint(rig: &Rig, n: u8) -> Vec<SnapshotContent> {
    let mut parts = Vec::new();
    for entry in &rig.journals[&n] {
        let JournalEntry::Sent(frame) = entry else { continue };
        let ChainMessage::Snapshot(part) = &frame.message else { continue };
        if matches!(part.content, SnapshotContent::Begin(_)) {
            parts.clear();
        }
        parts.push(part.content.clone());
    }
    parts
}

#[test]
fn a_checkpoint_has_sessions_records_and_large_values() {
    let settings = ReplicaSettings { chunk: 100, ..durable() };
    let mut rig = Rig::open(&[1, 2], &settings);
    rig.session(1);
    rig.commit(1, "a", "small");
    let large = bytes::Bytes::from(vec![7; 250]);
    rig.write(1, Write::put("b".into(), large.clone()));
    rig.commit(1, "c", "small");
    rig.replicas.get_mut(&2).unwrap().begin_checkpoint();
    rig.settle();
    let parts = checkpoint(&rig, 2);
    assert_eq!(parts.last(), Some(&SnapshotContent::End));
    let sessions = parts.iter().filter(|part| matches!(part, SnapshotContent::Sessions(_))).count();
    let pieces: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            SnapshotContent::Piece(piece) => Some(piece.bytes.clone()),
            _ => None,
        })
        .collect();
    let keys: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            SnapshotContent::Records(records) => Some(records.iter().map(|record| record.key.clone())),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!((sessions, pieces.concat(), keys), (1, large.to_vec(), vec!["a".into(), "c".into()]));
}

#[test]
fn pending_updates_stand_behind_the_beginning_of_a_checkpoint() {
    let mut rig = Rig::chain_of_durable(&[1, 2]);
    rig.commit(1, "k", "1");
    rig.disk(2, false);
    rig.put(1, "k", "2");
    rig.settle();
    rig.replicas.get_mut(&1).unwrap().begin_checkpoint();
    rig.put(1, "k", "3");
    rig.settle();
    let begun = |entry: &JournalEntry| match entry {
        JournalEntry::Sent(frame) => {
            matches!(&frame.message, ChainMessage::Snapshot(part) if matches!(part.content, SnapshotContent::Begin(_)))
        }
        _ => false,
    };
    let journal = &rig.journals[&1];
    let begin = journal.iter().rposition(begun).unwrap();
    let versions: Vec<_> = journal[begin..]
        .iter()
        .filter_map(|entry| match entry {
            JournalEntry::Sent(frame) => Some(&frame.message),
            _ => None,
        })
        .filter_map(|message| match message {
            ChainMessage::Updates(updates) => Some(updates.updates.iter().map(|update| update.version.sequence.0)),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(versions, [2, 3]);
}

#[test]
fn a_batch_has_about_as_many_bytes_as_there_is_room() {
    let mut rig = Rig::chain_of_durable(&[1, 2]);
    for round in 0..2 {
        for n in 0..200 {
            rig.write(1, Write::put(format!("k{n}").into(), vec![7; 1000].into()));
        }
        if round == 0 {
            rig.settle();
        }
    }
    let replica = rig.replicas.get_mut(&1).unwrap();
    replica.begin_checkpoint();
    let batches: Vec<_> = std::iter::from_fn(|| replica.poll_journal(1000)).collect();
    let bytes = batches.iter().map(|batch| crate::journal::encode_entries(&batch.entries).unwrap().len());
    let most = bytes.max().unwrap();
    assert!(most < 5000 && batches.len() > 300, "{most} bytes in one of {}", batches.len());
}

/// Updates use up the space that the checkpoint needs to complete, and nothing else frees it.
#[test]
fn on_a_full_disk_a_checkpoint_has_most_of_each_batch() {
    let settings = ReplicaSettings { chunk: 1000, ..durable() };
    let mut rig = Rig::open(&[1], &settings);
    for number in 0..400 {
        rig.write(1, Write::put(format!("{number:03}").into(), vec![1; 900].into()));
    }
    rig.settle();
    rig.unwritten.insert(1);
    rig.replicas.get_mut(&1).unwrap().begin_checkpoint();
    let mut written = 0;
    while rig.replicas[&1].log.journal().unwrap().checkpoint().is_some() {
        for _ in 0..2 {
            rig.write(1, Write::put("other".into(), vec![2; 60_000].into()));
        }
        let replica = rig.replicas.get_mut(&1).unwrap();
        replica.set_disk_full(true);
        written += replica.poll_journal(1 << 20).map_or(0, |batch| batch.bytes);
        replica.set_disk_full(false);
    }
    assert!(written < 8 << 20, "{written} bytes were written during 400 parts");
}
