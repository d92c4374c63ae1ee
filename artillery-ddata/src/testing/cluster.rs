mod builder;
mod check;
mod interruptions;
mod restart;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use artillery_core::{
    Incarnation, MemberId, NodeId,
    error::Refusal,
    internal::clock,
    transport::{Endpoint, IncomingStream, PeerInfo, PeerKind, Service},
};
pub use builder::Builder;
pub use check::{CheckFailed, Checked};

use super::{
    Fate, Trouble,
    node::{TestMember, local_info},
    setup::NodeSetup,
};
use crate::{
    Kv, Routing,
    rpc::{
        Candidates, SourceTasks,
        observer::{Observer, Witness},
        router::{LearnedRoutes, Router, Routes, Spread},
    },
};

/// A cluster in this process, on virtual time. Clones refer to the same cluster, which ends with the last clone.
///
/// The [module](super) documents the checks and the limitations.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<ClusterState>,
}

pub(super) struct ClusterState {
    pub(super) setup: NodeSetup,
    lives: Mutex<Lives>,
    witness: Arc<Witness>,
    clients: AtomicU32,
    crashed: Mutex<BTreeSet<NodeId>>,
    /// Once set, no further interruptions begin.
    calm: AtomicBool,
    _clock: clock::Followed,
}

/// The current incarnations of all nodes, and the configurations that name them.
struct Lives {
    members: Vec<Arc<TestMember>>,
    routing: Arc<Routing>,
}

impl Cluster {
    /// Starts to build a cluster.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.inner.setup.seed
    }

    /// A handle to the data, of a new client outside the cluster: each call simulates another process.
    pub fn client(&self) -> Kv {
        let number = self.inner.clients.fetch_add(1, Ordering::Relaxed);
        let router = self.inner.client(&format!("client-{number}"));
        // Set once, here: it can't fail.
        let _ = router.observer.set(Observer::new(self.inner.witness.clone(), number, None));
        Kv::new(router)
    }

    /// A handle to the data, of a node's own process.
    ///
    /// # Panics
    /// If the cluster has no such node.
    pub fn kv(&self, member: MemberId) -> Kv {
        self.inner.member(member).kv()
    }

    /// All nodes, in the order of their numbers. [`chain`](Self::chain) returns the nodes that serve the first chain.
    pub fn nodes(&self) -> Vec<MemberId> {
        self.inner.members().iter().map(|member| member.id).collect()
    }

    /// The members of the first chain, from head to tail.
    pub fn chain(&self) -> Vec<MemberId> {
        let routing = self.inner.routing();
        routing.chains.first().map_or_else(Vec::new, |config| config.serving().collect())
    }

    /// The head of the first chain, where writes enter.
    pub fn head(&self) -> MemberId {
        self.chain()[0]
    }

    /// The tail of the first chain, where writes are committed.
    pub fn tail(&self) -> MemberId {
        let chain = self.chain();
        chain[chain.len() - 1]
    }

    /// Kills a node without notifying its peers, permanently or until [`restart_all`](Self::restart_all). Its chains
    /// keep naming it: they commit no further writes, and their other members serve clean keys.
    #[doc(alias = "kill")]
    pub fn crash(&self, member: MemberId) {
        self.inner.end(&self.inner.member(member));
    }

    /// Pauses a node's process: it sends and receives nothing, and calls by its own handles wait. After three seconds
    /// other nodes drop their connections to it.
    pub fn pause(&self, member: MemberId) {
        self.inner.pause(member.node);
    }

    /// Resumes a paused process.
    pub fn resume(&self, member: MemberId) {
        self.inner.resume(member.node);
    }

    /// Cuts the link from one node to another, in that direction. Messages in transit wait. After three seconds the
    /// connections between the two are dropped, with those messages.
    pub fn cut(&self, from: MemberId, to: MemberId) {
        self.inner.setup.network.cut(from.node, to.node);
    }

    /// Mends a [`cut`](Self::cut) link.
    pub fn mend(&self, from: MemberId, to: MemberId) {
        self.inner.setup.network.mend(from.node, to.node);
    }

    /// Isolates a node: it keeps running, but no message passes between it and other nodes or clients.
    pub fn isolate(&self, member: MemberId) {
        self.inner.setup.network.set_apart(member.node);
    }

    /// Ends all cuts, isolations and pauses. Crashed nodes stay crashed.
    pub fn heal(&self) {
        self.inner.setup.network.heal();
        self.inner.witness.resume_all();
    }

    /// Makes the next write by any handle end with an unknown outcome, at its timeout. `fate` is its true outcome. Each
    /// further call applies to one more write.
    pub fn next_outcome_unknown(&self, fate: Fate) {
        self.inner.witness.next_fate(fate);
    }

    /// Changes the random faults from now on. Interruptions can only be set by the builder. Without
    /// [`lost_answers`](Trouble::lost_answers), this also cancels the pending effects of
    /// [`next_outcome_unknown`](Self::next_outcome_unknown).
    pub fn set_trouble(&self, trouble: Trouble) {
        self.inner.set_trouble(&trouble);
    }

    /// All recorded calls, one per line: request, answer and times. Each page of a scan is a line of its own.
    /// Repetitions under one request id share a line, and calls of [`Kv::resolve`] have none. The text is the same in
    /// each run with the same seed.
    pub fn history(&self) -> String {
        self.inner.history()
    }
}

impl ClusterState {
    fn member(&self, id: MemberId) -> Arc<TestMember> {
        let member = self.members().into_iter().find(|member| member.id.node == id.node);
        member.unwrap_or_else(|| panic!("{id} is not a node of this cluster"))
    }

    fn members(&self) -> Vec<Arc<TestMember>> {
        self.lives().members.clone()
    }

    fn routing(&self) -> Arc<Routing> {
        self.lives().routing.clone()
    }

    fn lives(&self) -> MutexGuard<'_, Lives> {
        // No code that holds the lock can panic halfway through a change.
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn crashed(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        // No code that holds the lock can panic halfway through a change.
        self.crashed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, name: &str) -> Arc<Router> {
        let routing = self.routing();
        let info = local_info(routing.cluster, Incarnation { store: 0, starts: 1 }, PeerKind::Client);
        let endpoint = self.setup.network.endpoint(name, info, Arc::new(RefusesStreams));
        client(endpoint, &routing)
    }

    pub(super) fn pause(&self, node: NodeId) {
        self.witness.pause(node);
        self.setup.network.set_apart(node);
    }

    pub(super) fn resume(&self, node: NodeId) {
        self.setup.network.rejoin(node);
        self.witness.resume(node);
    }

    pub(super) fn any_member(&self) -> NodeId {
        let members = self.members();
        let at = (self.setup.network.chance() * members.len() as f64) as usize;
        members[at.min(members.len() - 1)].id.node
    }

    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn set_trouble(&self, trouble: &Trouble) {
        self.setup.network.set_weather(trouble.weather());
        self.witness.set_chances(trouble.lost_answers, trouble.doubled_requests);
    }

    fn history(&self) -> String {
        let lines = |book: &mut crate::rpc::observer::book::Book| {
            book.entries.iter().map(|entry| format!("{entry}\n")).collect()
        };
        self.witness.with_book(lines)
    }
}

/// The router of a client that knows the cluster's routing from the start.
fn client(endpoint: Endpoint, routing: &Arc<Routing>) -> Arc<Router> {
    let routes = Routes::Asked(LearnedRoutes::new(routing.clone(), Candidates::new(), SourceTasks::default()));
    Router::of_client(routes, endpoint, Spread::Sticky)
}

struct RefusesStreams;

impl Service for RefusesStreams {
    fn admit(&self, _peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        Err(Refusal::Other("a client accepts no connections".to_owned()))
    }

    fn stream(&self, _peer: &Arc<PeerInfo>, _stream: IncomingStream) {}
}

impl Drop for ClusterState {
    fn drop(&mut self) {
        self.members().iter().for_each(|member| member.stop());
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("seed", &self.inner.setup.seed)
            .field("chain", &self.chain())
            .finish_non_exhaustive()
    }
}
