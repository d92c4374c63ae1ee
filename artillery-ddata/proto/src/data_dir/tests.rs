//! A node of a few chains, alone in each, over a disk that loses unsynced bytes in a power cut.

mod check;
mod flips;
mod full;
mod release;
mod rig;
mod sizes;
mod small;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use self::rig::{CHAINS, NODE, Received, Run, Start, ended, memory, run, settings, take};
use super::*;
use crate::{
    ClusterId, Sequence, Timestamp,
    api::{Reply, Write},
    control::log::LogIndex,
    disk::{Disk, simulated::SimulatedDisk},
    fixtures,
    guards::{Guards, Mutant},
    journal::{JournalError, ReadBytes, SyncMode},
    runner::{ReadRequest, RunnerOutput},
};

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

/// A start with a journal whose newest file is lost.
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

/// Whether a store that was once started without syncing is treated as synced.
fn is_synced_after_never(guards: Guards) -> bool {
    let mut run = ended(SyncMode::Never, guards);
    run.mode = SyncMode::Batch;
    run.open().unwrap();
    run.disk.restart();
    let disk: Arc<dyn Disk> = Arc::new(run.disk.clone());
    let found = FoundStore::check(disk, settings(SyncMode::Batch, guards), 1).unwrap();
    found.open(&memory(), 2).unwrap().holding(ChainId(0)).synced
}

#[test]
fn a_store_that_was_not_synced_once_stays_weak() {
    assert!(!is_synced_after_never(Guards::ALL));
}

#[test]
fn a_store_that_forgets_that_it_was_weak_counts_as_synced() {
    assert!(is_synced_after_never(Guards::without(Mutant::ForgetWeak)));
}

/// Tasks that hold leases read the control file, and a disk may take seconds.
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

/// A node was recovered while it was still writing configurations of the earlier history.
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

/// An operator may have abandoned the data of a store while its node was down.
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
    let store = memory();
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
