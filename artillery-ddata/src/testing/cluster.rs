mod builder;
mod check;
mod interruptions;
mod machine;
mod operators;
mod settle;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use artillery_core::{
    Incarnation, MemberId, NodeId,
    error::Refusal,
    internal::{clock, random},
    transport::{IncomingStream, LocalInfo, PeerInfo, PeerKind, Service},
};
pub use builder::Builder;
pub use check::{CheckFailed, Checked};
use tokio::task::JoinHandle;

use self::machine::{Setup, TestMachine};
use super::{Fate, Trouble};
use crate::{
    Kv, Node, Routing,
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
    setup: Setup,
    machines: Mutex<Vec<Arc<TestMachine>>>,
    /// Where clients look for the cluster.
    candidates: Candidates,
    witness: Arc<Witness>,
    clients: AtomicU32,
    /// The newest routing that any node has known; `None` until the cluster is formed.
    known: Mutex<Option<Arc<Routing>>>,
    /// Once set, no further interruptions begin.
    calm: AtomicBool,
    /// The task that causes interruptions and crashes.
    interruptions: Mutex<Option<JoinHandle<()>>>,
    /// The present random faults.
    trouble: Mutex<Trouble>,
    _clock: clock::Followed,
    _random: random::Seeded,
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
        self.node(member).kv()
    }

    /// The last process of a node, which may have ended. For example for [`Node::place`](crate::Node::place) and [`Node::events`](crate::Node::events). End it by
    /// [`stop`](Self::stop) or [`drain`](Self::drain) instead of its own methods.
    ///
    /// # Panics
    /// If the cluster has no such node.
    pub fn node(&self, member: MemberId) -> Node {
        let machine = self.inner.machine(member);
        machine.last().unwrap_or_else(|| panic!("{} was never started", machine.name()))
    }

    /// All nodes that were not [drained](Self::drain), in the order in which they were added, in their last incarnation.
    /// Some may have crashed. [`chain`](Self::chain) returns the nodes that serve the first chain.
    pub fn nodes(&self) -> Vec<MemberId> {
        let machines = self.inner.machines();
        machines.iter().filter(|machine| !machine.has_left()).map(|machine| machine.id()).collect()
    }

    /// The members of the first chain, from head to tail, in the newest configuration that a running node knows.
    pub fn chain(&self) -> Vec<MemberId> {
        let routing = self.inner.routing();
        routing.iter().flat_map(|routing| &routing.chains).take(1).flat_map(|config| config.serving()).collect()
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

    /// Changes the random faults from now on. If the builder set neither interruptions nor crashes, none begin. Without
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
    fn machine(&self, id: MemberId) -> Arc<TestMachine> {
        let machine = self.machines().into_iter().find(|machine| machine.id().node == id.node);
        machine.unwrap_or_else(|| panic!("{id} is not a node of this cluster"))
    }

    fn machines(&self) -> Vec<Arc<TestMachine>> {
        self.lock_machines().clone()
    }

    fn lock_machines(&self) -> MutexGuard<'_, Vec<Arc<TestMachine>>> {
        // No code that holds the lock can panic halfway through a change.
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_machine(&self) -> Arc<TestMachine> {
        let mut machines = self.lock_machines();
        let machine = Arc::new(TestMachine::new(&self.setup, machines.len() as u32 + 1));
        machines.push(machine.clone());
        self.candidates.add(self.setup.network.address(machine.name()));
        machine
    }

    /// The newest routing that any node has known; `None` until the cluster is formed.
    fn routing(&self) -> Option<Arc<Routing>> {
        // No code that holds the lock can panic halfway through a change.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for routing in self.running().filter_map(|(_, node)| node.routing()) {
            let newest = known.as_ref().map(|known| Arc::new(known.merged((*routing).clone())));
            *known = Some(newest.unwrap_or(routing));
        }
        known.clone()
    }

    fn client(&self, name: &str) -> Arc<Router> {
        let routing = self.routing().expect("a cluster is formed when it is handed out");
        let info = LocalInfo::new("test", Incarnation { store: 0, starts: 1 }, PeerKind::Client);
        let info = info.with_cluster_id(Some(routing.cluster));
        let endpoint = self.setup.network.endpoint(name, info, Arc::new(RefusesStreams));
        let routes = LearnedRoutes::new(routing, self.candidates.clone(), SourceTasks::default());
        Router::of_client(Routes::Asked(routes), endpoint, Spread::Sticky)
    }

    pub(super) fn pause(&self, node: NodeId) {
        self.witness.pause(node);
        self.setup.network.set_apart(node);
    }

    pub(super) fn resume(&self, node: NodeId) {
        self.setup.network.rejoin(node);
        self.witness.resume(node);
    }

    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        // No code that holds the lock can panic halfway through a change.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_trouble(&self, trouble: &Trouble) {
        *self.trouble() = *trouble;
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

struct RefusesStreams;

impl Service for RefusesStreams {
    fn admit(&self, _peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        Err(Refusal::Other("a client accepts no connections".to_owned()))
    }

    fn stream(&self, _peer: &Arc<PeerInfo>, _stream: IncomingStream) {}
}

impl Drop for ClusterState {
    fn drop(&mut self) {
        // Dropped nodes stop.
        self.machines().iter().for_each(|machine| machine.drop_node());
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
