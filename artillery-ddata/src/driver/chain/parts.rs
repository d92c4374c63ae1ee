//! What the task of a chain is made of, and what it is told.

use std::{collections::BTreeMap, sync::Arc};

use artillery_core::{MemberId, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    ChainConfig, ChainId, ClusterId, Epoch,
    driver::{control, lanes::Lanes},
    replica::{Halt, Progress, Settings, Status},
    store::Store,
    wire::message::ChainFrame,
};

/// A peer's frame, what the configuration log says, or a question.
#[allow(clippy::large_enum_variant, reason = "nearly all commands are frames; a box would be one more allocation each")]
pub(crate) enum Command {
    Frame {
        from: MemberId,
        frame: ChainFrame,
    },
    Status(oneshot::Sender<Status>),
    /// This configuration names this member. `done` is told once it is acted by.
    Enter {
        config: Arc<ChainConfig>,
        /// The history that it belongs to.
        history: ClusterId,
        lanes: BTreeMap<MemberId, Lanes>,
        done: oneshot::Sender<()>,
    },
    /// The configuration of this epoch doesn't name this member.
    Expelled {
        epoch: Epoch,
        done: oneshot::Sender<()>,
    },
    /// As head of this epoch, order nothing until then.
    Close {
        epoch: Epoch,
        until: Timestamp,
    },
    /// Take no lease any more, and act by none.
    Resign(oneshot::Sender<()>),
    /// Take leases again.
    ServeAgain {
        leases: watch::Receiver<control::Lease>,
        done: oneshot::Sender<()>,
    },
}

/// Where the chain's configuration comes from.
pub(crate) enum Rule {
    /// It never changes: all its other members, and the lanes to them.
    Fixed { config: Arc<ChainConfig>, history: ClusterId, lanes: BTreeMap<MemberId, Lanes> },
    /// The configuration log does.
    Log {
        /// Until when the lease runs.
        leases: watch::Receiver<control::Lease>,
        /// Takes promotions that are asked for.
        wishes: mpsc::Sender<control::Command>,
    },
}

/// How far a chain has come here: what others wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// The epoch in which it is open here.
    pub(crate) open: Option<Epoch>,
    /// Why it stopped serving.
    pub(crate) halted: Option<Halt>,
    /// How far it has come. Receivers are not woken when that changes.
    pub(crate) progress: Progress,
}

/// Everything that a chain's task needs.
pub(crate) struct Parts {
    pub(crate) me: MemberId,
    pub(crate) chain: ChainId,
    pub(crate) rule: Rule,
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn Store>,
    /// Bytes of reads, and of writes, that wait for the task.
    pub(crate) queue_bytes: usize,
    /// Shown how the chain stands.
    pub(crate) standing: watch::Sender<Standing>,
}
