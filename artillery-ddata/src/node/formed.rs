//! From `Started` to `Formed` (see `stage`): the node's cluster is known.

use std::{collections::BTreeMap, sync::Arc};

use artillery_core::transport::ForeignPeer;
use artillery_proto::{
    data_dir::BegunStore,
    runner::{Lease, Word},
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    data::{Data, readiness},
    following::FollowStart,
    stage::{Formed, Started},
};
use crate::{
    ChainConfig, ChainId, ClusterId, MemberId, Routing,
    control::{Bootstrap, Configs},
    driver::{
        chain::{ChainReadiness, Rule},
        control::{COMMAND_QUEUE, ControlQueues, NodeState},
        lanes::Lanes,
        phase::{NodePhase, Ready},
    },
};

/// Values that a node gets when it is opened, and needs when its cluster is known.
pub(super) struct Unformed {
    pub(super) meetings: mpsc::Receiver<ForeignPeer>,
    /// The store in the node's directory, if it is loaded after that.
    pub(super) unloaded: Option<BegunStore>,
}

/// Values that start the chains of a node that follows a configuration log.
pub(super) struct ChainsStart {
    pub(super) configs: Arc<Configs>,
    pub(super) leases: watch::Receiver<Lease>,
    pub(super) words: mpsc::Sender<(ChainId, Word)>,
    /// Each chain publishes its readiness in its own.
    pub(super) shows: Vec<watch::Sender<ChainReadiness>>,
    /// Notified once the node is ready.
    pub(super) ready: oneshot::Receiver<()>,
}

impl Data {
    /// Called once the cluster is known: starts to serve this node's part of it.
    pub(super) fn formed(self: &Arc<Self>, started: Arc<Started>, founding: &Arc<Bootstrap>, unformed: Unformed) {
        tracing::info!(cluster = %founding.cluster, "this node belongs to a cluster");
        self.compare_timing(founding);
        let (cluster, id) = (started.cluster.clone(), founding.cluster);
        cluster.set_predecessors(founding.succeeds.clone());
        cluster.set_gave_way(self.left_clusters(founding));
        let told = cluster.clone();
        tokio::spawn(async move { told.set_cluster_id(id).await });
        let formed = match self.config.failover {
            true => self.form_with_log(started, founding, unformed.unloaded),
            false => self.form_for_good(started, founding),
        };
        tokio::spawn(self.clone().watch_others(cluster, formed, unformed.meetings));
    }

    /// The clusters that gave way before this node joined its present one, which doesn't succeed them: a node of one of them that was
    /// away is notified when it is met.
    pub(super) fn left_clusters(&self, founding: &Bootstrap) -> Vec<ClusterId> {
        let is_left = |id: &ClusterId| *id != founding.cluster && !founding.succeeds.contains(id);
        self.after.iter().flat_map(|after| after.lineage.iter().copied()).filter(is_left).collect()
    }

    /// The state `Formed` has the timing of the cluster: this node asks for a lease or grants one only after that (trap 63).
    fn compare_timing(&self, founding: &Bootstrap) {
        let (own, timing) = (self.config.timing(), founding.timing);
        if own != timing {
            tracing::warn!(
                "this node was started with other times than its cluster's ({own}): it uses the cluster's ({timing})"
            );
        }
    }

    /// Serves by the founding's configuration, which never changes.
    fn form_for_good(self: &Arc<Self>, started: Arc<Started>, founding: &Arc<Bootstrap>) -> Arc<Formed> {
        let configs = Configs::of(founding);
        let is_mine = |config: &&ChainConfig| config.role(self.id()).is_some();
        let (shows, standings) = readiness(configs.iter().filter(is_mine).count());
        let formed = Formed { started, founding: founding.clone(), standings, state: None };
        let formed = self.stage.form(formed);
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
        let ready = Ready::new(self.role(), founding.cluster);
        tokio::spawn(self.clone().become_ready(ready, formed.standings.clone()));
        formed
    }

    fn lanes(&self, formed: &Formed, config: &ChainConfig) -> BTreeMap<MemberId, Lanes> {
        let members = &formed.founding.members;
        let others = members.iter().filter(|founder| founder.id != self.id() && config.role(founder.id).is_some());
        others.map(|other| (other.id, formed.started.hub.lanes(other.id.node, &other.addrs))).collect()
    }

    /// Serves by the configuration log, beginning with the configurations in the directory or with the founding's.
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
        let formed = Formed { started, founding: founding.clone(), standings, state: Some(state.clone()) };
        let formed = self.stage.form(formed);
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
}
