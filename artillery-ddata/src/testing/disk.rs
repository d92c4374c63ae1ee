//! The simulated disk of a node of a test's cluster.

use std::{sync::Arc, time::Duration};

use artillery_core::{Incarnation, NodeId};
use artillery_proto::{
    ChainId, Version,
    control::message::StoreHolding,
    data_dir::{FoundStore, LoadedStore, OpenSettings},
    disk::simulated::{CutSettings, SimulatedDisk},
    journal::SyncMode,
};

use super::setup::NodeSetup;
use crate::{driver::journal::RunningJournal, store::Store};

/// The size in bytes at which a journal segment is closed, and the bytes of updates that the journal may hold: small
/// enough that tests reach checkpoints.
const SEGMENT_BYTES: u64 = 64 << 10;
const DISK_BYTES: u64 = 1 << 40;
const USUAL_SYNC: Duration = Duration::from_millis(2);
/// One in ten syncs takes up to this long: longer than an update needs to pass the chain.
const SLOW_SYNC: Duration = Duration::from_millis(60);

/// A node's disk, as used by one incarnation of the node.
pub(super) struct NodeDisk {
    disk: SimulatedDisk,
    journal: RunningJournal,
    /// The chains' contents on the disk when this incarnation began.
    holds: Vec<StoreHolding>,
}

/// An empty disk. A power cut may lose unsynced data, tear sectors and leave garbage.
pub(super) fn new_disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed, DISK_BYTES, CutSettings { tears_sectors: true, leaves_garbage: true })
}

impl NodeDisk {
    /// Opens the disk, and loads its content into `store`. An empty disk gets the store id `new`.
    ///
    /// # Panics
    /// If it is damaged: no test damages it.
    pub(super) fn open(
        disk: SimulatedDisk,
        node: NodeId,
        new: u128,
        setup: &NodeSetup,
        store: &Arc<dyn Store>,
    ) -> (Incarnation, Self) {
        let settings = OpenSettings {
            node,
            mode: SyncMode::Batch,
            segment_bytes: SEGMENT_BYTES,
            room: SEGMENT_BYTES,
            reserve: 1 << 20,
            most: u64::MAX,
            backlog: setup.settings.backlog,
            guards: setup.settings.guards,
        };
        let network = setup.network.clone();
        let salt = (network.chance() * (1_u64 << 53) as f64) as u128;
        let found = FoundStore::check(Arc::new(disk.clone()), settings, new);
        let opened = found.and_then(|found| found.open(store, salt));
        let dir = opened.unwrap_or_else(|error| panic!("the disk of node {new}: {error}"));
        let holds = (0..setup.chains).map(|chain| dir.holding(ChainId(chain))).collect();
        let LoadedStore { incarnation, journal, chains, .. } = dir;
        let longest = move |chance: f64| if chance < 0.1 { SLOW_SYNC } else { USUAL_SYNC };
        let pause = move || longest(network.chance()).mul_f64(network.chance());
        let journal = RunningJournal::simulated(journal, chains, pause);
        (incarnation, Self { disk, journal, holds })
    }

    pub(super) fn simulated(&self) -> &SimulatedDisk {
        &self.disk
    }

    /// The newest version of a chain when this incarnation began.
    ///
    /// # Panics
    /// If a part of the chain is missing from the disk.
    pub(super) fn last(&self, chain: ChainId) -> Version {
        let holding = self.holds.iter().find(|holding| holding.chain == chain).filter(|holding| holding.whole);
        holding.unwrap_or_else(|| panic!("a part of chain {} is missing from a disk", chain.0)).last
    }

    pub(super) fn journal(&self) -> RunningJournal {
        self.journal.clone()
    }

    /// Ends the process that uses the disk. Its writes survive unless the power is cut.
    pub(super) fn end_process(&self) {
        self.journal.stop();
        self.disk.restart();
    }
}
