//! The data half of a node: the state that its handles, streams and tasks share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use artillery_core::{
    Cluster, Incarnation, MemberEvent, MemberId, SeedState, SeedStatus,
    error::{ConnectError, Refusal},
    identity::Identity,
    transport::{ForeignPeer, Service},
};
use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
};

use super::{
    durable::{DataDir, Durable},
    others::{MEETING_QUEUE, Others},
    recovery_access::RecoveryAccess,
    reporting::Reporting,
    service::DataService,
};
use crate::{
    ChainConfig, ChainId, ClusterId, Epoch, Place, Routing,
    config::{Config, Threads},
    control::{
        Bootstrap, ConfigLog, Configs, NodeInfo, Timing,
        formation::{self, After, Formation, FormationMessage, InvalidFormation},
        message::ArrangeError,
    },
    driver::BoxFuture,
    driver::phase::{NeverReady, NodePhase, Ready, Stopped},
    driver::{
        chain::{self, ChainCommand, ChainReadiness, Rule},
        control::{self, ControlEndpoint},
        forming::Forming,
        lanes::{Hub, Lanes},
        receive::ChainInlets,
        serve::Server,
    },
    local::{Local, handle::ChainHandle, room::Sizes},
    replica,
    rpc::router::Router,
    store::Store,
};

/// Formation messages that wait for their task.
const FORMATION_QUEUE: usize = 64;

enum MembershipEnd {
    Superseded,
    NameTaken(MemberId),
    Refused(Vec<SeedStatus>),
}

pub(crate) struct Data {
    pub(super) config: Config,
    pub(super) local: Arc<Local>,
    pub(super) chains: Arc<ChainInlets>,
    pub(super) cluster: OnceLock<Cluster>,
    pub(super) router: OnceLock<Arc<Router>>,
    pub(super) server: Arc<OnceLock<Arc<Server>>>,
    pub(super) hub: OnceLock<Arc<Hub>>,
    pub(super) door: Arc<OnceLock<Arc<ControlEndpoint>>>,
    /// The cluster, once it is known.
    pub(super) founding: OnceLock<Arc<Bootstrap>>,
    /// Whether the node has been told to leave and end.
    pub(super) is_leaving: AtomicBool,
    /// What this node does after its former cluster was given up.
    after: Option<After>,
    pub(super) reporting: Reporting,
    /// The configuration log; set once the node has a configuration that may change.
    pub(super) log: OnceLock<Arc<dyn ConfigLog>>,
    pub(super) recovery: OnceLock<RecoveryAccess>,
    pub(super) state: OnceLock<watch::Receiver<control::NodeState>>,
    /// The readiness of each chain served here; set once there are any.
    pub(super) standings: OnceLock<Vec<watch::Receiver<ChainReadiness>>>,
    pub(super) store: Arc<dyn Store>,
    /// The node's directory; unset if it has none.
    pub(super) durable: OnceLock<Durable>,
    /// The directory, if it is to be loaded once the node follows its cluster.
    pub(super) unloaded: Mutex<Option<DataDir>>,
    /// The runtimes of chain tasks, used in turn; at least one.
    chain_threads: Vec<Handle>,
    phase: watch::Sender<NodePhase>,
    formation: Mutex<Option<mpsc::Receiver<(MemberId, FormationMessage)>>>,
    formation_sender: mpsc::Sender<(MemberId, FormationMessage)>,
    /// Other clusters of this one's name.
    pub(super) others: watch::Sender<Others>,
    meetings: Mutex<Option<mpsc::Receiver<ForeignPeer>>>,
    meetings_sender: mpsc::Sender<ForeignPeer>,
}

/// Whether a seed refused this node because it belongs to another cluster of the same name.
fn is_of_another_cluster(seed: &SeedStatus) -> bool {
    let SeedState::Refused { reason, .. } = &seed.state else { return false };
    matches!(
        reason,
        ConnectError::Refused(Refusal::DifferentCluster { .. })
            | ConnectError::Rejected(Refusal::DifferentCluster { .. })
    )
}

impl Data {
    pub(crate) fn new(
        config: &Config,
        identity: &Identity,
        incarnation: Incarnation,
        store: Arc<dyn Store>,
        after: Option<After>,
        chain_threads: Vec<Handle>,
    ) -> Arc<Self> {
        let me = MemberId { node: identity.node(), incarnation };
        let (formation_sender, formation) = mpsc::channel(FORMATION_QUEUE);
        let (meetings_sender, meetings) = mpsc::channel(MEETING_QUEUE);
        Arc::new(Self {
            config: config.clone(),
            local: Arc::new(Local::new(me, identity.name().to_owned())),
            chains: Arc::default(),
            cluster: OnceLock::new(),
            router: OnceLock::new(),
            server: Arc::default(),
            hub: OnceLock::new(),
            door: Arc::default(),
            founding: OnceLock::new(),
            is_leaving: AtomicBool::new(false),
            after,
            reporting: Reporting::default(),
            log: OnceLock::new(),
            recovery: OnceLock::new(),
            state: OnceLock::new(),
            standings: OnceLock::new(),
            store,
            durable: OnceLock::new(),
            unloaded: Mutex::default(),
            chain_threads,
            phase: watch::Sender::new(NodePhase::Seeking),
            formation: Mutex::new(Some(formation)),
            formation_sender,
            others: watch::Sender::default(),
            meetings: Mutex::new(Some(meetings)),
            meetings_sender,
        })
    }

    /// The meetings with nodes of other clusters. There is one receiver.
    pub(super) fn take_meetings(&self) -> Option<mpsc::Receiver<ForeignPeer>> {
        self.meetings.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The service that receives peers' streams.
    pub(crate) fn service(&self) -> Arc<dyn Service> {
        Arc::new(DataService {
            chains: self.chains.clone(),
            server: self.server.clone(),
            formation: self.formation_sender.clone(),
            control: self.door.clone(),
            meetings: self.meetings_sender.clone(),
        })
    }

    fn server(self: &Arc<Self>, router: Arc<Router>) -> Arc<Server> {
        let data = Arc::downgrade(self);
        let status = Box::new(move || -> BoxFuture<Bytes> {
            let data = data.clone();
            Box::pin(async move {
                let Some(data) = data.upgrade() else { return Bytes::new() };
                // Plain data with string keys always has a JSON form.
                serde_json::to_vec(&data.status().await).unwrap_or_default().into()
            })
        });
        let max_value_bytes = self.config.limits.max_value_bytes as u64;
        let sizes = Sizes::new(self.config.limits.queue_bytes, &self.config.transport);
        let data = Arc::downgrade(self);
        let arrange = Box::new(move |wish| -> BoxFuture<Result<Option<Epoch>, ArrangeError>> {
            let data = data.clone();
            Box::pin(async move {
                let Some(data) = data.upgrade() else { return Err(ArrangeError::Stopped) };
                data.arrange(wish).await
            })
        });
        let server = Server::new(self.local.clone(), router, max_value_bytes, sizes, status);
        let server = server.with_arranger(arrange).with_recovery(Box::new(Arc::downgrade(self)));
        Arc::new(server)
    }

    /// Starts to look for the cluster, or to found it.
    pub(crate) fn start(self: &Arc<Self>, cluster: &Cluster, seed: u128) -> Result<Arc<Router>, InvalidFormation> {
        let endpoint = cluster.endpoint().clone();
        let is_driven = self.config.threads != Threads::Shared;
        let max_value_bytes = self.config.limits.max_value_bytes as u64;
        let router = Router::of_node(self.local.clone(), endpoint.clone(), max_value_bytes, is_driven);
        let hub = Arc::new(Hub::new(endpoint));
        // Set once, here: no other task has this node yet.
        let _ = (self.router.set(router.clone()), self.hub.set(hub.clone()), self.cluster.set(cluster.clone()));
        let _ = self.server.set(self.server(router.clone()));
        let messages = self.formation.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(messages) = messages {
            self.form(self.info(cluster), seed, messages, cluster, hub)?;
        }
        Ok(router)
    }

    fn form(
        self: &Arc<Self>,
        me: NodeInfo,
        seed: u128,
        messages: mpsc::Receiver<(MemberId, FormationMessage)>,
        cluster: &Cluster,
        hub: Arc<Hub>,
    ) -> Result<(), InvalidFormation> {
        let expect = u16::try_from(self.config.expect).unwrap_or(u16::MAX);
        let defaults = formation::FormationSettings::new(self.config.cluster.clone(), expect, self.config.chains);
        let settings = formation::FormationSettings {
            search: if cluster.looks_for_others() { defaults.search } else { Duration::ZERO },
            timing: self.config.timing(),
            after: self.after.clone(),
            existing: self.config.existing,
            ..defaults
        };
        let known = self.durable.get().and_then(Durable::founding).map(Arc::new);
        let formation = match &known {
            Some(founding) => Formation::member(me, settings, founding.clone())?,
            None => Formation::new(me, settings, seed)?,
        };
        let forming = Forming {
            me: self.id(),
            formation,
            messages,
            events: cluster.events(),
            hub,
            incarnations: BTreeMap::new(),
            yields: self.local.follow_yields(),
            cluster: cluster.clone(),
            is_stuck: false,
            has_directory: self.durable.get().is_some(),
            shown: self.reporting.formation.clone(),
        };
        self.watch(cluster);
        self.start_reports(cluster);
        let (data, ended) = (Arc::downgrade(self), Arc::downgrade(self));
        let forming = forming.run(self.phases(), move |founding| {
            if let Some(data) = data.upgrade() {
                data.formed(&founding);
            }
        });
        tokio::spawn(async move {
            if forming.await
                && let Some(data) = ended.upgrade()
            {
                data.stop(Stopped::Unformed);
            }
        });
        if let Some(founding) = known {
            self.formed(&founding);
        }
        Ok(())
    }

    /// Ends the node when every seed has refused it, when a later incarnation replaces it, or when another living process
    /// has its name.
    fn watch(self: &Arc<Self>, cluster: &Cluster) {
        let (data, cluster) = (Arc::downgrade(self), cluster.clone());
        let mut phases = self.phases();
        let mut events = cluster.events();
        let founds = self.after.as_ref().is_some_and(|after| after.founds);
        let weak = data.clone();
        let refused = {
            let cluster = cluster.clone();
            async move {
                let seeds = cluster.refused_by_all_seeds().await;
                // The only node of a cluster continues, whatever its seeds belong to.
                let differs = seeds.iter().any(is_of_another_cluster);
                match weak
                    .upgrade()
                    .is_some_and(|data| data.has_cluster() && (differs || data.phases().borrow().is_ready()))
                {
                    true => std::future::pending().await,
                    false => seeds,
                }
            }
        };
        tokio::spawn(async move {
            let ended = async { while phases.changed().await.is_ok() && !phases.borrow().is_final() {} };
            let superseded = async {
                while let Some(event) = events.next().await {
                    if matches!(event, MemberEvent::Superseded { .. }) {
                        return;
                    }
                }
                std::future::pending().await
            };
            let end = tokio::select! {
                biased;
                () = ended => return,
                () = superseded => MembershipEnd::Superseded,
                by = cluster.name_taken() => MembershipEnd::NameTaken(by),
                // A node that founds isn't ended by refusals: its seeds may still belong to the former cluster.
                seeds = refused, if !founds => MembershipEnd::Refused(seeds),
            };
            if let Some(data) = data.upgrade() {
                match end {
                    MembershipEnd::Superseded => data.stop(Stopped::Superseded),
                    MembershipEnd::NameTaken(by) => {
                        tracing::error!(
                            ?by,
                            name = data.name(),
                            "another process with this name is running: this one stops"
                        );
                        data.stop(Stopped::NameTaken);
                    }
                    MembershipEnd::Refused(seeds) => data.fail(NeverReady::refused(&seeds)),
                }
            }
        });
    }

    pub(crate) fn id(&self) -> MemberId {
        self.local.me
    }

    pub(crate) fn name(&self) -> &str {
        &self.local.name
    }

    /// This node, where it can be dialled now.
    pub(super) fn info(&self, cluster: &Cluster) -> NodeInfo {
        NodeInfo {
            id: self.id(),
            name: self.name().to_owned(),
            addrs: cluster.endpoint().advertised_addrs(),
            host: self.config.advertise_name.clone(),
        }
    }

    pub(crate) fn phases(&self) -> watch::Receiver<NodePhase> {
        self.phase.subscribe()
    }

    pub(super) fn advance(&self, phase: NodePhase) {
        self.phase.send_if_modified(|present| {
            let moves = !present.is_final();
            if moves {
                *present = phase;
            }
            moves
        });
    }

    /// Marks this node as one that will never be ready.
    pub(crate) fn fail(&self, why: NeverReady) {
        self.advance(NodePhase::Failed(why));
    }

    /// Ends all tasks. Only the first reason is kept.
    pub(crate) fn stop(&self, why: Stopped) {
        self.phase.send_if_modified(|present| {
            let moves = !matches!(present, NodePhase::Stopped(_));
            if moves {
                *present = NodePhase::Stopped(why);
            }
            moves
        });
        self.reporting.hub.close();
        self.chains.close();
        self.local.close();
        if let Some(router) = self.router.get() {
            router.stop();
        }
        if let Some(hub) = self.hub.get() {
            hub.close();
        }
        if let Some(durable) = self.durable.get() {
            durable.stop();
        }
    }

    /// Called once the cluster is known: starts to serve this node's part of it.
    fn formed(self: &Arc<Self>, founding: &Arc<Bootstrap>) {
        let (Some(cluster), Some(hub)) = (self.cluster.get(), self.hub.get()) else { return };
        tracing::info!(cluster = %founding.cluster, "this node belongs to a cluster");
        self.adopt(founding);
        cluster.set_predecessors(founding.succeeds.clone());
        cluster.set_gave_way(self.left_clusters(founding));
        let (told, id) = (cluster.clone(), founding.cluster);
        tokio::spawn(async move { told.set_cluster_id(id).await });
        match self.config.failover {
            true => self.follow_log(founding, cluster, hub),
            false => self.serve_for_good(founding, hub),
        }
        tokio::spawn(self.clone().watch_others(cluster.clone(), founding.cluster));
    }

    /// The clusters that gave way before this node joined its present one, which doesn't succeed them: a node of one of them that was
    /// away is notified when it is met.
    pub(super) fn left_clusters(&self, founding: &Bootstrap) -> Vec<ClusterId> {
        let is_left = |id: &ClusterId| *id != founding.cluster && !founding.succeeds.contains(id);
        self.after.iter().flat_map(|after| after.lineage.iter().copied()).filter(is_left).collect()
    }

    /// Adopts the timing of the cluster before this node asks for a lease or grants one (trap 63).
    fn adopt(&self, founding: &Arc<Bootstrap>) {
        // Set once, here: a node belongs to one cluster.
        let _ = self.founding.set(founding.clone());
        let (own, timing) = (self.config.timing(), founding.timing);
        if own != timing {
            tracing::warn!(
                "this node was started with other times than its cluster's ({own}): it uses the cluster's ({timing})"
            );
        }
    }

    /// The cluster's timing; `None` until the node's cluster is known.
    pub(crate) fn timing(&self) -> Option<Timing> {
        self.founding.get().map(|founding| founding.timing)
    }

    /// The length of the cluster's leases; zero until the cluster is known.
    pub(super) fn lease(&self) -> Duration {
        self.timing().map_or(Duration::ZERO, |timing| timing.lease)
    }

    /// Serves by the founding's configuration, which never changes.
    fn serve_for_good(self: &Arc<Self>, founding: &Bootstrap, hub: &Hub) {
        let configs = Configs::of(founding);
        let mut here = Vec::new();
        let mut standings = Vec::new();
        for config in configs.iter() {
            let handle = config.role(self.id()).map(|_| {
                let chain = config.chain;
                let (config, lanes) = (Arc::new(config.clone()), self.lanes(founding, config, hub));
                let rule = Rule::Fixed { config, history: configs.sessions_id(), lanes };
                let (standing, shown) = watch::channel(ChainReadiness::default());
                standings.push(shown);
                self.serve(chain, rule, standing)
            });
            here.push(handle);
        }
        self.local.form(Routing::of(founding.cluster, &configs), here);
        // Set once, here or in `follow_log`.
        let _ = self.standings.set(standings.clone());
        self.advance(NodePhase::Formed);
        tokio::spawn(self.clone().become_ready(Ready::new(self.role(), founding.cluster), standings));
    }

    fn lanes(&self, founding: &Bootstrap, config: &ChainConfig, hub: &Hub) -> BTreeMap<MemberId, Lanes> {
        let others =
            founding.members.iter().filter(|founder| founder.id != self.id() && config.role(founder.id).is_some());
        others.map(|other| (other.id, hub.lanes(other.id.node, &other.addrs))).collect()
    }

    /// Starts to serve a chain, whose readiness it shows.
    pub(super) fn serve(&self, chain: ChainId, rule: Rule, standing: watch::Sender<ChainReadiness>) -> ChainHandle {
        let settings = replica::ReplicaSettings {
            window: self.config.limits.window_bytes,
            max_value: self.config.limits.max_value_bytes,
            backlog: self.config.limits.backlog_bytes,
            sessions: self.config.limits.sessions_bytes,
            watches: self.config.limits.queue_bytes,
            // Writes since a snapshot began may keep as many bytes of old versions at its source. With the backlog that
            // makes at most a window and a backlog, for any joiner.
            joiner_buffer: self.config.limits.window_bytes / 2,
            durable: self.durable.get().is_some(),
            max_memory: self.config.limits.max_memory_bytes,
            ..replica::ReplicaSettings::default()
        };
        let (store, queue_bytes) = (self.store.clone(), self.config.limits.queue_bytes);
        let journal = self.durable.get().and_then(|durable| durable.chain(chain));
        let parts = chain::ChainParts { me: self.id(), chain, rule, settings, store, queue_bytes, journal, standing };
        let thread = &self.chain_threads[chain.0 as usize % self.chain_threads.len()];
        let (handle, inlets) = chain::spawn(parts, thread);
        self.chains.add(chain, inlets);
        handle
    }

    pub(super) fn routing(&self) -> Option<Arc<Routing>> {
        self.local.routing().borrow().clone()
    }

    /// This node's place in the first chain that it serves.
    pub(crate) fn role(&self) -> Place {
        let routing = self.routing();
        let places = routing.iter().flat_map(|routing| &routing.chains).map(|config| config.place(self.id()));
        places.into_iter().find(|&place| place != Place::Spare).unwrap_or(Place::Spare)
    }

    /// The status of each chain served here.
    pub(super) async fn chain_states(&self) -> Vec<replica::Status> {
        self.numbered_states().await.into_values().collect()
    }

    /// The same, by chain. A chain that doesn't name this node any more has a status too.
    pub(super) async fn numbered_states(&self) -> BTreeMap<ChainId, replica::Status> {
        let mut states = BTreeMap::new();
        for (chain, inlets) in self.chains.all() {
            let (asker, answer) = oneshot::channel();
            if inlets.commands.send(ChainCommand::Status(asker)).await.is_ok() {
                states.extend(answer.await.ok().map(|status| (chain, status)));
            }
        }
        states
    }
}
