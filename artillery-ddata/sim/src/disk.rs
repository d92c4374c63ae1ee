//! The disk of a durable node, and the files that its process has open.

use std::sync::Arc;

use artillery_proto::{
    ChainId, Incarnation, NodeId,
    control::message::StoreHolding,
    data_dir::{ControlFile, FoundStore, JournalWriter, LoadedStore, OpenError, OpenSettings},
    disk::{
        Disk,
        simulated::{CutSettings, SimulatedDisk},
    },
    journal::SyncMode,
    replica::{JournalBatch, RestoredChain},
    store::Store,
};

use crate::scenario::Setup;

/// The behaviour of the disks of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSetup {
    /// Usual upper bound on the duration of a sync, in nanoseconds.
    pub sync: u64,
    /// Syncs per thousand that fail.
    pub fails: u32,
    /// Process ends per thousand that are power cuts.
    pub cuts: u32,
    /// Starts per thousand that find an empty disk, provided that every byte lost is also on another disk.
    pub wipes: u32,
    /// Length at which the journal begins a new segment, in bytes.
    pub segment: u64,
    /// Journal space for updates in addition to the data, in bytes.
    pub room: u64,
    /// Space that client data may never use, in bytes.
    pub reserve: u64,
    /// Starts per thousand with `--sync never`.
    pub never: u32,
}

/// Capacity of a disk, in bytes.
pub const ROOM: u64 = 1 << 30;

/// A new disk whose power cuts may tear sectors and leave garbage.
pub fn new_disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed, ROOM, CutSettings { tears_sectors: true, leaves_garbage: true })
}

/// The files that a process has open on its disk.
#[derive(Debug)]
pub struct Opened {
    /// The control file.
    pub control: ControlFile,
    /// The writable end of the journal.
    pub journal: JournalWriter,
    /// The contents of each chain on disk at the start.
    pub holds: Vec<StoreHolding>,
    /// Whether this process syncs each batch.
    pub mode: SyncMode,
    /// Whether a sync is in progress.
    pub syncs: bool,
    /// Batches that were rejected because the disk was full.
    pub refused: Vec<(ChainId, JournalBatch)>,
}

impl Opened {
    /// Opens a directory. A new store gets the id `draw`; `seed` differs between copies of one directory.
    pub fn open(
        (disk, mode): (&SimulatedDisk, SyncMode),
        node: NodeId,
        (draw, seed): (u128, u128),
        setup: &Setup,
        store: &Arc<dyn Store>,
    ) -> Result<(Incarnation, Self, impl FnMut(ChainId) -> Option<RestoredChain> + use<>), OpenError> {
        let of = setup.durable.expect("a world with disks");
        let settings = OpenSettings {
            node,
            mode,
            segment_bytes: of.segment,
            room: of.room,
            reserve: of.reserve,
            most: u64::MAX,
            backlog: setup.backlog,
            guards: setup.guards,
        };
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let found = FoundStore::check(disk, settings, draw)?;
        let dir = found.open(store, seed)?;
        let holds = (0..setup.chains).map(|chain| dir.holding(ChainId(chain as u32))).collect();
        let LoadedStore { incarnation, control, journal, mut chains, .. } = dir;
        let opened = Self { control, journal, holds, mode, syncs: false, refused: Vec::new() };
        Ok((incarnation, opened, move |chain| chains.remove(&chain)))
    }
}
