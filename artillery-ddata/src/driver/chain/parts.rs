//! The parts of a chain's task, and the commands to it.

use std::{collections::BTreeMap, sync::Arc};

use artillery_core::{
    MemberId,
    internal::{clock::NodeClock, watch},
};
use artillery_proto::runner::{ChainOrder, ChainReadiness, Lease, Word};
use tokio::sync::{mpsc, oneshot};

use crate::{
    ChainConfig, ChainId, ClusterId,
    driver::{journal::RunningJournal, lanes::Lanes},
    message::ChainFrame,
    replica::{ReplicaSettings, Status},
    store::Store,
};

/// A peer's frame, or a query.
#[allow(clippy::large_enum_variant, reason = "nearly all commands are frames; a box would be one more allocation each")]
pub(crate) enum ChainCommand {
    Frame { from: MemberId, frame: ChainFrame },
    Status(oneshot::Sender<Status>),
}

/// An order of the node, and the lanes to all other members of the configuration that the chain enters.
pub(crate) struct Ordered {
    pub(crate) order: ChainOrder,
    pub(crate) lanes: BTreeMap<MemberId, Lanes>,
}

/// The senders to a chain's task. The task ends when all of them, or all handles of the chain, are dropped.
#[derive(Clone)]
pub(crate) struct Inlets {
    pub(crate) commands: mpsc::Sender<ChainCommand>,
    pub(crate) orders: mpsc::Sender<Ordered>,
}

/// The source of the chain's configuration.
pub(crate) enum Rule {
    /// The configuration never changes; the lanes lead to all its other members.
    Fixed { config: Arc<ChainConfig>, history: ClusterId, lanes: BTreeMap<MemberId, Lanes> },
    /// The configuration log.
    Log {
        leases: watch::Receiver<Lease>,
        /// Carries the chain's words to its node.
        words: mpsc::Sender<(ChainId, Word)>,
    },
}

pub(crate) struct ChainParts {
    pub(crate) me: MemberId,
    pub(crate) chain: ChainId,
    pub(crate) clock: NodeClock,
    pub(crate) rule: Rule,
    pub(crate) settings: ReplicaSettings,
    pub(crate) store: Arc<dyn Store>,
    /// The most bytes of reads that may wait for the task. The same bound applies to small writes, and to large writes.
    pub(crate) queue_bytes: usize,
    /// `None`: the node has no directory.
    pub(crate) journal: Option<RunningJournal>,
    /// Publishes the chain's readiness. Receivers are not woken when only its progress changes.
    pub(crate) standing: watch::Sender<ChainReadiness>,
}
