//! How the chains of a node that follows its cluster's configurations begin: at once, or once the node's directory is loaded.

use std::{
    sync::{Arc, PoisonError},
    thread,
};

use artillery_proto::{
    journal::JournalError,
    runner::{Lease, Word},
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    data::Data,
    durable::{DataDir, DataDirError, Durable},
};
use crate::{
    ChainId, ClusterId, Routing,
    control::Configs,
    driver::phase::{NeverReady, NodePhase, Stopped},
    driver::{
        chain::{ChainReadiness, Rule},
        control::{ControlCommand, NodeState},
    },
};

/// What the chains are started with.
pub(super) struct ChainsStart {
    pub(super) cluster: ClusterId,
    pub(super) configs: Arc<Configs>,
    pub(super) leases: watch::Receiver<Lease>,
    pub(super) words: mpsc::Sender<(ChainId, Word)>,
    /// Where each of them shows its readiness.
    pub(super) shows: Vec<watch::Sender<ChainReadiness>>,
    pub(super) state: watch::Receiver<NodeState>,
    /// Notified once the node is ready.
    pub(super) ready: oneshot::Receiver<()>,
}

impl Data {
    /// Uses this directory from now on. Call it before the node starts. Returns the directory if it is to be loaded before that. A
    /// node that follows its cluster's configurations loads its directory later, and renews meanwhile, so that it counts as alive.
    pub(crate) fn keep_in(&self, dir: DataDir) -> Option<DataDir> {
        let durable = Durable::new(&dir);
        let waits = self.config.failover && durable.founding().is_some();
        // Set once, here.
        let _ = self.durable.set(durable);
        let (kept, first) = if waits { (Some(dir), None) } else { (None, Some(dir)) };
        *self.unloaded.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        first
    }

    /// Takes in what the directory holds. Blocks for as long as that takes.
    pub(crate) fn load(self: &Arc<Self>, dir: DataDir) -> Result<(), DataDirError> {
        let Some(durable) = self.durable.get() else { return Ok(()) };
        let data = Arc::downgrade(self);
        durable.load(dir, &self.store, move |error| match data.upgrade() {
            Some(data) => data.disk_failed(&error),
            None => tracing::error!(%error, "the disk of a node that was dropped has failed"),
        })?;
        if self.phases().borrow().is_final() {
            durable.stop();
        }
        Ok(())
    }

    /// Stops the node, unless it has stopped before. A node that never gets ready must report the failed disk, too.
    pub(super) fn disk_failed(&self, error: &JournalError) {
        if self.has_released() {
            return tracing::debug!(%error, "the journal ended after this node");
        }
        tracing::error!(%error, "the disk of this node has failed: the node stops");
        self.stop(Stopped::DiskFailed);
    }

    /// Whether this node has stopped and given its directory back, perhaps before that was loaded.
    fn has_released(&self) -> bool {
        self.durable.get().is_some_and(Durable::is_released)
    }

    /// Starts the chains. They do nothing before the configuration's task tells them to.
    pub(super) fn begin_chains(self: &Arc<Self>, chains: ChainsStart) {
        let ChainsStart { cluster, configs, leases, words, shows, state, ready } = chains;
        let handles = configs.iter().zip(shows).map(|(config, show)| {
            let rule = Rule::Log { leases: leases.clone(), words: words.clone() };
            Some(self.serve(config.chain, rule, show))
        });
        self.local.form(Routing::of(cluster, &configs), handles.collect());
        self.advance(NodePhase::Formed);
        let standings = self.standings.get().cloned().unwrap_or_default();
        tokio::spawn(self.clone().become_member(cluster, state, standings, ready));
        // If the node stopped while it loaded, these chains were not there to be ended.
        if self.phases().borrow().is_final() {
            self.chains.close();
            self.local.close();
        }
    }

    /// Loads the directory while the configuration's task runs, and then starts the chains.
    pub(super) async fn load_beside(
        self: Arc<Self>,
        dir: DataDir,
        chains: ChainsStart,
        commands: mpsc::Sender<ControlCommand>,
    ) {
        let (done, loaded) = oneshot::channel();
        let data = self.clone();
        // Not a thread of the runtime: that would wait for it, though a node that stops needs nothing of this.
        let thread = thread::Builder::new().name("artillery-load".to_owned());
        let spawned = thread.spawn(move || drop(done.send(data.load(dir))));
        let failed = match (spawned, loaded.await) {
            (Ok(_), Ok(Ok(()))) => None,
            (Ok(_), Ok(Err(error))) => Some(error.into()),
            (Ok(_), Err(_)) => Some(NeverReady::Halted("the thread that loads the directory panicked".to_owned())),
            (Err(error), _) => Some(NeverReady::Halted(error.to_string())),
        };
        if let Some(why) = failed {
            if self.has_released() {
                return;
            }
            tracing::error!(%why, "the directory of this node can't be loaded");
            return self.fail(why);
        }
        let holds = self.durable.get().and_then(Durable::holds).unwrap_or_default().to_vec();
        self.begin_chains(chains);
        // The task has ended if the node has stopped.
        let _ = commands.send(ControlCommand::Loaded { holds }).await;
    }
}
