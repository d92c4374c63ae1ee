//! The data half of a node: the parts that its handles, streams and tasks share in all states.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak, atomic::AtomicBool},
    time::Duration,
};

use artillery_core::internal::watch;
use artillery_core::{Cluster, MemberId, MemberState};
use artillery_proto::control::encounter::Encountered;
use tokio::{runtime::Handle, sync::oneshot};

use super::{durable::NodeDir, events::EventHub, machine::Machine, service::Entrances, stage::Stage};
use crate::{
    ChainId, ClusterId, Place, Routing,
    config::Config,
    control::{Bootstrap, NodeInfo, Timing, formation::After},
    driver::{
        chain::{self, ChainCommand, ChainReadiness, Rule},
        control::{ChangeReasons, ConfigFeed, ControlEndpoint, NodeState},
        forming::FormationFacts,
        phase::{NeverReady, NodePhase, Stopped},
        receive::ChainInlets,
        serve::Server,
    },
    local::{Local, handle::ChainHandle},
    replica,
    store::Store,
};

pub(crate) struct Data {
    pub(super) config: Config,
    pub(super) machine: Machine,
    pub(super) local: Arc<Local>,
    pub(super) chains: Arc<ChainInlets>,
    pub(super) store: Arc<dyn Store>,
    /// `None`: the node keeps its data in memory only.
    pub(super) dir: Option<NodeDir>,
    /// The node's former cluster, if it was abandoned.
    pub(super) after: Option<After>,
    /// The runtimes of chain tasks, used in turn; at least one.
    pub(super) chain_threads: Vec<Handle>,
    pub(super) stage: Stage,
    pub(super) phase: watch::Sender<NodePhase>,
    pub(super) is_leaving: AtomicBool,
    pub(super) reporting: Reporting,
    /// Other clusters that have the same name as this node's cluster.
    pub(super) others: watch::Sender<Others>,
}

/// The state that the reports share with the rest of the node.
#[derive(Debug, Default)]
pub(super) struct Reporting {
    pub(super) hub: EventHub,
    pub(super) reasons: Arc<ChangeReasons>,
    pub(super) feed: Arc<ConfigFeed>,
    pub(super) formation: watch::Sender<Option<FormationFacts>>,
}

/// A node's knowledge of other clusters of its name.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Others {
    /// Why this node isn't ready, if other clusters are the reason.
    pub(super) unready: Option<Encountered>,
    pub(super) may_be_given_up: bool,
}

impl Entrances for Weak<Data> {
    fn server(&self) -> Option<Arc<Server>> {
        Some(self.upgrade()?.stage.started()?.server.clone())
    }

    fn control(&self) -> Option<Arc<ControlEndpoint>> {
        Some(self.upgrade()?.stage.following()?.control.clone())
    }
}

impl Data {
    pub(crate) fn id(&self) -> MemberId {
        self.local.me
    }

    pub(crate) fn name(&self) -> &str {
        &self.local.name
    }

    /// This node, with its present addresses.
    pub(super) fn info(&self, cluster: &Cluster) -> NodeInfo {
        NodeInfo {
            id: self.id(),
            name: self.name().to_owned(),
            addrs: cluster.endpoint().advertised_addrs(),
            host: self.config.advertise_name.clone(),
        }
    }

    pub(super) fn cluster(&self) -> Option<Cluster> {
        self.stage.started().map(|started| started.cluster.clone())
    }

    /// The state that the control task published last; `None` before the node's cluster is known, and with a fixed
    /// configuration.
    pub(super) fn state(&self) -> Option<NodeState> {
        self.stage.formed()?.state.as_ref().map(|state| state.borrow().clone())
    }

    pub(crate) fn phases(&self) -> watch::Receiver<NodePhase> {
        self.phase.subscribe()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.phase.borrow().is_final()
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

    pub(crate) fn fail(&self, why: NeverReady) {
        self.advance(NodePhase::Failed(why));
    }

    /// Stops the node's tasks. Only the reason of the first call is kept.
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
        if let Some(started) = self.stage.started() {
            started.router.stop();
            started.hub.close();
        }
        if let Some(dir) = &self.dir {
            dir.stop();
        }
    }

    /// Runs `what` until the node has stopped or failed.
    pub(super) async fn unless_stopped(&self, what: impl Future<Output = ()>) {
        let mut phases = self.phases();
        tokio::select! {
            biased;
            _ = phases.wait_for(NodePhase::is_final) => {}
            () = what => {}
        }
    }

    pub(super) fn has_cluster(&self) -> bool {
        self.stage.formed().is_some()
    }

    /// The cluster's timing; `None` before the node's cluster is known.
    pub(crate) fn timing(&self) -> Option<Timing> {
        self.stage.formed().map(|formed| formed.founding.timing)
    }

    /// The length of the cluster's leases; zero before the cluster is known.
    pub(super) fn lease(&self) -> Duration {
        self.timing().map_or(Duration::ZERO, |timing| timing.lease)
    }

    /// The clusters that this node left before it joined its present one, and that the present one doesn't name as
    /// predecessors. When this node meets nodes of those clusters, it notifies them.
    pub(super) fn left_clusters(&self, founding: &Bootstrap) -> Vec<ClusterId> {
        let is_left = |id: &ClusterId| *id != founding.cluster && !founding.succeeds.contains(id);
        self.after.iter().flat_map(|after| after.lineage.iter().copied()).filter(is_left).collect()
    }

    pub(super) fn routing(&self) -> Option<Arc<Routing>> {
        self.local.routing().borrow().clone()
    }

    /// This node's place in the first chain in which it isn't a spare; `Spare`, if there is none.
    pub(crate) fn place(&self) -> Place {
        let routing = self.routing();
        let places = routing.iter().flat_map(|routing| &routing.chains).map(|config| config.place(self.id()));
        places.into_iter().find(|&place| place != Place::Spare).unwrap_or(Place::Spare)
    }

    /// Starts the task of a chain, which publishes its readiness in `standing`.
    pub(super) fn serve(&self, chain: ChainId, rule: Rule, standing: watch::Sender<ChainReadiness>) -> ChainHandle {
        let limits = &self.config.limits;
        let settings = replica::ReplicaSettings {
            window: limits.window_bytes,
            max_value: limits.max_value_bytes,
            backlog: self.machine.backlog(&self.config),
            sessions: limits.sessions_bytes,
            watches: limits.queue_bytes,
            joiner_buffer: limits.window_bytes / 2,
            durable: self.dir.is_some(),
            max_memory: limits.max_memory_bytes,
            guards: self.machine.guards,
            ..replica::ReplicaSettings::default()
        };
        let (store, queue_bytes) = (self.store.clone(), limits.queue_bytes);
        let journal = self.dir.as_ref().and_then(NodeDir::journal);
        let (me, clock) = (self.id(), self.machine.clock.clone());
        let parts = chain::ChainParts { me, chain, clock, rule, settings, store, queue_bytes, journal, standing };
        let thread = &self.chain_threads[chain.0 as usize % self.chain_threads.len()];
        let (handle, inlets) = chain::spawn(parts, thread);
        self.chains.add(chain, inlets);
        handle
    }

    pub(super) async fn chain_states(&self) -> Vec<replica::Status> {
        self.numbered_states().await.into_values().collect()
    }

    /// The chains' states, by chain. A chain whose configuration no longer names this node has a state, too.
    pub(super) async fn numbered_states(&self) -> BTreeMap<ChainId, replica::Status> {
        let mut states = BTreeMap::new();
        for (chain, inlets) in self.chains.all() {
            let (caller, answer) = oneshot::channel();
            if inlets.commands.send(ChainCommand::Status(caller)).await.is_ok() {
                states.extend(answer.await.ok().map(|status| (chain, status)));
            }
        }
        states
    }
}

/// The channels on which `count` chains publish their readiness.
pub(super) fn readiness(count: usize) -> (Vec<watch::Sender<ChainReadiness>>, Vec<watch::Receiver<ChainReadiness>>) {
    std::iter::repeat_with(|| watch::channel(ChainReadiness::default())).take(count).unzip()
}

/// Whether the membership considers a node in this state alive.
pub(super) fn is_alive(state: MemberState) -> bool {
    matches!(state, MemberState::Alive | MemberState::Suspect)
}
