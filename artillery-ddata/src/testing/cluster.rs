//! The cluster of a test.

mod builder;
mod check;
mod interruptions;

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
    internal::{clock, simulated::Network},
    transport::{Endpoint, IncomingStream, PeerInfo, PeerKind, Service},
};
pub use builder::Builder;
pub use check::{CheckFailed, Checked};

use super::{
    Fate, Trouble,
    node::{TestMember, local_info},
};
use crate::{
    Kv, Routing,
    rpc::{
        Candidates,
        observer::{Observer, Witness},
        router::{LearnedRoutes, Router, Routes, Spread},
    },
};

/// A cluster in this process, on virtual time. Clones are the same cluster; it ends with the last of them.
///
/// See the [module](super) for what it is and what it isn't.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<ClusterState>,
}

pub(super) struct ClusterState {
    seed: u64,
    pub(super) network: Network,
    members: Vec<TestMember>,
    routing: Arc<Routing>,
    witness: Arc<Witness>,
    clients: AtomicU32,
    crashed: Mutex<BTreeSet<NodeId>>,
    /// Nothing goes wrong by itself any more.
    calm: AtomicBool,
    _clock: clock::Followed,
}

impl Cluster {
    /// Begins to describe a cluster.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The seed that everything is drawn from.
    pub fn seed(&self) -> u64 {
        self.inner.seed
    }

    /// The data, for a client of its own beside the cluster: each call makes another one, as another process would be.
    pub fn client(&self) -> Kv {
        let number = self.inner.clients.fetch_add(1, Ordering::Relaxed);
        let router = self.inner.client(&format!("client-{number}"));
        // The only one to set it.
        let _ = router.observer.set(Observer::new(self.inner.witness.clone(), number, None));
        Kv::new(router)
    }

    /// The data, inside a node: the handle that its own process has.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn kv(&self, member: MemberId) -> Kv {
        self.inner.member(member).kv()
    }

    /// All nodes, by number; those that serve the first chain are [`chain`](Self::chain).
    pub fn nodes(&self) -> Vec<MemberId> {
        self.inner.members.iter().map(|member| member.id).collect()
    }

    /// The members of the first chain, from head to tail.
    pub fn chain(&self) -> Vec<MemberId> {
        let config = self.inner.routing.chains.first();
        config.map_or_else(Vec::new, |config| config.serving().collect())
    }

    /// Where the writes of the first chain enter.
    ///
    /// # Panics
    /// Never: a chain has members.
    pub fn head(&self) -> MemberId {
        self.chain()[0]
    }

    /// Where the writes of the first chain are committed.
    ///
    /// # Panics
    /// Never: a chain has members.
    pub fn tail(&self) -> MemberId {
        let chain = self.chain();
        chain[chain.len() - 1]
    }

    /// A node is gone, without a word and for ever, as when its process is killed. While its chain names it, nothing is
    /// written there; the others serve what is clean.
    #[doc(alias = "kill")]
    pub fn crash(&self, member: MemberId) {
        let inner = &self.inner;
        inner.crashed().insert(member.node);
        inner.network.kill(member.node);
        inner.member(member).stop();
        inner.witness.resume(member.node);
    }

    /// A node's process stands still: nothing comes from it or goes into it, and calls by its own handles wait.
    /// Others give their connections to it up after three seconds.
    pub fn pause(&self, member: MemberId) {
        self.inner.pause(member.node);
    }

    /// A process that stood still goes on.
    pub fn resume(&self, member: MemberId) {
        self.inner.resume(member.node);
    }

    /// Nothing passes from one node to another any more; what is on its way waits. After three seconds the connections
    /// between them are given up, with what was on its way.
    pub fn cut(&self, from: MemberId, to: MemberId) {
        self.inner.network.cut(from.node, to.node);
    }

    /// Takes [`cut`](Self::cut) back.
    pub fn mend(&self, from: MemberId, to: MemberId) {
        self.inner.network.mend(from.node, to.node);
    }

    /// Nothing passes from or to a node any more, also from and to clients; it goes on by itself.
    pub fn isolate(&self, member: MemberId) {
        self.inner.network.set_apart(member.node);
    }

    /// Takes back all cuts, isolations and pauses. The crashed stay crashed.
    pub fn heal(&self) {
        self.inner.network.heal();
        self.inner.witness.resume_all();
    }

    /// The next write by any handle ends with an unknown outcome, when its timeout is over; what became of it is `fate`.
    /// Called twice, it is about the next two writes.
    pub fn next_outcome_unknown(&self, fate: Fate) {
        self.inner.witness.next_fate(fate);
    }

    /// Changes what goes wrong by itself from now on. Interruptions begin and end with the cluster alone.
    pub fn set_trouble(&self, trouble: Trouble) {
        self.inner.set_trouble(&trouble);
    }

    /// All calls so far, one a line: what was asked and answered, and when. The same in each run with one seed.
    pub fn history(&self) -> String {
        self.inner.history()
    }
}

impl ClusterState {
    fn member(&self, id: MemberId) -> &TestMember {
        let member = self.members.iter().find(|member| member.id == id);
        member.unwrap_or_else(|| panic!("{id} is no node of this cluster"))
    }

    fn crashed(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        // No code that holds it can panic halfway through a change.
        self.crashed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, name: &str) -> Arc<Router> {
        let info = local_info(self.routing.cluster, Incarnation { store: 0, starts: 1 }, PeerKind::Client);
        let endpoint = self.network.endpoint(name, info, Arc::new(RefusesStreams));
        client(endpoint, &self.routing)
    }

    pub(super) fn pause(&self, node: NodeId) {
        self.witness.pause(node);
        self.network.set_apart(node);
    }

    pub(super) fn resume(&self, node: NodeId) {
        self.network.rejoin(node);
        self.witness.resume(node);
    }

    pub(super) fn any_member(&self) -> NodeId {
        let at = (self.network.chance() * self.members.len() as f64) as usize;
        self.members[at.min(self.members.len() - 1)].id.node
    }

    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn set_trouble(&self, trouble: &Trouble) {
        self.network.set_weather(trouble.weather());
        self.witness.set_chances(trouble.lost_answers, trouble.doubled_requests);
    }

    fn history(&self) -> String {
        let lines = |book: &mut crate::rpc::observer::book::Book| {
            book.entries.iter().map(|entry| format!("{entry}\n")).collect()
        };
        self.witness.with_book(lines)
    }
}

/// A client's way to the cluster, which knows from the start where that is.
fn client(endpoint: Endpoint, routing: &Arc<Routing>) -> Arc<Router> {
    let routes = Routes::Asked(LearnedRoutes::new(routing.clone(), Candidates::new()));
    Router::of_client(routes, endpoint, Spread::Sticky)
}

/// Nobody dials a client.
struct RefusesStreams;

impl Service for RefusesStreams {
    fn admit(&self, _peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        Err(Refusal::Other("a client takes nobody in".to_owned()))
    }

    fn stream(&self, _peer: &Arc<PeerInfo>, _stream: IncomingStream) {}
}

impl Drop for ClusterState {
    fn drop(&mut self) {
        self.members.iter().for_each(TestMember::stop);
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seed", &self.inner.seed).field("chain", &self.chain()).finish_non_exhaustive()
    }
}
