//! A node of a test's cluster: a real node without membership and formation.

use std::sync::{Arc, OnceLock};

use artillery_core::{
    Incarnation, MemberId, NodeId,
    config::TransportConfig,
    transport::{Endpoint, LocalInfo, PeerKind},
};
use artillery_proto::disk::simulated::SimulatedDisk;
use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
};

use super::{disk::NodeDisk, setup::NodeSetup};
use crate::{
    ChainConfig, ClusterId, Kv, Routing,
    driver::{
        BoxFuture,
        chain::{self, ChainCommand, ChainParts, ChainReadiness, Rule},
        control::ControlEndpoint,
        lanes::Hub,
        receive::ChainInlets,
        serve::{OperatedNode, Server},
    },
    local::{Local, room::Sizes},
    node::service::{DataService, Entrances},
    replica::{ReplicaSettings, Status},
    rpc::observer::{Observer, Witness},
    rpc::router::Router,
    store::{MemoryStore, Store},
};

const MAX_VALUE: u64 = 64 << 20;
const QUEUE_BYTES: usize = 64 << 20;

/// A test's node has no status and accepts no command.
struct NoStatus;

impl OperatedNode for NoStatus {
    fn status(&self) -> BoxFuture<Bytes> {
        Box::pin(async { Bytes::from_static(b"{}") })
    }
}

/// The server of a test's node, once it is built. The node has no configuration log.
struct TestEntrance(Arc<OnceLock<Arc<Server>>>);

impl Entrances for TestEntrance {
    fn server(&self) -> Option<Arc<Server>> {
        self.0.get().cloned()
    }

    fn control(&self) -> Option<Arc<ControlEndpoint>> {
        None
    }
}

pub(super) struct TestMember {
    pub(super) id: MemberId,
    pub(super) number: u32,
    name: String,
    pub(super) endpoint: Endpoint,
    local: Arc<Local>,
    chains: Arc<ChainInlets>,
    router: Arc<Router>,
    hub: Arc<Hub>,
    pub(super) store: Arc<dyn Store>,
    disk: Option<NodeDisk>,
}

impl std::fmt::Debug for TestMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// The information that an endpoint of the cluster sends in its hello.
pub(super) fn local_info(cluster: ClusterId, incarnation: Incarnation, kind: PeerKind) -> LocalInfo {
    LocalInfo::new("test", incarnation, kind).with_cluster_id(Some(cluster))
}

impl TestMember {
    /// Starts a node that serves no chain yet, and loads its disk if it has one.
    pub(super) fn start(setup: &NodeSetup, number: u32, disk: Option<SimulatedDisk>) -> Self {
        let NodeSetup { network, cluster, seed, .. } = setup;
        let name = format!("node-{number}");
        let node = NodeId::from_name(&name);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(*seed));
        let new = Incarnation { store: number.into(), starts: 1 };
        let (incarnation, disk) = match disk.map(|disk| NodeDisk::open(disk, node, new.store, setup, &store)) {
            Some((incarnation, disk)) => (incarnation, Some(disk)),
            None => (new, None),
        };
        let id = MemberId { node, incarnation };
        let chains = Arc::<ChainInlets>::default();
        let server = Arc::new(OnceLock::new());
        // Formation messages are dropped, since the test forms the cluster. No other cluster exists, so meetings are
        // dropped too.
        let ((formation, _), (meetings, _)) = (mpsc::channel(1), mpsc::channel(1));
        let service = Arc::new(DataService {
            chains: chains.clone(),
            entrances: Box::new(TestEntrance(server.clone())),
            formation,
            meetings,
        });
        let endpoint = network.endpoint(&name, local_info(*cluster, id.incarnation, PeerKind::Node), service);
        let local = Arc::new(Local::new(id, name.clone()));
        let router = Router::of_node(local.clone(), endpoint.clone(), MAX_VALUE, false);
        let sizes = Sizes::new(QUEUE_BYTES, &TransportConfig::default());
        let serving = Server::new(local.clone(), router.clone(), MAX_VALUE, sizes, Box::new(NoStatus));
        // Set once, here: it can't fail.
        let _ = server.set(Arc::new(serving));
        let hub = Arc::new(Hub::new(endpoint.clone()));
        Self { id, number, name, endpoint, local, chains, router, hub, store, disk }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The node's disk.
    ///
    /// # Panics
    /// If it has none.
    pub(super) fn disk(&self) -> &NodeDisk {
        self.disk.as_ref().expect("the nodes of this cluster have no disks: see `Builder::durable`")
    }

    /// Starts the chains that the routing assigns to this node. Returns the readiness of each.
    pub(super) fn form(&self, routing: &Routing, settings: &ReplicaSettings) -> Vec<watch::Receiver<ChainReadiness>> {
        let mut standings = Vec::new();
        let chains = routing.chains.iter().map(|config| {
            config.role(self.id)?;
            let (standing, shown) = watch::channel(ChainReadiness::default());
            standings.push(shown);
            let (handle, inlets) = chain::spawn(self.parts(routing, config, settings, standing), &Handle::current());
            self.chains.add(config.chain, inlets);
            Some(handle)
        });
        let chains = chains.collect();
        self.local.form(routing.clone(), chains);
        standings
    }

    fn parts(
        &self,
        routing: &Routing,
        config: &ChainConfig,
        settings: &ReplicaSettings,
        standing: watch::Sender<ChainReadiness>,
    ) -> ChainParts {
        let others = config.members.iter().map(|member| member.id).filter(|id| *id != self.id);
        let lanes = others.map(|id| {
            let addrs = routing.nodes.get(&id.node).map_or(&[][..], |node| &node.addrs);
            (id, self.hub.lanes(id.node, addrs))
        });
        ChainParts {
            me: self.id,
            chain: config.chain,
            rule: Rule::Fixed {
                config: Arc::new(config.clone()),
                history: routing.history_id(),
                lanes: lanes.collect(),
            },
            settings: settings.clone(),
            store: self.store.clone(),
            queue_bytes: QUEUE_BYTES,
            journal: self.disk.as_ref().map(NodeDisk::journal),
            standing,
        }
    }

    pub(super) fn observe(&self, witness: &Arc<Witness>) {
        // Set once, when the node starts: it can't fail.
        let _ = self.router.observer.set(Observer::new(witness.clone(), self.number, Some(self.id.node)));
    }

    pub(super) fn kv(&self) -> Kv {
        Kv::new(self.router.clone())
    }

    pub(super) async fn statuses(&self) -> Vec<Status> {
        let mut statuses = Vec::new();
        for (_, inlets) in self.chains.all() {
            let (asker, answer) = oneshot::channel();
            if inlets.commands.send(ChainCommand::Status(asker)).await.is_ok() {
                statuses.extend(answer.await);
            }
        }
        statuses
    }

    pub(super) fn stop(&self) {
        self.chains.close();
        self.local.close();
        self.router.stop();
        self.hub.close();
        self.disk.iter().for_each(NodeDisk::end_process);
    }
}
