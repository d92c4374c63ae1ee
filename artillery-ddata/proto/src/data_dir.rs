//! The directory of a durable node: its control file, and the journal of its chains (docs/adr/0042).
//!
//! [`FoundStore`] reads and checks the files of the earlier start, [`BegunStore`] has written down another start of the store, and
//! [`LoadedStore`] has its chains in memory. One thread of the node runs its [`JournalWriter`]. [`StoreReport`] checks a directory that no node
//! uses. All of it is pure over [`Disk`](crate::disk::Disk).

mod ballast;
mod check;
mod control_file;
mod loading;
mod open;
mod space;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeSet;

pub use check::{ChainReport, StoreReport};
pub use control_file::{ControlFile, ControlFileError, CopyState, WrittenRecord};
pub use loading::{LoadProgress, LoadStep};
pub use open::{BegunStore, DamagePlace, FoundStore, LoadedStore, OpenError, OpenSettings};
use serde::{Deserialize, Serialize};
pub use writer::{DurableBatch, JournalWriter};

use crate::{
    ChainId, Incarnation, MemberId, NodeId,
    control::{Bootstrap, Configs, HeardStores, History, Relation, StoreStart, StoreStarts},
    journal::SyncMode,
};

/// The content of a store's control file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ControlRecord {
    /// The node that the store belongs to.
    pub node: NodeId,
    /// The store, with the number of its last start.
    pub incarnation: Incarnation,
    /// The last starts of the store, with the position that each of them found.
    pub starts: StoreStarts,
    /// Another node has refused this store, as an older copy.
    pub refused: bool,
    /// The cluster that the node belongs to, once it does.
    pub founding: Option<Bootstrap>,
    /// The history that the node belongs to, once it does.
    pub history: Option<History>,
    /// The newest configurations by which the chains of the node act, or may.
    pub configs: Option<Configs>,
    /// The number of the journal's newest segment. The journal itself doesn't show that its last file is missing.
    pub segment: u64,
    /// The number of groups of the journal that are known to be synced. It is updated from time to time.
    pub synced: u64,
    /// The store was started without syncing each batch: after a power cut, committed updates may be missing.
    pub weak: bool,
    /// Chains in which a weak store became a serving member again, in a start that syncs each batch.
    pub strong: BTreeSet<ChainId>,
    /// The last known positions of other stores.
    pub heard: HeardStores,
    /// The log of configurations as its group keeps it: votes, entries, a snapshot. Only that group knows its format.
    pub log: Vec<u8>,
}

impl ControlRecord {
    /// The record of a new store.
    pub fn new(node: NodeId, store: u128) -> Self {
        Self {
            node,
            incarnation: Incarnation { store, starts: 0 },
            starts: StoreStarts::default(),
            refused: false,
            founding: None,
            history: None,
            configs: None,
            segment: 0,
            synced: 0,
            weak: false,
            strong: BTreeSet::new(),
            heard: HeardStores::default(),
            log: Vec::new(),
        }
    }

    /// Begins another start of the store, over a control file and a journal of this many writings and groups. `id` is random.
    pub fn begin(&mut self, id: u64, control: u64, groups: u64) {
        self.incarnation.starts += 1;
        let start = StoreStart { number: self.incarnation.starts, id, control, groups };
        if self.refused { self.starts.begin_again(start) } else { self.starts.begin(start) }
    }

    /// The node belongs to this cluster. Only a founder knows its history by that: the cluster may have been recovered since.
    pub fn keep_founding(&mut self, me: MemberId, founding: &Bootstrap) {
        if founding.members.iter().any(|founder| founder.id.shares_store(me)) && self.history.is_none() {
            self.history = Some(History::first(founding.cluster));
        }
        self.founding = Some(founding.clone());
    }

    /// The chains of `me` will act by `configs`. A store that syncs each batch has from now on every committed update of a chain
    /// in which it serves. Configurations of an ended history are ignored: the node was recovered since.
    pub fn keep(&mut self, me: MemberId, configs: &Configs, mode: SyncMode) {
        if self.history.is_some_and(|mine| configs.history().relation(mine) == Relation::Older) {
            return;
        }
        if self.weak && mode == SyncMode::Batch {
            let served = configs.iter().filter(|config| config.serving().any(|id| id == me));
            self.strong.extend(served.map(|config| config.chain));
        }
        self.go_on(configs.clone());
    }

    /// The node continues with these configurations, in their history, and is no longer refused.
    pub fn go_on(&mut self, configs: Configs) {
        self.refused &= self.history == Some(configs.history());
        (self.history, self.configs) = (Some(configs.history()), Some(configs));
    }

    /// Whether the store has all of `chain` that was committed while it served, even after a power cut.
    pub fn is_synced(&self, chain: ChainId) -> bool {
        !self.weak || self.strong.contains(&chain)
    }
}
