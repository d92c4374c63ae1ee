//! The directory of a durable node: its control file, and the journal of its chains (docs/adr/0042).
//!
//! [`FoundStore`] reads what an earlier start has left, and [`FoundStore::open`] begins another start of the store.
//! [`JournalWriter`] writes the journal on: one thread of the node runs it. [`StoreReport`] is what a check finds while no node
//! uses the directory. All of it is pure over [`Disk`](crate::disk::Disk).

mod ballast;
mod check;
mod control_file;
mod loading;
mod open;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeSet;

pub use check::{ChainReport, StoreReport};
pub use control_file::{ControlFile, ControlFileError, CopyState, FoundControl};
pub use loading::{LoadProgress, LoadStep};
pub use open::{BegunStore, DamagePlace, DataDir, FoundStore, OpenError, OpenSettings};
use serde::{Deserialize, Serialize};
pub use writer::{DurableBatch, JournalWriter};

use crate::{
    ChainId, Incarnation, MemberId, NodeId,
    control::{Bootstrap, Configs, HeardStores, History, Relation, StoreStart, StoreStarts},
    journal::SyncMode,
};

/// What the control file of a store holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ControlRecord {
    /// The node that the store belongs to.
    pub node: NodeId,
    /// The store, with the number of its last start.
    pub incarnation: Incarnation,
    /// The last starts of the store, and what they found.
    pub starts: StoreStarts,
    /// Another node has refused this store, as an older copy.
    pub refused: bool,
    /// The cluster that the node belongs to, once it does.
    pub founding: Option<Bootstrap>,
    /// The history that the node belongs to, once it does.
    pub history: Option<History>,
    /// The newest configurations by which the chains of the node act, or may.
    pub configs: Option<Configs>,
    /// The number of the journal's newest segment. A journal can't tell that its last file is missing.
    pub segment: u64,
    /// The number of groups of the journal that are known to be synced. It is brought up to date now and then.
    pub synced: u64,
    /// The store was started without syncing each batch: after a power cut it may lack what was committed.
    pub weak: bool,
    /// Chains in which a weak store became a serving member again, in a start that syncs each batch.
    pub strong: BTreeSet<ChainId>,
    /// How far other stores have come.
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

    /// Another start of the store begins, over a control file that was written `control` times and so many groups of the
    /// journal. `id` is random.
    pub fn begin(&mut self, id: u64, control: u64, groups: u64) {
        self.incarnation.starts += 1;
        let start = StoreStart { number: self.incarnation.starts, id, control, groups };
        if self.refused { self.starts.begin_again(start) } else { self.starts.begin(start) }
    }

    /// The node belongs to this cluster. Only a founder knows the history that it belongs to by that: the cluster may have been
    /// recovered since.
    pub fn keep_founding(&mut self, me: MemberId, founding: &Bootstrap) {
        if founding.members.iter().any(|founder| founder.id.shares_store(me)) && self.history.is_none() {
            self.history = Some(History::first(founding.cluster));
        }
        self.founding = Some(founding.clone());
    }

    /// The chains of `me` are to act by `configs`. A store that syncs each batch has from now on all that is committed in a chain
    /// in which it serves. Configurations of a history that is over come too late: the node was recovered meanwhile.
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

    /// The node goes on with these configurations, in their history. No store of another history knows better.
    pub fn go_on(&mut self, configs: Configs) {
        self.refused &= self.history == Some(configs.history());
        (self.history, self.configs) = (Some(configs.history()), Some(configs));
    }

    /// Whether the store has all of `chain` that was committed while it served, even after a power cut.
    pub fn is_synced(&self, chain: ChainId) -> bool {
        !self.weak || self.strong.contains(&chain)
    }
}
