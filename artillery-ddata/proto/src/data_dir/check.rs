//! Checks a whole store while no node uses it. Reads everything as a start would, and writes nothing.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    ControlFile, FoundStore, OpenError, OpenSettings, ballast,
    control_file::{self, CopyState},
    open,
};
use crate::{
    ChainId, ClusterId, Incarnation, NodeId,
    control::{History, message::StoreHolding},
    disk::{Disk, DiskError},
    journal::{GroupNumber, JournalError, SyncMode, TornEnd},
    store::{MemoryStore, Store},
};

/// The result of checking a whole store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// The node that owns the store.
    pub node: NodeId,
    /// The id of the store, and the number of its last start.
    pub incarnation: Incarnation,
    /// The cluster that the node belongs to, once it has joined one.
    pub cluster: Option<ClusterId>,
    /// The history that the node belongs to, once it is known.
    pub history: Option<History>,
    /// The copies of the control file, by name. A start needs one complete copy.
    pub control: [(&'static str, CopyState); 2],
    /// How the last start made the journal durable; `None`: no journal exists.
    pub mode: Option<SyncMode>,
    /// The store was once started without syncing each batch.
    pub weak: bool,
    /// The files of the journal, oldest first.
    pub segments: Vec<String>,
    /// The total length of these files in bytes.
    pub bytes: u64,
    /// The number of the journal's first group.
    pub first: GroupNumber,
    /// All groups below this one are known to have been synced.
    pub proven: GroupNumber,
    /// The number after the last group.
    pub end: GroupNumber,
    /// Bytes after the last group, which a crash may leave. A start drops them.
    pub torn: Option<TornEnd>,
    /// Unused files. A start removes those that an earlier start created for the control file or the journal.
    pub unused: Vec<String>,
    /// The chains with entries in the journal.
    pub chains: Vec<ChainReport>,
}

/// A chain of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainReport {
    /// The chain's position.
    pub holding: StoreHolding,
    /// Keys with a value, including updates above the watermark. 0 if the store of the chain isn't complete.
    pub records: u64,
    /// Updates in the journal. An update that was written again for a checkpoint is counted twice.
    pub updates: u64,
    /// Updates above the watermark. The chain may have committed them.
    pub unreplicated: u64,
}

impl StoreReport {
    /// Reads a whole directory, and loads its chains into memory as a start would. Writes nothing. `None`: the
    /// directory has no store.
    ///
    /// # Errors
    /// [`OpenError`]. [`OpenError::damage`] names the first damaged place.
    pub fn check(disk: Arc<dyn Disk>) -> Result<Option<Self>, OpenError> {
        let names = disk.names().map_err(JournalError::Failed)?;
        let control = control_file::NAMES.map(|name| (name, control_file::state(&*disk, name)));
        let node = ControlFile::find(&*disk)?.map_or(NodeId::from_bytes([0; 16]), |found| found.record.node);
        let found = FoundStore::check(disk.clone(), OpenSettings::new(node), 0)?;
        if control.iter().all(|(_, state)| *state == CopyState::Missing) {
            return Ok(None);
        }
        let segments: Vec<_> = found.journal.files().collect();
        let length = |file: &String| disk.open(file).and_then(|file| file.length());
        let bytes: Result<u64, DiskError> = segments.iter().map(length).sum();
        let used: BTreeSet<_> =
            segments.iter().map(String::as_str).chain(control_file::NAMES).chain([ballast::NAME]).collect();
        let unused = names.iter().filter(|name| !used.contains(name.as_str())).cloned().collect();
        let (record, journal) = (&found.control.record, &found.journal);
        Ok(Some(Self {
            node,
            incarnation: record.incarnation,
            cluster: record.founding.as_ref().map(|founding| founding.cluster),
            history: record.history,
            control,
            mode: journal.mode(),
            weak: record.weak,
            bytes: bytes.map_err(JournalError::Failed)?,
            first: journal.first(),
            proven: journal.proven(),
            end: journal.end(),
            torn: journal.torn_end(),
            unused,
            chains: chains(&found)?,
            segments,
        }))
    }
}

fn chains(found: &FoundStore) -> Result<Vec<ChainReport>, OpenError> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(0));
    let restored = open::restore(&found.journal, &found.survey, &store, 0, &mut |_| {})?;
    let report = |chain: ChainId| {
        let (held, whole) = (restored.get(&chain), !found.survey.lacks(chain));
        ChainReport {
            holding: found.control.record.holding(chain, held, whole),
            records: store.size(chain).keys,
            updates: found.survey.updates(chain),
            unreplicated: held.map_or(0, |held| held.unreplicated()),
        }
    };
    Ok(found.survey.chains().map(report).collect())
}
