//! openraft's own suite for log storage, against a log on a disk.

use openraft::{
    Vote,
    storage::RaftLogStorage,
    testing::{StoreBuilder, Suite},
};

use artillery_proto::{
    data_dir::{ControlFile, ControlRecord, WrittenRecord},
    disk::simulated::{CutSettings, SimulatedDisk},
    guards::{Guards, Mutant},
};
use std::sync::Arc;

use super::{
    super::{
        kept::KeptLog,
        machine::{AppliedConfigs, Machine},
        store::LogStore,
        types::{RaftId, StorageError, TypeConfig},
    },
    network::{founding, node},
};
use crate::{Incarnation, MemberId};

impl From<u64> for RaftId {
    fn from(n: u64) -> Self {
        Self(MemberId { node: node(n as usize), incarnation: Incarnation { store: 1, starts: 1 } })
    }
}

struct OnDisk;

impl StoreBuilder<TypeConfig, LogStore, Machine, SimulatedDisk> for OnDisk {
    async fn build(&self) -> Result<(SimulatedDisk, LogStore, Machine), StorageError> {
        let disk = SimulatedDisk::new(7, 1 << 30, CutSettings { tears_sectors: true, leaves_garbage: true });
        let new = WrittenRecord { number: 0, record: ControlRecord::new(node(0), 1) };
        let kept = KeptLog::open(ControlFile::begin(Arc::new(disk.clone()), new, Guards::ALL).unwrap()).unwrap();
        let applied = AppliedConfigs::of_disk(&founding(1), 64, kept.clone()).unwrap();
        Ok((disk, LogStore::of_disk(kept, 0.into(), Guards::ALL), Machine(Arc::new(applied))))
    }
}

#[test]
fn a_log_on_a_disk_keeps_openrafts_contract() {
    Suite::test_all(OnDisk).unwrap();
}

/// Whether the next incarnation of a store that led begins as the leader.
async fn leads_again(guards: Guards) -> bool {
    let disk = SimulatedDisk::new(7, 1 << 30, CutSettings { tears_sectors: true, leaves_garbage: true });
    let new = WrittenRecord { number: 0, record: ControlRecord::new(node(0), 1) };
    let control = ControlFile::begin(Arc::new(disk), new, Guards::ALL).unwrap();
    let mut store = LogStore::of_disk(KeptLog::open(control.clone()).unwrap(), 0.into(), guards);
    store.save_vote(&Vote::new_committed(4, 0.into())).await.unwrap();
    let mut next = LogStore::of_disk(KeptLog::open(control).unwrap(), 0.into(), guards);
    let vote = next.read_vote().await.unwrap().unwrap();
    assert_eq!(vote.leader_id().term, 4, "the promise is kept");
    vote.is_committed()
}

#[tokio::test]
async fn a_life_leads_in_no_term_of_an_earlier_one() {
    assert!(!leads_again(Guards::ALL).await);
}

#[tokio::test]
async fn a_restored_leadership_goes_on_without_an_election() {
    assert!(leads_again(Guards::without(Mutant::LeadAgain)).await);
}
