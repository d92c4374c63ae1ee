//! The start of a store: what an earlier one has left is read, checked and taken in.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    ControlFile, ControlFileError, ControlRecord, FoundControl, JournalWriter, LoadProgress, LoadStep,
    ballast::Ballast,
    loading::LoadWatch,
    writer::{JournalBytes, Room},
};
use crate::{
    ChainId, Incarnation, NodeId, Sequence, Version,
    control::message::StoreHolding,
    disk::Disk,
    guards::Guards,
    journal::{Damage, FoundJournal, GroupNumber, JournalError, JournalSettings, SyncMode},
    replica::{ChainRestore, EntryPlace, RestoreError, RestoreSurvey, RestoredChain},
    store::Store,
};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct OpenSettings {
    /// The node. A store belongs to one for good.
    pub node: NodeId,
    /// When the journal is made durable.
    pub mode: SyncMode,
    /// A segment of the journal that has become so long, in bytes, is left for the next one.
    pub segment_bytes: u64,
    /// Beside the data, so many bytes of updates may stand in the journal before it is made shorter.
    pub room: u64,
    /// Bytes of the disk that clients' data never takes, beside room for a checkpoint. A quarter of them is ballast, which other
    /// programs can't take either.
    pub reserve: u64,
    /// The most bytes of the disk that the journal may have before the disk counts as full.
    pub most: u64,
    /// Bytes of committed updates that each chain keeps for resends.
    pub backlog: usize,
    /// Which guards stand.
    pub guards: Guards,
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
    /// The journal can be read, and can't be taken in.
    #[error("the journal is damaged: {0}")]
    Restore(#[from] RestoreError),
    /// The directory belongs to another node.
    #[error("the directory belongs to node {found}")]
    OtherNode {
        /// That node.
        found: NodeId,
    },
    /// The journal ends before what is known to have been synced.
    #[error("the journal ends at group {found}: up to {synced} it was synced")]
    Short {
        /// The number behind its last group.
        found: GroupNumber,
        /// The number behind the last group that is known to have been synced.
        synced: GroupNumber,
    },
}

impl OpenError {
    /// Whether the directory is damaged: what it once held for certain is not there as it was.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Control(error) => *error == ControlFileError::Damaged,
            Self::Journal(error) => matches!(error, JournalError::Damaged { .. }),
            Self::Restore(_) | Self::Short { .. } => true,
            Self::OtherNode { .. } => false,
        }
    }
}

/// A store that was read and checked, and isn't written yet. Nothing of it counts before [`open`](Self::open).
#[derive(Debug)]
pub struct FoundStore {
    disk: Arc<dyn Disk>,
    settings: OpenSettings,
    control: FoundControl,
    journal: FoundJournal,
    survey: RestoreSurvey,
    bytes: JournalBytes,
}

/// A store in a new start.
#[derive(Debug)]
pub struct DataDir {
    /// The store and the number of this start.
    pub incarnation: Incarnation,
    /// The control file.
    pub control: ControlFile,
    /// The end of the journal.
    pub journal: JournalWriter,
    /// The chains of which the journal holds a whole store.
    pub chains: BTreeMap<ChainId, RestoredChain>,
    lacks: BTreeSet<ChainId>,
}

impl FoundStore {
    /// Reads and checks everything. A directory without a store is a new one, whose id is `draw`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn check(disk: Arc<dyn Disk>, settings: OpenSettings, draw: u128) -> Result<Self, OpenError> {
        Self::check_with(disk, settings, draw, &mut |_| {})
    }

    /// The same. It tells with each entry of the journal how far it has come.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn check_with(
        disk: Arc<dyn Disk>,
        settings: OpenSettings,
        draw: u128,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, OpenError> {
        let new = || FoundControl { number: 0, record: ControlRecord::new(settings.node, draw) };
        let control = ControlFile::find(&*disk)?.unwrap_or_else(new);
        let ControlRecord { node, incarnation: Incarnation { store, .. }, segment, synced, .. } = control.record;
        if node != settings.node {
            return Err(OpenError::OtherNode { found: node });
        }
        let (segment_bytes, mode, guards) = (settings.segment_bytes, settings.mode, settings.guards);
        let of = JournalSettings { store, segment_bytes, mode, guards };
        let mut survey = RestoreSurvey::default();
        let (mut places, mut bytes) = (Places::default(), JournalBytes::default());
        let mut watch = LoadWatch::new(LoadStep::Check, tell);
        let journal = FoundJournal::check_with(disk.clone(), of, |group, entry, read| {
            survey.note(places.next(group), &entry);
            bytes.note(&entry);
            watch.passed(&entry, read);
        })?;
        if journal.newest_segment() < segment {
            return Err(FoundJournal::missing(segment).into());
        }
        let (found, synced) = (journal.end(), GroupNumber(synced));
        if found < synced {
            return Err(OpenError::Short { found, synced });
        }
        Ok(Self { disk, settings, control, journal, survey, bytes })
    }

    /// Takes in what was found, into empty parts of `store`, and begins a start. `seed` is to be drawn anew for each call.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(self, store: &Arc<dyn Store>, seed: u128) -> Result<DataDir, OpenError> {
        self.open_with(store, seed, &mut |_| {})
    }

    /// The same. It tells with each entry of the journal how far it has come.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_with(
        self,
        store: &Arc<dyn Store>,
        seed: u128,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<DataDir, OpenError> {
        let Self { disk, settings, mut control, journal, survey, bytes } = self;
        let chains = restore(&journal, &survey, store, settings.backlog, tell)?;
        let lacks = survey.chains().filter(|&chain| survey.lacks(chain)).collect();
        let record = &mut control.record;
        record.begin(seed as u64, control.number, journal.end().0);
        if settings.mode == SyncMode::Never && !allows!(settings.guards, ForgetWeak) {
            (record.weak, record.strong) = (true, BTreeSet::new());
        }
        let incarnation = record.incarnation;
        let ballast = Ballast::new(disk.clone(), settings.reserve / 4);
        let control = ControlFile::begin_with(disk, control, settings.guards, ballast.clone())?;
        let journal = ballast.spend(|| journal.open(incarnation.starts, seed))?;
        let room = Room::new(ballast, &settings);
        let journal =
            JournalWriter::new(journal, control.clone(), (survey, bytes), room, (settings.mode, settings.guards))?;
        Ok(DataDir { incarnation, control, journal, chains, lacks })
    }
}

impl DataDir {
    /// What the store holds of a chain, for those that ask whether it may open the chain again.
    pub fn holding(&self, chain: ChainId) -> StoreHolding {
        let restored = self.chains.get(&chain);
        StoreHolding {
            chain,
            whole: !self.lacks.contains(&chain),
            last: restored.map_or(Version::NONE, RestoredChain::last),
            watermark: restored.map_or(Sequence::ZERO, RestoredChain::watermark),
            synced: self.control.look(|record| record.is_synced(chain)),
        }
    }
}

/// Numbers the entries of each group.
#[derive(Default)]
struct Places(EntryPlace);

impl Places {
    fn next(&mut self, group: GroupNumber) -> EntryPlace {
        let index = if self.0.group == group { self.0.index + 1 } else { 0 };
        self.0 = EntryPlace { group, index };
        self.0
    }
}

fn restore(
    journal: &FoundJournal,
    survey: &RestoreSurvey,
    store: &Arc<dyn Store>,
    backlog: usize,
    tell: &mut dyn FnMut(LoadProgress),
) -> Result<BTreeMap<ChainId, RestoredChain>, OpenError> {
    let mut chains = BTreeMap::new();
    for chain in survey.chains() {
        if let Some(restore) = survey.restore(chain, store.clone(), backlog)? {
            chains.insert(chain, restore);
        }
    }
    let mut failed = Ok(());
    let mut places = Places::default();
    let mut watch = LoadWatch::new(LoadStep::TakeIn, tell);
    journal.replay_with(survey.floor().unwrap_or(journal.end()), |group, entry, read| {
        let place = places.next(group);
        watch.passed(&entry, read);
        if failed.is_ok()
            && let Some(chain) = chains.get_mut(&entry.chain())
        {
            failed = chain.take(place, entry);
        }
    })?;
    failed?;
    let finished = chains.into_iter().map(|(chain, restore): (ChainId, ChainRestore)| Ok((chain, restore.finish()?)));
    finished.collect::<Result<_, RestoreError>>().map_err(OpenError::Restore)
}

impl FoundJournal {
    /// The newest segment isn't there.
    fn missing(segment: u64) -> JournalError {
        JournalError::Damaged { file: Self::file(segment), offset: 0, damage: Damage::Missing }
    }
}
