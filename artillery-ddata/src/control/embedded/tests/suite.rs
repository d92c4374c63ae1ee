//! openraft's own suite for the storage of its log, against a log on a disk.

use openraft::testing::{StoreBuilder, Suite};

use artillery_proto::{
    data_dir::{ControlFile, ControlRecord, FoundControl},
    disk::simulated::{CutSettings, SimulatedDisk},
    guards::Guards,
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
        let new = FoundControl { number: 0, record: ControlRecord::new(node(0), 1) };
        let kept = KeptLog::open(ControlFile::begin(&disk, new, Guards::ALL).unwrap()).unwrap();
        let applied = AppliedConfigs::of_disk(&founding(1), 64, kept.clone()).unwrap();
        Ok((disk, LogStore::of_disk(kept, 0.into()), Machine(Arc::new(applied))))
    }
}

#[test]
fn a_log_on_a_disk_keeps_openrafts_contract() {
    Suite::test_all(OnDisk).unwrap();
}
