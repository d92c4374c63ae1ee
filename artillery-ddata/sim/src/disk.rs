//! The disk of a durable node, and what its process has opened there.

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

/// How disks behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSetup {
    /// The longest usual time of a sync, in nanoseconds.
    pub sync: u64,
    /// How many of a thousand syncs fail.
    pub fails: u32,
    /// How many of a thousand ends of a process are power cuts.
    pub cuts: u32,
    /// How many of a thousand starts find an empty disk, if that loses nothing that no other disk has.
    pub wipes: u32,
    /// The length at which a segment of the journal is left, in bytes.
    pub segment: u64,
    /// Room for updates in the journal beside the data, in bytes.
    pub room: u64,
    /// Room that clients' data never takes, in bytes.
    pub reserve: u64,
    /// How many of a thousand starts sync no batch (`--sync never`).
    pub never: u32,
}

/// The room of a disk, in bytes.
pub const ROOM: u64 = 1 << 30;

/// A new disk.
pub fn new_disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed, ROOM, CutSettings { tears_sectors: true, leaves_garbage: true })
}

/// What a process has opened on its disk.
#[derive(Debug)]
pub struct Opened {
    /// The control file.
    pub control: ControlFile,
    /// The end of the journal.
    pub journal: JournalWriter,
    /// What the disk held of each chain at the start.
    pub holds: Vec<StoreHolding>,
    /// Whether this start syncs each batch.
    pub mode: SyncMode,
    /// A sync is under way.
    pub syncs: bool,
    /// Batches that the full disk has refused.
    pub refused: Vec<(ChainId, JournalBatch)>,
}

impl Opened {
    /// Opens a directory. A new store gets the id `draw`.
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
