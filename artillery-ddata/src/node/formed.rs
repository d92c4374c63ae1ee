//! From `Started` to `Formed` (see `stage`): the node's cluster is known, and its chains start.

use std::{collections::BTreeMap, sync::Arc, thread};

use artillery_core::internal::{clock, watch};
use artillery_core::transport::ForeignPeer;
use artillery_proto::{
    data_dir::BegunStore,
    journal::JournalError,
    node::NodeInput,
    runner::{Lease, Word},
};
use tokio::sync::{mpsc, oneshot};

use super::{
    data::{Data, readiness},
    durable::{DataDirError, NodeDir},
    following::FollowStart,
    stage::{Formed, Reached, Started},
};
use crate::{
    ChainConfig, ChainId, MemberId, Routing,
    control::{Bootstrap, Configs},
    driver::{
        chain::{ChainReadiness, Rule},
        control::{COMMAND_QUEUE, ControlCommand, ControlQueues, NodeState},
        lanes::Lanes,
        phase::{NeverReady, NodePhase, Ready, Stopped},
    },
};

/// Values that a node gets when it is opened, and uses once its cluster is known.
pub(super) struct Unformed {
    pub(super) meetings: mpsc::Receiver<ForeignPeer>,
    /// The store in the node's directory, if it isn't loaded yet.
    pub(super) unloaded: Option<BegunStore>,
}

/// The values that start the chains of a node that follows a configuration log.
struct ChainsStart {
    configs: Arc<Configs>,
    leases: watch::Receiver<Lease>,
    words: mpsc::Sender<(ChainId, Word)>,
    /// One sender per chain, through which the chain publishes its readiness.
    shows: Vec<watch::Sender<ChainReadiness>>,
    ready: oneshot::Receiver<()>,
}

impl Data {
    /// Called once the cluster is known. Starts this node's chains, or the loading of its directory, after which they
    /// start.
    pub(super) fn formed(self: &Arc<Self>, founding: &Arc<Bootstrap>, unformed: Unformed) {
        let Some(started) = self.stage.started() else { return };
        tracing::info!(cluster = %founding.cluster, "this node belongs to a cluster");
        self.compare_timing(founding);
        let cluster = started.cluster.clone();
        let formed = match self.config.failover {
            true => self.form_with_log(started, founding, unformed.unloaded),
            false => self.form_for_good(started, founding),
        };
        tokio::spawn(self.clone().watch_others(cluster, formed, unformed.meetings));
    }

    /// Enters the state `Formed` before it announces the cluster, since another cluster's node may then refuse this one
    /// immediately.
    fn enter_formed(&self, formed: &Arc<Formed>) {
        self.stage.enter(Reached::Formed(formed.clone()));
        let (cluster, founding) = (formed.started.cluster.clone(), &formed.founding);
        cluster.set_predecessors(founding.succeeds.clone());
        cluster.set_gave_way(self.left_clusters(founding));
        let id = founding.cluster;
        tokio::spawn(async move { cluster.set_cluster_id(id).await });
    }

    /// Warns if the configured timing differs from the cluster's. Leases follow only the cluster's timing (trap 63).
    fn compare_timing(&self, founding: &Bootstrap) {
        let (own, timing) = (self.config.timing(), founding.timing);
        if own != timing {
            tracing::warn!(
                "this node was started with other times than its cluster's ({own}): it uses the cluster's ({timing})"
            );
        }
    }

    /// Starts this node's chains with the configurations of the bootstrap, which never change.
    fn form_for_good(self: &Arc<Self>, started: Arc<Started>, founding: &Arc<Bootstrap>) -> Arc<Formed> {
        let configs = Configs::of(founding);
        let is_mine = |config: &&ChainConfig| config.role(self.id()).is_some();
        let (shows, standings) = readiness(configs.iter().filter(is_mine).count());
        let formed = Arc::new(Formed { started, founding: founding.clone(), standings, state: None });
        self.enter_formed(&formed);
        let mut shows = shows.into_iter();
        let handles = configs.iter().map(|config| {
            let show = Some(config).filter(is_mine).and_then(|_| shows.next())?;
            let lanes = self.lanes(&formed, config);
            let rule = Rule::Fixed { config: Arc::new(config.clone()), history: configs.sessions_id(), lanes };
            Some(self.serve(config.chain, rule, show))
        });
        let handles = handles.collect();
        self.local.form(Routing::of(founding.cluster, &configs), handles);
        self.advance(NodePhase::Formed);
        let ready = Ready::new(self.place(), founding.cluster);
        tokio::spawn(self.clone().become_ready(ready, formed.standings.clone()));
        formed
    }

    fn lanes(&self, formed: &Formed, config: &ChainConfig) -> BTreeMap<MemberId, Lanes> {
        let members = &formed.founding.members;
        let others = members.iter().filter(|founder| founder.id != self.id() && config.role(founder.id).is_some());
        others.map(|other| (other.id, formed.started.hub.lanes(other.id.node, &other.addrs))).collect()
    }

    /// Starts to follow the configuration log, from the configurations in the directory or else in the bootstrap.
    fn form_with_log(
        self: &Arc<Self>,
        started: Arc<Started>,
        founding: &Arc<Bootstrap>,
        unloaded: Option<BegunStore>,
    ) -> Arc<Formed> {
        let kept = self.dir.as_ref().and_then(|dir| dir.place.control.look(|record| record.configs.clone()));
        let configs = Arc::new(kept.unwrap_or_else(|| Configs::of(founding)));
        let (commands, command_queue) = mpsc::channel(COMMAND_QUEUE);
        let (words, word_queue) = mpsc::channel(COMMAND_QUEUE);
        let leases = watch::Sender::new(Lease::default());
        let (shows, standings) = readiness(configs.iter().count());
        let (show_state, state) = watch::channel(NodeState::default());
        let (show_ready, ready) = oneshot::channel();
        let queues = ControlQueues {
            commands: command_queue,
            words: word_queue,
            // Subscribed before this node reads its address, so that no change is missed.
            advertised: started.cluster.endpoint().watch_advertised_addrs(),
            standings: configs.iter().map(|config| config.chain).zip(standings.clone()).collect(),
            leases,
            state: show_state,
            ready: Some(show_ready),
        };
        let chains = ChainsStart { configs: configs.clone(), leases: queues.leases.subscribe(), words, shows, ready };
        let formed = Arc::new(Formed { started, founding: founding.clone(), standings, state: Some(state.clone()) });
        self.enter_formed(&formed);
        let follow = FollowStart {
            formed: formed.clone(),
            state: state.clone(),
            configs,
            loads: unloaded.is_some(),
            commands: commands.clone(),
            queues,
        };
        match unloaded {
            None => self.begin_chains(&formed, state, chains),
            Some(store) => {
                drop(tokio::spawn(self.clone().load_and_begin(store, formed.clone(), state, chains, commands)));
            }
        }
        tokio::spawn(self.clone().follow_log(follow));
        formed
    }

    /// Loads the store in the node's directory, if the node has one. Blocks until it is loaded.
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

    /// Reports the failed disk and stops the node, unless the node has released its directory.
    pub(super) fn disk_failed(&self, error: &JournalError) {
        if self.has_released() {
            return tracing::debug!(%error, "the journal ended after this node");
        }
        tracing::error!(%error, "the disk of this node has failed: the node stops");
        self.stop(Stopped::DiskFailed);
    }

    /// Whether this node has stopped and released its directory, perhaps before the directory was loaded.
    fn has_released(&self) -> bool {
        self.dir.as_ref().is_some_and(NodeDir::is_released)
    }

    /// Starts the chains. They are idle until the control task gives them orders.
    fn begin_chains(self: &Arc<Self>, formed: &Formed, state: watch::Receiver<NodeState>, chains: ChainsStart) {
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
        // If the node was stopped while its directory was loaded, these chains weren't closed with it.
        if self.has_ended() {
            self.chains.close();
            self.local.close();
        }
    }

    /// Loads the directory while the control task runs. Then starts the chains and notifies the control task.
    async fn load_and_begin(
        self: Arc<Self>,
        store: BegunStore,
        formed: Arc<Formed>,
        state: watch::Receiver<NodeState>,
        chains: ChainsStart,
        commands: mpsc::Sender<ControlCommand>,
    ) {
        let (done, loaded) = oneshot::channel();
        let data = self.clone();
        let load = move || drop(done.send(data.load(store)));
        let spawned = if clock::is_virtual() {
            load();
            Ok(())
        } else {
            // Use a thread outside of the runtime: the runtime would wait for its own blocking threads when it shuts down.
            thread::Builder::new().name("artillery-load".to_owned()).spawn(load).map(drop)
        };
        let failed = match (spawned, loaded.await) {
            (Ok(()), Ok(Ok(()))) => None,
            (Ok(()), Ok(Err(error))) => Some(error.into()),
            (Ok(()), Err(_)) => Some(NeverReady::Halted("the thread that loads the directory panicked".to_owned())),
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
        // Ignore errors: the control task may have ended.
        let _ = commands.send(ControlCommand::Input(NodeInput::Loaded { holds })).await;
    }
}
