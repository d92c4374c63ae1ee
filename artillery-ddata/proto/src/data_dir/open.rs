//! Starts a store: reads, checks and loads the files of the earlier start.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    ControlFile, ControlFileError, ControlRecord, JournalWriter, LoadProgress, LoadStep, OpenSettings, WrittenRecord,
    ballast::Ballast,
    control_file,
    loading::LoadWatch,
    space::{DiskSpace, JournalBytes},
};
use crate::{
    ChainId, Incarnation, NodeId, Sequence, Version,
    control::message::StoreHolding,
    disk::Disk,
    journal::{Damage, FoundJournal, GroupNumber, JournalError, JournalSettings, SyncMode},
    replica::{ChainRestore, RestoreError, RestoreSurvey, RestoredChain, checkpoint_bytes},
    store::Store,
};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error(transparent)]
    Control(#[from] ControlFileError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal can be read, but its entries can't be loaded.
    #[error("{file} is damaged at byte {offset}: {error}")]
    Restore {
        file: String,
        /// Where the group begins in the file, in bytes.
        offset: u64,
        error: RestoreError,
    },
    /// The directory belongs to another node.
    #[error("the directory belongs to node {found}")]
    OtherNode { found: NodeId },
    /// The journal ends before its last synced group.
    #[error(
        "{file} is damaged at byte {offset}: the journal ends there, at group {found}, and was synced up to {synced}"
    )]
    Short {
        file: String,
        /// Where the journal ends in the file, in bytes.
        offset: u64,
        /// The number after its last group.
        found: GroupNumber,
        /// The number after the last group that is known to be synced.
        synced: GroupNumber,
    },
}

impl OpenError {
    /// Whether the directory is damaged: a synced part is missing or differs from the written one. Also true for a
    /// journal that another release wrote in an unknown format: see
    /// [`is_of_another_release`](Self::is_of_another_release).
    pub fn is_damage(&self) -> bool {
        self.damage().is_some()
    }

    /// Whether another release wrote the bytes in a format that this release doesn't know. The bytes are intact.
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

    /// The first damaged place in the directory, if [`is_damage`](Self::is_damage).
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

/// A damaged place in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagePlace {
    /// The file's name.
    pub file: String,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The kind of damage in one word: `control`, one of [`Damage::kind`](crate::journal::Damage::kind), `short` (the
    /// journal ends before its last synced group) or `restore` (its entries can't be loaded).
    pub kind: &'static str,
}

/// A store that has been read and checked, but not written. Nothing in it is valid before [`begin`](Self::begin).
#[derive(Debug)]
pub struct FoundStore {
    disk: Arc<dyn Disk>,
    settings: OpenSettings,
    pub(super) control: WrittenRecord,
    pub(super) journal: FoundJournal,
    pub(super) survey: RestoreSurvey,
    bytes: JournalBytes,
}

/// A store whose new start is durable, so other nodes may learn about it. Its chains aren't loaded yet.
#[derive(Debug)]
pub struct BegunStore {
    incarnation: Incarnation,
    control: ControlFile,
    journal: JournalWriter,
    found: FoundJournal,
    survey: RestoreSurvey,
    backlog: usize,
}

/// A store whose new start is durable, with its chains in memory.
#[derive(Debug)]
pub struct LoadedStore {
    /// The id of the store and the number of this start.
    pub incarnation: Incarnation,
    pub control: ControlFile,
    pub journal: JournalWriter,
    /// The chains that the journal holds completely.
    pub chains: BTreeMap<ChainId, RestoredChain>,
    lacks: BTreeSet<ChainId>,
}

impl FoundStore {
    /// Reads and checks everything. For a directory without a store, returns a new store with the id `draw`.
    pub fn check(disk: Arc<dyn Disk>, settings: OpenSettings, draw: u128) -> Result<Self, OpenError> {
        Self::check_with(disk, settings, draw, &mut |_| {})
    }

    /// Like [`check`](Self::check). Also reports the progress with each entry of the journal.
    pub fn check_with(
        disk: Arc<dyn Disk>,
        settings: OpenSettings,
        draw: u128,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, OpenError> {
        let new = || WrittenRecord { number: 0, record: ControlRecord::new(settings.node, draw) };
        let control = match ControlFile::find(&*disk)? {
            Some(found) => found,
            // A journal is only created after the control file is durable.
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

    /// Begins a start, and loads the chains into empty parts of `store`. Each call needs a new random `seed`.
    pub fn open(self, store: &Arc<dyn Store>, seed: u128) -> Result<LoadedStore, OpenError> {
        self.begin(seed)?.load(store, &mut |_| {})
    }

    /// Begins a start. Each call needs a new random `seed`.
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
    /// The id of the store and the number of this start.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub const fn control(&self) -> &ControlFile {
        &self.control
    }

    /// The number after the last synced group of the journal.
    pub fn synced(&self) -> GroupNumber {
        self.journal.synced()
    }

    /// Loads the chains from the journal into empty parts of `store`. Reports the progress with each entry.
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
