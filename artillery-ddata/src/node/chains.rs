//! The start of a node's chains, if its cluster has a configuration log: at once, or after the node's directory is loaded.

use std::{sync::Arc, thread};

use artillery_proto::{data_dir::BegunStore, journal::JournalError};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    data::Data,
    durable::{DataDirError, NodeDir},
    formed::ChainsStart,
    stage::Formed,
};
use crate::{
    Routing,
    driver::{
        chain::Rule,
        control::{ControlCommand, NodeState},
        phase::{NeverReady, NodePhase, Stopped},
    },
};

impl Data {
    /// Loads the store in the node's directory. Blocks until then.
    pub(super) fn load(self: &Arc<Self>, store: BegunStore) -> Result<(), DataDirError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let data = Arc::downgrade(self);
        dir.load(store, &self.store, move |error| match data.upgrade() {
            Some(data) => data.disk_failed(&error),
            None => tracing::error!(%error, "the disk of a node that was dropped has failed"),
        })?;
        if self.has_ended() {
            dir.stop();
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

    /// Whether this node has stopped and released its directory, perhaps before that was loaded.
    fn has_released(&self) -> bool {
        self.dir.as_ref().is_some_and(NodeDir::is_released)
    }

    /// Starts the chains. They do nothing before the control task commands it.
    pub(super) fn begin_chains(
        self: &Arc<Self>,
        formed: &Formed,
        state: watch::Receiver<NodeState>,
        chains: ChainsStart,
    ) {
        let ChainsStart { configs, leases, words, shows, ready } = chains;
        let handles = configs.iter().zip(shows).map(|(config, show)| {
            let rule = Rule::Log { leases: leases.clone(), words: words.clone() };
            Some(self.serve(config.chain, rule, show))
        });
        let handles = handles.collect();
        let cluster = formed.founding.cluster;
        self.local.form(Routing::of(cluster, &configs), handles);
        self.advance(NodePhase::Formed);
        tokio::spawn(self.clone().become_member(cluster, state, formed.standings.clone(), ready));
        // If the node stopped while it loaded, its end did not include these chains.
        if self.has_ended() {
            self.chains.close();
            self.local.close();
        }
    }

    /// Loads the directory while the control task runs, and then starts the chains.
    pub(super) async fn load_and_begin(
        self: Arc<Self>,
        store: BegunStore,
        formed: Arc<Formed>,
        state: watch::Receiver<NodeState>,
        chains: ChainsStart,
        commands: mpsc::Sender<ControlCommand>,
    ) {
        let (done, loaded) = oneshot::channel();
        let data = self.clone();
        // Not a thread of the runtime: the runtime would wait for it, though a node that stops needs nothing of this.
        let thread = thread::Builder::new().name("artillery-load".to_owned());
        let spawned = thread.spawn(move || drop(done.send(data.load(store))));
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
        let holds = self.dir.as_ref().and_then(NodeDir::holds).unwrap_or_default();
        self.begin_chains(&formed, state, chains);
        // The task has ended if the node has stopped.
        let _ = commands.send(ControlCommand::Loaded { holds }).await;
    }
}
