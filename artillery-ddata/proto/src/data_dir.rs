//! The directory of a durable node: its control file, and the journal of its chains (docs/adr/0042).
//!
//! [`FoundStore`] reads and checks the files of the earlier start, [`BegunStore`] has recorded a new start of the
//! store, and [`LoadedStore`] has its chains in memory. One thread of the node runs its [`JournalWriter`].
//! [`StoreReport`] checks a directory that no node uses. All of them perform I/O only through
//! [`Disk`](crate::disk::Disk).

mod ballast;
mod check;
mod control_file;
mod loading;
mod open;
mod settings;
mod space;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeSet;

pub use check::{ChainReport, StoreReport};
pub use control_file::{ControlFile, ControlFileError, CopyState, WrittenRecord};
pub use loading::{LoadProgress, LoadStep};
pub use open::{BegunStore, DamagePlace, FoundStore, LoadedStore, OpenError};
use serde::{Deserialize, Serialize};
pub use settings::OpenSettings;
pub use writer::{DurableBatch, JournalWriter};

use crate::{
    ChainId, Incarnation, MemberId, NodeId,
    control::{Bootstrap, Configs, HeardStores, History, Relation, StoreStart, StoreStarts},
    journal::SyncMode,
};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ControlRecord {
    /// The node that owns the store.
    pub node: NodeId,
    /// The id of the store, with the number of its last start.
    pub incarnation: Incarnation,
    /// The last starts of the store, with the position that each one read.
    pub starts: StoreStarts,
    /// Another node has refused this store as an older copy.
    pub refused: bool,
    /// The cluster that the node belongs to, once it has joined one.
    pub founding: Option<Bootstrap>,
    /// The history that the node belongs to, once it is known.
    pub history: Option<History>,
    /// The newest configurations that the node's chains follow, or may be about to follow.
    pub configs: Option<Configs>,
    /// The number of the journal's newest segment, because the journal itself doesn't show that its last file is
    /// missing.
    pub segment: u64,
    /// A lower bound of the number of synced groups in the journal, updated from time to time.
    pub synced: u64,
    /// The store was started without syncing each batch, so committed updates may be missing after a power cut.
    pub weak: bool,
    /// Chains in which a weak store became a serving member again during a start that syncs each batch.
    pub strong: BTreeSet<ChainId>,
    /// The last known positions of other stores.
    pub heard: HeardStores,
    /// The log of configurations in the format of its group: votes, entries, a snapshot.
    pub log: Vec<u8>,
}

impl ControlRecord {
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

    /// Begins another start of the store, whose control file has been written `control` times and whose journal has
    /// `groups` groups. `id` is random.
    pub fn begin(&mut self, id: u64, control: u64, groups: u64) {
        self.incarnation.starts += 1;
        let start = StoreStart { number: self.incarnation.starts, id, control, groups };
        if self.refused { self.starts.begin_again(start) } else { self.starts.begin(start) }
    }

    /// Notes that the node belongs to this cluster. Only a founder's history follows from that: the cluster may have
    /// been recovered since.
    pub fn keep_founding(&mut self, me: MemberId, founding: &Bootstrap) {
        if founding.members.iter().any(|founder| founder.id.shares_store(me)) && self.history.is_none() {
            self.history = Some(History::first(founding.cluster));
        }
        self.founding = Some(founding.clone());
    }

    /// Notes that the chains of `me` will follow `configs`. If a weak store now syncs each batch, the chains in which
    /// it serves become strong. Configurations of an ended history are ignored: the node has been recovered since.
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

    /// Continues with these configurations. If their history differs from the present one, a refusal of the store ends.
    pub fn go_on(&mut self, configs: Configs) {
        self.refused &= self.history == Some(configs.history());
        (self.history, self.configs) = (Some(configs.history()), Some(configs));
    }

    /// Whether the store has every update of `chain` that was committed while it served, even after a power cut.
    pub fn is_synced(&self, chain: ChainId) -> bool {
        !self.weak || self.strong.contains(&chain)
    }
}
