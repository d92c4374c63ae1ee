//! A node's knowledge of the contents of its disk.

use std::{sync::Arc, time::Duration};

use crate::{
    ChainId, Timestamp,
    control::{Configs, HeardStores, StorePosition, log::LogIndex, message::StoreHolding},
};

/// The shortest time between two writes of the known positions of other stores to the disk, while no store has a new
/// start. The other nodes are informed of this store's position twice as often.
const NOTE_EVERY: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(super) struct Disk {
    upto: LogIndex,
    /// The copies of all chains, as found at the start; `None`: still loading.
    holds: Option<Vec<StoreHolding>>,
    keeping: Option<Arc<Configs>>,
    /// The position of this store; `None`: the driver hasn't set it yet.
    position: Option<StorePosition>,
    heard: HeardStores,
    /// When `heard` was last written to the disk.
    noted: Timestamp,
    /// When the other nodes must be informed again of this store's position.
    tell_at: Timestamp,
}

impl Disk {
    pub(super) fn new(upto: LogIndex, holds: Option<Vec<StoreHolding>>, heard: HeardStores) -> Self {
        let (noted, tell_at) = (Timestamp::ZERO, Timestamp::ZERO);
        Self { upto, holds, keeping: None, position: None, heard, noted, tell_at }
    }

    pub(super) fn loads(&self) -> bool {
        self.holds.is_none()
    }

    /// The directory is loaded. Returns `false` if it already was.
    pub(super) fn loaded(&mut self, holds: Vec<StoreHolding>) -> bool {
        let loads = self.loads();
        self.holds.get_or_insert(holds);
        loads
    }

    /// The copy of the chain at the start.
    pub(super) fn at_start(&self, chain: ChainId) -> Option<StoreHolding> {
        self.holds.as_ref()?.iter().find(|held| held.chain == chain).copied()
    }

    /// Whether the disk held a complete copy of a chain at the start.
    pub(super) fn held_copy(&self) -> bool {
        self.holds.iter().flatten().any(|held| held.whole && !held.last.is_none())
    }

    /// Whether the configurations of the log up to `applied` are on the disk.
    pub(super) fn has(&self, applied: LogIndex) -> bool {
        self.upto >= applied
    }

    /// Records that these configurations are being written, unless others still are. Returns whether the caller must
    /// write them.
    pub(super) fn keep(&mut self, configs: &Arc<Configs>) -> bool {
        let is_idle = self.keeping.is_none();
        self.keeping.get_or_insert_with(|| configs.clone());
        is_idle
    }

    /// The configurations of the last [`NodeOutput::Keep`](super::NodeOutput::Keep), which are on the disk now.
    pub(super) fn has_kept(&mut self) -> Option<Arc<Configs>> {
        let configs = self.keeping.take()?;
        self.upto = configs.applied();
        Some(configs)
    }

    pub(super) fn position(&self) -> Option<StorePosition> {
        self.position
    }

    pub(super) fn stands_at(&mut self, position: StorePosition) {
        self.position = Some(position);
    }

    /// The known positions of other stores.
    pub(super) fn heard_mut(&mut self) -> &mut HeardStores {
        &mut self.heard
    }

    /// The known positions of other stores, if it is time to write them to the disk.
    pub(super) fn note(&mut self, now: Timestamp, has_new_start: bool) -> Option<HeardStores> {
        let is_due = has_new_start || now - self.noted >= NOTE_EVERY;
        self.noted = if is_due { now } else { self.noted };
        is_due.then(|| self.heard.clone())
    }

    pub(super) fn tells_at(&self) -> Timestamp {
        self.tell_at
    }

    /// The other nodes are informed of this store's position now.
    pub(super) fn tells(&mut self, now: Timestamp) {
        self.tell_at = now + NOTE_EVERY / 2;
    }

    #[cfg(feature = "mutants")]
    pub(super) fn describe(&self) -> impl std::fmt::Debug {
        let Self { upto, holds, keeping, position, heard, noted, tell_at } = self;
        let keeping = keeping.as_ref().map(|configs| configs.applied());
        (upto, holds, keeping, position, heard, noted, tell_at)
    }
}
