//! Each start finds a prefix of the written groups, with all synced ones.

mod damage;
mod run;

use self::run::{Run, run};
use super::*;
use crate::{
    ChainId, Epoch, Sequence, Version,
    disk::simulated::{CutSettings, SimulatedDisk},
    fixtures,
    guards::Mutant,
    message::{ChainFrame, ChainMessage, SnapshotContent, SnapshotCursor, SnapshotPart, Updates},
    types::update::KeyChange,
};

const HARSH: CutSettings = CutSettings { tears_sectors: true, leaves_garbage: true };
const STORE: u128 = 7;
/// The header, and three groups of one block each.
const SEGMENT: u64 = 16 << 10;
const CHAIN: ChainId = ChainId(3);

fn settings(guards: Guards) -> JournalSettings {
    JournalSettings { store: STORE, segment_bytes: SEGMENT, mode: SyncMode::Batch, guards }
}

fn harsh(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed, 1 << 30, HARSH)
}

fn entry(number: u64, len: usize) -> JournalEntry {
    JournalEntry::Taken { chain: CHAIN, version: Version::new(1, number), value: vec![number as u8; len].into() }
}

/// Opens the journal. Returns it with all its entries.
fn opened(
    disk: &SimulatedDisk,
    start: u64,
    guards: Guards,
) -> Result<(Journal, Vec<(GroupNumber, JournalEntry)>), JournalError> {
    opened_with(disk, start, guards, || {})
}

/// Like [`opened`], with a change between the check and the rest.
fn opened_with(
    disk: &SimulatedDisk,
    start: u64,
    guards: Guards,
    between: impl FnOnce(),
) -> Result<(Journal, Vec<(GroupNumber, JournalEntry)>), JournalError> {
    let mut entries = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let found = FoundJournal::check(disk, settings(guards), |place, entry, _| entries.push((place.group, entry)))?;
    between();
    let mut again = Vec::new();
    if !allows!(guards, ReadOnce) {
        found.replay(GroupNumber(0), |place, entry, _| again.push((place.group, entry)))?;
        assert_eq!(entries, again, "a replay shows the same as the check");
    }
    Ok((found.open(start, u128::from(start) << 64)?, entries))
}

/// The first seed that reveals a missing guard reports one of these errors.
fn assert_caught(mutant: Mutant, errors: &[&str]) {
    let shows = |seed| Some(format!("seed {seed}: {}", run(seed, Guards::without(mutant)).err()?));
    let why = (0..2000).find_map(shows).expect("a seed that shows it");
    assert!(errors.iter().any(|error| why.contains(error)), "{why}");
}

#[test]
fn nothing_synced_is_lost_and_nothing_comes_back() {
    let run = |seed| run(seed, Guards::ALL).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let lossy: u64 = (0..400).map(run).sum();
    assert!(lossy > 400, "only {lossy} power cuts lost something");
}

#[test]
fn the_power_goes_at_each_write_and_sync_in_turn() {
    for operations in 0.. {
        let mut run = Run::new(77, Guards::ALL);
        run.fails = false;
        run.disk.cut_power_after(operations);
        run.session(1, 200).unwrap_or_else(|why| panic!("operation {operations}: {why}"));
        if !run.disk.is_off() {
            assert!(operations > 300, "only {operations} writes and syncs");
            break;
        }
        run.disk.restart();
        run.session(2, 10).unwrap_or_else(|why| panic!("operation {operations}: {why}"));
    }
}

#[test]
fn a_sync_that_is_tried_again_loses_what_it_claims() {
    assert_caught(Mutant::SyncAgain, &["were synced", "is damaged"]);
}

#[test]
fn what_is_counted_unproven_is_lost() {
    assert_caught(Mutant::CountUnproven, &["were synced", "is damaged"]);
}

#[test]
fn a_segment_whose_name_was_not_synced_vanishes() {
    assert_caught(Mutant::TrustName, &["missing"]);
}

#[test]
fn a_group_in_the_sector_of_a_synced_one_tears_it() {
    assert_caught(Mutant::FillLittle, &["were synced", "is damaged"]);
}

#[test]
fn a_claim_that_was_not_synced_makes_a_torn_end_damage() {
    assert_caught(Mutant::ClaimUnsynced, &["is damaged"]);
}

#[test]
fn a_segment_used_before_the_last_one_is_durable_leaves_a_gap() {
    assert_caught(Mutant::NextTooSoon, &["is damaged"]);
}

#[test]
fn a_segment_named_before_it_is_durable_has_no_beginning() {
    assert_caught(Mutant::NameTooSoon, &["its header is not whole"]);
}

#[test]
fn the_same_seed_leaves_the_same_journal() {
    let written = |seed| {
        let mut run = Run::new(seed, Guards::ALL);
        (1..6).try_for_each(|start| run.start(start)).expect("a run without a fault");
        (run.written, run.disk.counts())
    };
    assert_eq!(written(5), written(5));
}

#[test]
fn what_is_refused_for_lack_of_room_comes_back() {
    assert_caught(Mutant::CountRefused, &["found", "is damaged"]);
}

#[test]
fn what_is_read_once_is_lost_when_the_kernel_forgets_it() {
    assert_caught(Mutant::ReadOnce, &["were synced", "is damaged"]);
}

#[test]
fn a_full_disk_takes_nothing_and_goes_on_when_there_is_room() {
    let disk = harsh(1);
    let (mut journal, _) = opened(&disk, 1, Guards::ALL).unwrap();
    journal.append(&[entry(1, 10)]).unwrap();
    journal.sync().unwrap();
    disk.set_room(2 * 4096 + 100);
    for _ in 0..3 {
        assert_eq!(journal.append(&[entry(2, 10)]), Err(JournalError::Full));
    }
    disk.set_room(1 << 20);
    assert_eq!(journal.append(&[entry(3, 10)]), Ok(GroupNumber(1)));
    journal.sync().unwrap();
    disk.cut_power();
    let (_, found) = opened(&disk, 2, Guards::ALL).unwrap();
    assert_eq!(found, [(GroupNumber(0), entry(1, 10)), (GroupNumber(1), entry(3, 10))]);
}

#[test]
fn a_segment_that_finds_no_room_leaves_the_present_one_in_use() {
    let disk = harsh(1);
    let (mut journal, _) = opened(&disk, 1, Guards::ALL).unwrap();
    let fill = |journal: &mut Journal| (1..).find(|&number| journal.append(&[entry(number, 3000)]).is_err());
    disk.set_room(4096 + SEGMENT);
    let filled = fill(&mut journal).expect("a full disk");
    disk.set_room(1 << 20);
    assert_eq!(journal.append(&[entry(filled, 3000)]), Ok(GroupNumber(filled - 1)));
    journal.sync().unwrap();
    disk.cut_power();
    let (_, found) = opened(&disk, 2, Guards::ALL).unwrap();
    assert_eq!(found.len() as u64, filled);
}

#[test]
fn a_start_without_writes_leaves_no_file_behind() {
    let disk = harsh(1);
    let (mut journal, _) = opened(&disk, 1, Guards::ALL).unwrap();
    journal.append(&[entry(1, 10)]).unwrap();
    journal.sync().unwrap();
    for start in 2..20 {
        opened(&disk, start, Guards::ALL).unwrap();
    }
    assert!(disk.names().unwrap().len() <= 2, "{:?}", disk.names());
}

/// Removing a large file delays the next group.
#[test]
fn files_of_freed_segments_go_one_after_the_other() {
    let disk = harsh(1);
    let (mut journal, _) = opened(&disk, 1, Guards::ALL).unwrap();
    while journal.segments.len() < 5 {
        journal.append(&[entry(1, 5000)]).unwrap();
    }
    let there = || segment::numbers(&disk).unwrap();
    let before = there();
    journal.release(journal.next()).unwrap();
    assert_eq!(there()[..before.len()], before, "no file is removed yet");
    for gone in 1..=2 {
        journal.remove_freed(1).unwrap();
        assert_eq!(there()[..before.len() - gone], before[gone..], "the oldest is removed first");
    }
    disk.restart();
    let found = opened(&disk, 2, Guards::ALL).unwrap().1;
    assert_eq!(found.iter().map(|(group, _)| *group).collect::<Vec<_>>(), [GroupNumber(4)], "a start ignores the rest");
    assert_eq!(there()[0], before[before.len() - 1], "and removes it");
}

#[test]
fn a_start_finds_the_room_of_freed_segments() {
    let disk = harsh(1);
    let (mut journal, _) = opened(&disk, 1, Guards::ALL).unwrap();
    while journal.segments.len() < 5 {
        journal.append(&[entry(1, 5000)]).unwrap();
    }
    journal.release(journal.next()).unwrap();
    journal.sync().unwrap();
    let used: u64 = disk.names().unwrap().iter().map(|name| disk.open(name).unwrap().length().unwrap()).sum();
    disk.set_room(used);
    disk.restart();
    assert!(opened(&disk, 2, Guards::ALL).is_ok(), "the disk is full of invalid files");
}

#[test]
fn a_group_larger_than_a_segment_is_one_group() {
    let disk = harsh(1);
    let (mut journal, _) = opened(&disk, 1, Guards::ALL).unwrap();
    let large = [entry(1, 10), entry(2, 100_000), entry(3, 10)];
    for entry in &large {
        journal.append([entry]).unwrap();
    }
    journal.sync().unwrap();
    disk.cut_power();
    let (_, found) = opened(&disk, 2, Guards::ALL).unwrap();
    assert_eq!(found.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>(), large);
}

#[test]
fn entries_of_each_kind_are_read_as_they_were_written() {
    let update = fixtures::update(Version::new(2, 9), [KeyChange::new("k".into(), Some("v".into()))]);
    let updates = Updates { watermark: Sequence(8), after: Version::new(1, 8), updates: vec![update] };
    let at = SnapshotCursor::default();
    let end = SnapshotPart { id: 1, at, watermark: Sequence(9), content: SnapshotContent::End };
    let frames = [ChainMessage::Updates(updates), ChainMessage::Snapshot(end)];
    let frames = frames.map(|message| ChainFrame { chain: CHAIN, epoch: Epoch(0), index: 0, message });
    let cut = JournalEntry::Cut { chain: CHAIN, keep: Version::new(2, 9) };
    let watermark = JournalEntry::Watermark { chain: CHAIN, watermark: Sequence(8) };
    let others = [JournalEntry::NotWhole { chain: CHAIN }, cut, watermark, entry(1, 0)];
    let written: Vec<_> = frames.into_iter().map(|frame| JournalEntry::Sent(Box::new(frame))).chain(others).collect();
    let disk = harsh(1);
    let (mut journal, _) = opened(&disk, 1, Guards::ALL).unwrap();
    journal.append(&written).unwrap();
    journal.sync().unwrap();
    let (_, found) = opened(&disk, 2, Guards::ALL).unwrap();
    assert_eq!(found.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>(), written);
}
