//! A node for tests of the code around a chain: one endpoint on loopback, and chains without connections to other
//! members.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use artillery_core::{
    config::TransportConfig,
    identity::Identity,
    transport::{Endpoint, IncomingStream, LocalInfo, PeerInfo, PeerKind, Service},
};
use artillery_proto::runner::{ChainOrder, ChainRunner, Lease, RunnerOutput, Turn};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::serve::{OperatedNode, Server};
use crate::{
    ChainConfig, ChainId, ChainMember, ClusterId, Epoch, Incarnation, Kv, MemberId, Mode, NodeAddress, NodeId, Role,
    Routing, Timestamp,
    control::log::LogIndex,
    kv::Call,
    local::{
        Local,
        handle::{ChainHandle, Lines, Queued, ReadRequest, RequestQueue, Responder, WriteQueues, WriteRequest},
        room::Sizes,
    },
    replica::{Gate, ReplicaSettings},
    rpc::router::Router,
    store::{MemoryStore, Store},
    wire::streams::REQUESTS,
};

pub(crate) const SECRET: &[u8] = b"a secret that is only used in tests";

/// A cluster name that no other test or process uses.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn member(name: &str) -> MemberId {
    MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 7, starts: 1 } }
}

pub(crate) fn config(members: &[MemberId], epoch: u64) -> ChainConfig {
    ChainConfig {
        chain: ChainId(0),
        epoch: Epoch(epoch),
        index: epoch,
        mode: Mode::Craq,
        min_members: 1,
        members: members.iter().map(|&id| ChainMember { id, role: Role::Serving }).collect(),
    }
}

/// Whether the answer to a write is lost.
type Loses = fn(&WriteRequest) -> bool;

/// Starts a chain that acts by `config`, and has no connection to peers.
fn chain(me: MemberId, config: ChainConfig, history: ClusterId, loses: Loses) -> ChainHandle {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(7));
    let gate = Arc::new(Gate::new(config.chain));
    let chain = config.chain;
    let runner = ChainRunner::new(me, chain, ReplicaSettings::default(), store.clone(), gate.clone());
    let enter = ChainOrder::Enter { config: Arc::new(config), history, upto: LogIndex(1) };
    let lease = Some(Lease { until: Timestamp::MAX, ..Lease::default() });
    let turn = Received { lease, orders: vec![enter], ..Received::default() };
    let (reads, read_queue) = RequestQueue::new(8, QUEUE_BYTES);
    let (writes, write_queue) = Lines::new(8, QUEUE_BYTES, &ReplicaSettings::default());
    tokio::spawn(run(runner, turn, read_queue, write_queue, loses));
    ChainHandle { chain, clock: artillery_core::internal::clock::NodeClock::default(), gate, store, reads, writes }
}

type Received = Turn<Queued<ReadRequest>, Queued<WriteRequest>>;

async fn run(
    mut runner: ChainRunner<Responder>,
    mut turn: Received,
    mut reads: mpsc::Receiver<Queued<ReadRequest>>,
    mut writes: WriteQueues,
    loses: Loses,
) {
    loop {
        runner.take(artillery_core::internal::clock::now, &mut turn, |_| None);
        while let Some(output) = runner.poll_output() {
            if let RunnerOutput::Reply(responder, reply) = output {
                responder.reply(reply);
            }
        }
        while runner.poll_word().is_some() {}
        runner.settle(artillery_core::internal::clock::now);
        tokio::select! {
            read = reads.recv() => match read {
                Some(read) => turn.reads.push(read),
                None => return,
            },
            write = writes.small.recv() => match write {
                Some(mut write) => {
                    if loses(&write.request) {
                        write.request.caller = Responder::Caller(oneshot::channel().0);
                    }
                    turn.writes.push(write);
                }
                None => return,
            },
            () = tokio::time::sleep(Duration::from_millis(20)), if runner.waiting() > 0 => {}
        }
    }
}

pub(crate) struct FakeNode {
    pub(crate) local: Arc<Local>,
    pub(crate) router: Arc<Router>,
    pub(crate) endpoint: Endpoint,
    /// The server of the node's requests; `None`: the test serves them.
    pub(crate) server: Option<Arc<Server>>,
    pub(crate) serving: Arc<AtomicUsize>,
}

/// Handles an incoming request stream of a fake node.
type Serve = Arc<dyn Fn(IncomingStream) + Send + Sync>;

/// Answers a status query, but refuses operators' commands.
struct FineStatus;

impl OperatedNode for FineStatus {
    fn status(&self) -> Call<Bytes> {
        Box::pin(async { Bytes::from_static(b"{\"fine\":true}") })
    }
}

struct Streams(std::sync::OnceLock<Serve>);

impl Service for Streams {
    fn stream(&self, _peer: &Arc<PeerInfo>, stream: IncomingStream) {
        if stream.kind.0 == REQUESTS
            && let Some(serve) = self.0.get()
        {
            serve(stream);
        }
    }
}

pub(crate) const MAX_VALUE: u64 = 1 << 20;
pub(crate) const QUEUE_BYTES: usize = 1 << 20;

impl FakeNode {
    pub(crate) fn start(cluster: &str, name: &str) -> Self {
        Self::start_with_room(cluster, name, QUEUE_BYTES)
    }

    /// A node with a budget of `bytes` bytes for each kind of request, and for small answers.
    pub(crate) fn start_with_room(cluster: &str, name: &str, bytes: usize) -> Self {
        let (mut node, streams) = Self::bind(cluster, name);
        let sizes = Sizes::new(bytes, &TransportConfig::default());
        let server = Server::new(node.local.clone(), node.router.clone(), MAX_VALUE, sizes, Box::new(FineStatus));
        let server = Arc::new(server);
        node.server = Some(server.clone());
        let serving = node.serving.clone();
        let serve: Serve = Arc::new(move |stream| {
            let (server, serving) = (server.clone(), serving.clone());
            serving.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                server.serve(stream).await;
                serving.fetch_sub(1, Ordering::Relaxed);
            });
        });
        assert!(streams.0.set(serve).is_ok());
        node
    }

    /// A node that passes its request streams to `serve`.
    pub(crate) fn start_with(
        cluster: &str,
        name: &str,
        serve: impl Fn(IncomingStream) + Send + Sync + 'static,
    ) -> Self {
        let (node, streams) = Self::bind(cluster, name);
        assert!(streams.0.set(Arc::new(serve)).is_ok());
        node
    }

    fn bind(cluster: &str, name: &str) -> (Self, Arc<Streams>) {
        let me = member(name);
        let identity = Identity::from_secret(SECRET, name).expect("an identity");
        let info = LocalInfo::new(cluster, me.incarnation, PeerKind::Node).with_cluster_id(Some(ClusterId(1)));
        let streams = Arc::new(Streams(std::sync::OnceLock::new()));
        let endpoint = Endpoint::bind(TransportConfig::loopback(), identity, info, streams.clone()).expect("a socket");
        let local = Arc::new(Local::new(me, name.to_owned()));
        let router = Router::of_node(local.clone(), endpoint.clone(), MAX_VALUE, false);
        (Self { local, router, endpoint, server: None, serving: Arc::default() }, streams)
    }

    pub(crate) fn me(&self) -> MemberId {
        self.local.me
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    pub(crate) fn kv(&self) -> Kv {
        Kv::new(self.router.clone())
    }

    /// Sets the node's routing. The node gets an empty chain of its own for each chain that names it.
    pub(crate) fn form(&self, routing: &Routing) {
        self.form_losing(routing, |_| false);
    }

    /// Like [`form`](Self::form), with chains that lose the answers to some writes.
    pub(crate) fn form_losing(&self, routing: &Routing, loses: Loses) {
        let of = |config: &ChainConfig| {
            config.role(self.me()).map(|_| chain(self.me(), config.clone(), routing.history_id(), loses))
        };
        self.local.form(routing.clone(), routing.chains.iter().map(of).collect());
    }

    /// Sets the node's routing. The node serves only the first chain.
    pub(crate) fn form_first(&self, routing: &Routing) {
        let chain = chain(self.me(), routing.chains[0].clone(), routing.history_id(), |_| false);
        let others = routing.chains.iter().skip(1).map(|_| None);
        self.local.form(routing.clone(), std::iter::once(Some(chain)).chain(others).collect());
    }

    /// Same as [`form`](Self::form): the node serves all chains that name it.
    pub(crate) fn form_all(&self, routing: &Routing) {
        self.form(routing);
    }
}

pub(crate) fn routing(config: ChainConfig, nodes: &[&FakeNode]) -> Routing {
    let address = |node: &&FakeNode| {
        (node.me().node, NodeAddress { name: node.local.name.clone(), addrs: vec![node.addr()], host: None })
    };
    let history = crate::control::History::first(ClusterId(1));
    Routing::new(ClusterId(1), history, vec![config], nodes.iter().map(address).collect())
}

pub(crate) fn alone(cluster: &str) -> FakeNode {
    let node = FakeNode::start(cluster, "alone");
    node.form(&routing(config(&[node.me()], 1), &[&node]));
    node
}
