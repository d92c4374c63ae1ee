//! Small clusters in this process. Their nodes share only a random name and a secret.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_ddata::{Client, Mode, Node, NodeBuilder, Place, client::Spread};

/// Far longer than any step of a test takes: only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const SECRET: &str = "a secret for tests alone";

#[derive(Clone, Default)]
pub struct Cuts(Arc<Mutex<CutAddrs>>);

#[derive(Default)]
struct CutAddrs {
    cut: BTreeSet<SocketAddr>,
    /// If set, all other addresses are cut, too.
    only: Option<BTreeSet<SocketAddr>>,
}

impl Cuts {
    pub fn cut(&self, addr: SocketAddr) {
        self.lock().cut.insert(addr);
    }

    pub fn mend(&self, addr: SocketAddr) {
        self.lock().cut.remove(&addr);
    }

    pub fn only(&self, addrs: impl IntoIterator<Item = SocketAddr>) {
        self.lock().only = Some(addrs.into_iter().collect());
    }

    pub fn heal(&self) {
        *self.lock() = CutAddrs::default();
    }

    pub fn passes(&self, addr: SocketAddr) -> bool {
        let addrs = self.lock();
        !addrs.cut.contains(&addr) && addrs.only.as_ref().is_none_or(|only| only.contains(&addr))
    }

    fn lock(&self) -> MutexGuard<'_, CutAddrs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct TestCluster {
    pub name: String,
    /// In order of start.
    pub nodes: Vec<Node>,
    pub cuts: Vec<Cuts>,
}

pub fn random_name() -> String {
    // The standard library's only source of randomness is enough for a name.
    let seed = std::collections::hash_map::RandomState::new();
    format!("test-{:016x}", std::hash::BuildHasher::hash_one(&seed, std::process::id()))
}

impl TestCluster {
    /// Starts `nodes` nodes, which find each other by a seed and form a cluster of that size.
    pub async fn start(nodes: u32) -> Self {
        Self::start_with(nodes, |builder| builder).await
    }

    pub async fn start_with(nodes: u32, change: impl Fn(NodeBuilder) -> NodeBuilder) -> Self {
        let mut cluster = Self { name: random_name(), nodes: Vec::new(), cuts: Vec::new() };
        for _ in 0..nodes {
            cluster.add(|builder| change(builder.expect(nodes))).await;
        }
        cluster.all_ready().await;
        cluster
    }

    /// Starts nodes with names, under which they can be restarted.
    pub async fn start_named(nodes: u32) -> Self {
        let mut cluster = Self { name: random_name(), nodes: Vec::new(), cuts: Vec::new() };
        for n in 0..nodes {
            cluster.add(|builder| builder.expect(nodes).name(format!("node-{n}"))).await;
        }
        cluster.all_ready().await;
        cluster
    }

    async fn all_ready(&self) {
        for node in &self.nodes {
            within(node.ready()).await.unwrap_or_else(|why| panic!("{node:?} is not ready: {why}"));
        }
    }

    pub async fn client(&self, spread: Spread) -> Client {
        let builder = Client::builder().cluster(&self.name).secret(SECRET).seed(self.nodes[0].addr());
        within(builder.spread(spread).connect()).await.unwrap()
    }

    pub async fn add(&mut self, change: impl Fn(NodeBuilder) -> NodeBuilder) -> Node {
        let cuts = Cuts::default();
        let filter = cuts.clone();
        let mut builder =
            Node::builder().cluster(&self.name).secret(SECRET).mdns(false).listen(([127, 0, 0, 1], 0).into());
        if let Some(first) = self.nodes.first() {
            builder = builder.seed(first.addr().to_string());
        }
        builder = builder.link_filter(Arc::new(move |addr| filter.passes(addr)));
        let node = change(builder).start().await.unwrap_or_else(|error| panic!("{error}"));
        self.nodes.push(node.clone());
        self.cuts.push(cuts);
        node
    }

    pub fn index(&self, place: Place) -> usize {
        let at = self.nodes.iter().position(|node| node.place() == place);
        at.unwrap_or_else(|| panic!("no node has place {place}"))
    }

    pub fn node(&self, place: Place) -> &Node {
        &self.nodes[self.index(place)]
    }

    pub fn cut(&self, a: Place, b: Place) {
        let (a, b) = (self.index(a), self.index(b));
        self.cuts[a].cut(self.nodes[b].addr());
        self.cuts[b].cut(self.nodes[a].addr());
    }

    pub fn heal(&self) {
        self.cuts.iter().for_each(Cuts::heal);
    }
}

/// A configuration without failover: nodes don't ask for leases and keep no log, so apart from heartbeats all frames
/// belong to requests.
pub fn fixed(builder: NodeBuilder) -> NodeBuilder {
    builder.configure(|config| config.failover = false)
}

pub fn classic(builder: NodeBuilder) -> NodeBuilder {
    builder.mode(Mode::Classic)
}

/// Fails the test instead of hanging when a future never completes.
pub async fn within<T>(what: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.unwrap_or_else(|_| panic!("nothing happened for {PATIENCE:?}"))
}

pub async fn until<F: Future<Output = bool>>(mut is_so: impl FnMut() -> F) {
    within(async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
