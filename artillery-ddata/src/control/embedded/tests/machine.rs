//! Which entries take a place, and what snapshots hold.

use std::{future::Future, sync::Arc};

use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftSnapshotBuilder, storage::RaftStateMachine};

use super::{
    super::{
        machine::{AppliedConfigs, Machine},
        types::{EntryOutcome, LogProposal, RaftId, TypeConfig},
    },
    network::founding,
};
use crate::control::log::{ConfigChange, ConfigLogError, LogIndex};

fn entry(index: u64, term: u64, proposed_in: u64, at: u64) -> Entry<TypeConfig> {
    let change = ConfigChange::Nodes { add: vec![], remove: vec![] };
    let log_id = LogId::new(CommittedLeaderId::new(term, RaftId::default()), index);
    Entry { log_id, payload: EntryPayload::Normal(LogProposal { term: proposed_in, at: LogIndex(at), change }) }
}

fn machine(window: usize) -> Machine {
    Machine(Arc::new(AppliedConfigs::new(&founding(3), window)))
}

#[tokio::test]
async fn a_change_counts_at_the_next_place_and_in_its_term() {
    let mut machine = machine(8);
    let entries = [entry(1, 1, 1, 2), entry(2, 1, 1, 2), entry(3, 1, 1, 4), entry(4, 2, 1, 3), entry(5, 2, 2, 3)];
    let outcomes = machine.apply(entries).await.unwrap();
    let taken = EntryOutcome::Taken(LogIndex(2));
    assert_eq!(outcomes, [EntryOutcome::Placed, taken, taken, EntryOutcome::WrongTerm, EntryOutcome::Placed]);
    assert_eq!(machine.0.configs().applied(), LogIndex(3));
    assert_eq!(machine.0.progress().last, LogIndex(3));
    assert_eq!(machine.0.progress().raft.map(|last| last.index), Some(5));
}

#[tokio::test]
async fn a_snapshot_holds_what_was_applied_and_the_window() {
    let (mut from, mut to) = (machine(3), machine(3));
    from.apply((1..9).map(|index| entry(index, 1, 1, index + 1))).await.unwrap();
    let snapshot = from.build_snapshot().await.unwrap();
    to.install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
    assert_eq!(to.0.configs(), from.0.configs());
    assert_eq!(to.applied_state().await.unwrap(), from.applied_state().await.unwrap());
    for machine in [&from, &to] {
        assert_eq!(machine.0.entry(LogIndex(6)), Err(ConfigLogError::Compacted { first: LogIndex(7) }));
        assert_eq!(machine.0.entry(LogIndex(7)).unwrap().map(|entry| entry.index), Some(LogIndex(7)));
        assert_eq!(machine.0.entry(LogIndex(10)), Ok(None));
    }
}

#[tokio::test]
async fn a_damaged_snapshot_is_refused_and_changes_nothing() {
    let (mut from, mut to) = (machine(3), machine(3));
    from.apply((1..9).map(|index| entry(index, 1, 1, index + 1))).await.unwrap();
    let mut snapshot = from.build_snapshot().await.unwrap();
    snapshot.snapshot.get_mut().pop();
    assert!(to.install_snapshot(&snapshot.meta, snapshot.snapshot).await.is_err());
    assert_eq!(to.0.configs().applied(), LogIndex(1));
}

/// A snapshot that was begun before a newer one arrived from the leader ends after it.
#[tokio::test]
async fn an_older_snapshot_does_not_replace_an_installed_one() {
    use artillery_proto::{
        data_dir::{ControlFile, ControlRecord, WrittenRecord},
        disk::simulated::{CutSettings, SimulatedDisk},
        guards::Guards,
    };

    use super::super::kept::KeptLog;
    let disk = SimulatedDisk::new(1, 1 << 30, CutSettings { tears_sectors: false, leaves_garbage: false });
    let record = ControlRecord::new(super::network::node(0), 1);
    let control = ControlFile::begin(Arc::new(disk.clone()), WrittenRecord { number: 0, record }, Guards::ALL).unwrap();
    let kept = KeptLog::open(control).unwrap();
    let mut machine = Machine(Arc::new(AppliedConfigs::of_disk(&founding(3), 5, kept).unwrap()));
    machine.apply([entry(1, 1, 1, 2)]).await.unwrap();
    let mut builder = machine.get_snapshot_builder().await;
    let mut build = Box::pin(builder.build_snapshot());
    // The other thread may be done already: then there is nothing to wait for.
    let begun = std::future::poll_fn(|cx| std::task::Poll::Ready(build.as_mut().poll(cx))).await;
    let mut source = super::machine::machine(5);
    source.apply([entry(1, 1, 1, 2), entry(2, 1, 1, 3), entry(3, 1, 1, 4)]).await.unwrap();
    let newer = source.build_snapshot().await.unwrap();
    machine.install_snapshot(&newer.meta, newer.snapshot).await.unwrap();
    match begun {
        std::task::Poll::Ready(built) => drop(built.unwrap()),
        std::task::Poll::Pending => drop(build.await.unwrap()),
    }
    let present = machine.get_current_snapshot().await.unwrap().unwrap();
    assert_eq!(present.meta.last_log_id, newer.meta.last_log_id, "the log before it is purged");
}
