//! The start of a store: the files of the earlier start are read, checked and loaded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    ControlFile, ControlFileError, ControlRecord, JournalWriter, LoadProgress, LoadStep, WrittenRecord,
    ballast::Ballast,
    control_file,
    loading::LoadWatch,
    space::{DiskSpace, JournalBytes},
};
use crate::{
    ChainId, Incarnation, NodeId, Sequence, Version,
    control::message::StoreHolding,
    disk::Disk,
    guards::Guards,
    journal::{Damage, FoundJournal, GroupNumber, JournalError, JournalSettings, SyncMode},
    replica::{ChainRestore, RestoreError, RestoreSurvey, RestoredChain, checkpoint_bytes},
    store::Store,
};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct OpenSettings {
    /// The node. A store always belongs to the same one.
    pub node: NodeId,
    /// When the journal is made durable.
    pub mode: SyncMode,
    /// The journal continues in a new segment at this length in bytes.
    pub segment_bytes: u64,
    /// In addition to the data, the journal may have this many bytes of updates before it is made shorter.
    pub room: u64,
    /// Bytes of the disk that clients' data never takes. A quarter of them is ballast, which other programs can't take either.
    pub reserve: u64,
    /// The most bytes of the journal before the disk is considered full.
    pub most: u64,
    /// Bytes of committed updates that each chain keeps for resends.
    pub backlog: usize,
    /// The guards in force.
    pub guards: Guards,
}

impl OpenSettings {
    /// The settings of a check: nothing is written.
    pub const fn new(node: NodeId) -> Self {
        Self {
            node,
            mode: SyncMode::Batch,
            segment_bytes: u64::MAX,
            room: u64::MAX,
            reserve: 0,
            most: u64::MAX,
            backlog: 0,
            guards: Guards::ALL,
        }
    }
}

/// A store can't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The control file.
    #[error(transparent)]
    Control(#[from] ControlFileError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal can be read, but not loaded.
    #[error("{file} is damaged at byte {offset}: {error}")]
    Restore {
        /// The file's name.
        file: String,
        /// Where in it the group begins, in bytes.
        offset: u64,
        /// The reason.
        error: RestoreError,
    },
    /// The directory belongs to another node.
    #[error("the directory belongs to node {found}")]
    OtherNode {
        /// That node.
        found: NodeId,
    },
    /// The journal ends before its last synced group.
    #[error(
        "{file} is damaged at byte {offset}: the journal ends there, at group {found}, and was synced up to {synced}"
    )]
    Short {
        /// The file's name.
        file: String,
        /// Where in it the journal ends, in bytes.
        offset: u64,
        /// The number behind its last group.
        found: GroupNumber,
        /// The number behind the last group that is known to have been synced.
        synced: GroupNumber,
    },
}

impl OpenError {
    /// Whether the directory is damaged: a synced part is missing or differs.
    pub fn is_damage(&self) -> bool {
        self.damage().is_some()
    }

    /// Whether all bytes are unchanged, but another release wrote them, in a format that this one doesn't know.
    pub fn is_of_another_release(&self) -> bool {
        match self {
            Self::Control(error) => {
                matches!(error, ControlFileError::Format { .. } | ControlFileError::OtherRecord { .. })
            }
            Self::Journal(JournalError::Damaged { damage, .. }) => {
                matches!(damage, Damage::Format(_) | Damage::Entry(..))
            }
            Self::Restore { error, .. } => matches!(error, RestoreError::UnknownKind(_)),
            Self::Journal(_) | Self::OtherNode { .. } | Self::Short { .. } => false,
        }
    }

    /// Where the directory is damaged, if it is.
    pub fn damage(&self) -> Option<DamagePlace> {
        let place = |file: &str, offset, kind| Some(DamagePlace { file: file.to_owned(), offset, kind });
        match self {
            Self::Control(ControlFileError::Damaged) => place(control_file::NAMES[0], 0, "control"),
            Self::Journal(JournalError::Damaged { file, offset, damage }) => place(file, *offset, damage.kind()),
            Self::Restore { file, offset, .. } => place(file, *offset, "restore"),
            Self::Short { file, offset, .. } => place(file, *offset, "short"),
            Self::Control(_) | Self::Journal(_) | Self::OtherNode { .. } => None,
        }
    }
}

/// A place of a directory that is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagePlace {
    /// The file's name.
    pub file: String,
    /// Where in it, in bytes from its beginning.
    pub offset: u64,
    /// The kind of damage in one word: `control`, one of [`Damage::kind`](crate::journal::Damage::kind), `short` (the journal
    /// ends before its last synced group) or `restore` (its entries can't be loaded).
    pub kind: &'static str,
}

/// A store that was read and checked, and isn't written yet. Nothing of it counts before [`begin`](Self::begin).
#[derive(Debug)]
pub struct FoundStore {
    disk: Arc<dyn Disk>,
    settings: OpenSettings,
    pub(super) control: WrittenRecord,
    pub(super) journal: FoundJournal,
    pub(super) survey: RestoreSurvey,
    bytes: JournalBytes,
}

/// A store in a new start, which other nodes may learn of. Its chains are not loaded yet.
#[derive(Debug)]
pub struct BegunStore {
    incarnation: Incarnation,
    control: ControlFile,
    journal: JournalWriter,
    found: FoundJournal,
    survey: RestoreSurvey,
    backlog: usize,
}

/// A store in a new start, with its chains in memory.
#[derive(Debug)]
pub struct LoadedStore {
    /// The store and the number of this start.
    pub incarnation: Incarnation,
    /// The control file.
    pub control: ControlFile,
    /// The end of the journal.
    pub journal: JournalWriter,
    /// The chains that are whole in the journal.
    pub chains: BTreeMap<ChainId, RestoredChain>,
    lacks: BTreeSet<ChainId>,
}

impl FoundStore {
    /// Reads and checks everything. A directory without a store is a new one, whose id is `draw`.
    pub fn check(disk: Arc<dyn Disk>, settings: OpenSettings, draw: u128) -> Result<Self, OpenError> {
        Self::check_with(disk, settings, draw, &mut |_| {})
    }

    /// The same. Reports its progress with each entry of the journal.
    pub fn check_with(
        disk: Arc<dyn Disk>,
        settings: OpenSettings,
        draw: u128,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, OpenError> {
        let new = || WrittenRecord { number: 0, record: ControlRecord::new(settings.node, draw) };
        let control = match ControlFile::find(&*disk)? {
            Some(found) => found,
            // A journal begins behind a control file that is durable.
            None if FoundJournal::is_there(&*disk)? => return Err(ControlFileError::Damaged.into()),
            None => new(),
        };
        let ControlRecord { node, incarnation: Incarnation { store, .. }, segment, synced, .. } = control.record;
        if node != settings.node {
            return Err(OpenError::OtherNode { found: node });
        }
        let (segment_bytes, mode, guards) = (settings.segment_bytes, settings.mode, settings.guards);
        let of = JournalSettings { store, segment_bytes, mode, guards };
        let mut survey = RestoreSurvey::default();
        let mut bytes = JournalBytes::default();
        let mut watch = LoadWatch::new(LoadStep::Check, tell);
        let journal = FoundJournal::check(disk.clone(), of, |place, entry, read| {
            survey.note(place, &entry);
            bytes.note(&entry, read.entry);
            watch.passed(&entry, read);
        })?;
        if journal.newest_segment() < segment {
            return Err(FoundJournal::missing(segment).into());
        }
        let (found, synced) = (journal.end(), GroupNumber(synced));
        if found < synced {
            let (file, offset) = journal.locate(found)?;
            return Err(OpenError::Short { file, offset, found, synced });
        }
        Ok(Self { disk, settings, control, journal, survey, bytes })
    }

    /// Begins a start, and loads the chains into empty parts of `store`. Draw another `seed` for each call.
    pub fn open(self, store: &Arc<dyn Store>, seed: u128) -> Result<LoadedStore, OpenError> {
        self.begin(seed)?.load(store, &mut |_| {})
    }

    /// Begins a start. Draw another `seed` for each call.
    pub fn begin(self, seed: u128) -> Result<BegunStore, OpenError> {
        let Self { disk, settings, mut control, journal: found, survey, bytes } = self;
        let record = &mut control.record;
        record.begin(seed as u64, control.number, found.end().0);
        if settings.mode == SyncMode::Never && !allows!(settings.guards, ForgetWeak) {
            (record.weak, record.strong) = (true, BTreeSet::new());
        }
        let incarnation = record.incarnation;
        let ballast = Ballast::new(disk.clone(), settings.reserve / 4);
        let control = ControlFile::begin_with(disk, control, settings.guards, ballast.clone())?;
        let journal = ballast.spend(|| found.open(incarnation.starts, seed))?;
        let found = journal.found();
        let space = DiskSpace::new(ballast, &settings);
        let of_writer = (survey.clone(), bytes);
        let journal = JournalWriter::new(journal, control.clone(), of_writer, space, (settings.mode, settings.guards))?;
        Ok(BegunStore { incarnation, control, journal, found, survey, backlog: settings.backlog })
    }
}

impl BegunStore {
    /// The store and the number of this start.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The control file.
    pub const fn control(&self) -> &ControlFile {
        &self.control
    }

    /// The number of groups of the journal that are synced.
    pub fn synced(&self) -> GroupNumber {
        self.journal.synced()
    }

    /// Loads the chains from the journal into empty parts of `store`. Reports its progress with each entry.
    pub fn load(self, store: &Arc<dyn Store>, tell: &mut dyn FnMut(LoadProgress)) -> Result<LoadedStore, OpenError> {
        let Self { incarnation, control, mut journal, found, survey, backlog } = self;
        let chains = restore(&found, &survey, store, backlog, tell)?;
        for chain in survey.chains() {
            let restored = chains.get(&chain);
            let sessions = restored.map_or(0, RestoredChain::session_bytes);
            let data = checkpoint_bytes(store.size(chain), sessions);
            journal.restored(chain, data, restored.is_some_and(RestoredChain::continues));
        }
        let lacks = survey.chains().filter(|&chain| survey.lacks(chain)).collect();
        Ok(LoadedStore { incarnation, control, journal, chains, lacks })
    }
}

impl LoadedStore {
    /// The position of a chain in the store, which decides whether it may reopen the chain.
    pub fn holding(&self, chain: ChainId) -> StoreHolding {
        let (restored, whole) = (self.chains.get(&chain), !self.lacks.contains(&chain));
        self.control.look(|record| record.holding(chain, restored, whole))
    }
}

impl ControlRecord {
    pub(super) fn holding(&self, chain: ChainId, restored: Option<&RestoredChain>, whole: bool) -> StoreHolding {
        let last = restored.map_or(Version::NONE, RestoredChain::last);
        let watermark = restored.map_or(Sequence::ZERO, RestoredChain::watermark);
        StoreHolding { chain, whole, last, watermark, synced: self.is_synced(chain) }
    }
}

pub(super) fn restore(
    journal: &FoundJournal,
    survey: &RestoreSurvey,
    store: &Arc<dyn Store>,
    backlog: usize,
    tell: &mut dyn FnMut(LoadProgress),
) -> Result<BTreeMap<ChainId, RestoredChain>, OpenError> {
    let mut chains = BTreeMap::new();
    for chain in survey.chains() {
        let restore = survey.restore(chain, store.clone(), backlog);
        if let Some(restore) = restore.map_err(|error| misfit(journal, journal.first(), error))? {
            chains.insert(chain, restore);
        }
    }
    let mut failed = None;
    let mut watch = LoadWatch::new(LoadStep::TakeIn, tell);
    journal.replay(survey.floor().unwrap_or(journal.end()), |place, entry, read| {
        watch.passed(&entry, read);
        if failed.is_none()
            && let Some(chain) = chains.get_mut(&entry.chain())
        {
            failed = chain.take(place, entry).err().map(|error| (place.group, error));
        }
    })?;
    if let Some((group, error)) = failed {
        return Err(misfit(journal, group, error));
    }
    let finished = chains.into_iter().map(|(chain, restore): (ChainId, ChainRestore)| Ok((chain, restore.finish()?)));
    finished.collect::<Result<_, RestoreError>>().map_err(|error| misfit(journal, journal.end(), error))
}

fn misfit(journal: &FoundJournal, group: GroupNumber, error: RestoreError) -> OpenError {
    match journal.locate(group) {
        Ok((file, offset)) => OpenError::Restore { file, offset, error },
        Err(error) => error.into(),
    }
}
