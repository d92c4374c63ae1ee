//! Builds a node from its settings and components.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use artillery_core::{
    Cluster, Incarnation, MemberId,
    discovery::{Discovery, Interfaces, Seed, SeedError},
    identity::Identity,
    internal::{LinkFilter, random},
};
use artillery_proto::data_dir::BegunStore;

use super::{
    durable::{DataDirError, NodeDir, NodeDisk},
    handle::{Node, NodeInner},
    loading::{Loading, Report, Reporter},
    machine::Machine,
    opened::Opened,
    starting::{StartError, blocking},
    threads::Workers,
};
use crate::{
    ClusterId, Kv, Mode,
    config::{Config, ConfigProblem, DataConfig, Threads},
    control::formation::After,
    disk::LockedDir,
    store::{MemoryStore, Store},
};

/// Builds a node from settings ([`Config`], plain data) and components. Only a secret or an identity is required.
/// Defaults are in parentheses.
#[derive(Default)]
pub struct NodeBuilder {
    config: Config,
    secret: Option<Vec<u8>>,
    identity: Option<Identity>,
    also_trusted: Vec<Vec<u8>>,
    bad_advertise: Option<ConfigProblem>,
    discovery: Vec<Arc<dyn Discovery>>,
    filter: Option<LinkFilter>,
    after: Option<After>,
    report: Option<Report>,
    machine: Machine,
}

impl From<Config> for NodeBuilder {
    fn from(config: Config) -> Self {
        Self { config, ..Self::default() }
    }
}

impl Node {
    /// Starts to build a node with default settings.
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    /// Starts to build a node with these settings.
    pub fn from_config(config: Config) -> NodeBuilder {
        NodeBuilder::from(config)
    }
}

impl NodeBuilder {
    /// The cluster's name (`artillery`). Nodes of a cluster with another name are refused.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.config.cluster = name.into();
        self
    }

    /// The cluster's secret, at least 16 bytes (none). Every process that has the secret may join.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Also admits peers that have this secret (none). For the time in which one secret replaces another: see
    /// [`Node::set_identity`].
    pub fn also_trust_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.also_trusted.push(secret.into());
        self
    }

    /// Certificates, used instead of a [`secret`](Self::secret) (none). The node's name is the one in the certificate.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The node's stable name, used with [`secret`](Self::secret) (the name stored in its directory, otherwise a random
    /// one).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = Some(name.into());
        self
    }

    /// Forms the cluster once this many nodes see each other (3). If nodes expect different numbers, the largest
    /// applies. With 1, a node that finds no other one forms the cluster alone, and others join later.
    pub fn expect(mut self, nodes: u32) -> Self {
        self.config.expect = nodes;
        self
    }

    /// Whether the cluster is known to exist (no). If so, a node without a directory, or whose directory names no
    /// cluster, creates none, and waits for a node of the cluster. Ignored with [`create_after`](Self::create_after).
    pub fn existing(mut self, is: bool) -> Self {
        self.config.existing = is;
        self
    }

    /// UDP address to listen on (`[::]:0`: all addresses of this machine, of both families). With port 0 the system
    /// chooses the port.
    pub fn listen(mut self, addr: SocketAddr) -> Self {
        self.config.transport.listen = addr;
        self
    }

    /// The address that other nodes dial (the one to listen on; if that means all addresses, those of this machine). It
    /// may be a host name with a port, such as `db-1.example:7400`: see [`Config::advertise_name`].
    pub fn advertise<S: TryInto<Seed, Error: Into<SeedError>>>(mut self, place: S) -> Self {
        match place.try_into() {
            Ok(place) => match place.addr() {
                Some(addr) => self.config.transport.advertise = Some(addr),
                None => self.config.advertise_name = Some(place.to_string()),
            },
            // `start` reports it.
            Err(error) => {
                let problem = error.into().to_string();
                self.bad_advertise = Some(ConfigProblem { field: "advertise".to_owned(), problem });
            }
        }
        self
    }

    /// Adds an address at which to look for other nodes, as `HOST:PORT` (none).
    pub fn seed(mut self, seed: impl Into<String>) -> Self {
        self.config.discovery.seeds.push(seed.into());
        self
    }

    /// Adds a source of addresses (none, apart from multicast DNS and seeds). It runs on a thread of its own, so that
    /// it may block or fail.
    pub fn discovery(mut self, source: impl Discovery) -> Self {
        self.discovery.push(Arc::new(source));
        self
    }

    /// Whether multicast DNS announces this node and searches for others (yes).
    pub fn mdns(mut self, on: bool) -> Self {
        self.config.discovery.mdns = on;
        self
    }

    /// The UDP port of multicast DNS (5353). Tests choose another one to stay isolated.
    pub fn mdns_port(mut self, port: u16) -> Self {
        self.config.discovery.mdns_port = Some(port);
        self
    }

    /// The number of serving members of each chain (3). In a cluster with fewer nodes, all of them serve. Ignored once
    /// the cluster is formed.
    pub fn replicas(mut self, members: u32) -> Self {
        self.config.chains.replicas = members;
        self
    }

    /// Where strong reads are served ([`Mode::Craq`]). Ignored once the cluster is formed.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.config.chains.mode = mode;
        self
    }

    /// The threads that the node works on ([`Threads::default`]: its own).
    pub fn threads(mut self, threads: Threads) -> Self {
        self.config.threads = threads;
        self
    }

    /// Keeps the node's data in this directory, where its next start finds it (no directory: in memory only). The
    /// directory keeps the node's name, too. Resets all other settings of [`Config::data`] to their defaults: call
    /// [`configure`](Self::configure) afterwards to change them.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.config.data = Some(DataConfig::new(dir));
        self
    }

    /// Calls this function about once a second with the progress of loading the directory, and once more when the
    /// directory is loaded, unless its journal was empty (no function). The function should return quickly.
    pub fn on_loading(mut self, report: impl Fn(Loading) + Send + Sync + 'static) -> Self {
        self.report = Some(Arc::new(report));
        self
    }

    /// The timeout of calls that set none (5 s).
    pub fn timeout(mut self, time: Duration) -> Self {
        self.config.timeout = time;
        self
    }

    /// Changes any other setting. [`Config`] documents the defaults.
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// For a node whose earlier incarnation stopped because its cluster was retired
    /// ([`Stopped::Retired`](super::Stopped::Retired)): the node creates a cluster that succeeds the former one.
    /// `lineage` is the result of [`Node::lineage`]. By default a node has no former cluster.
    pub fn create_after(mut self, lineage: Vec<ClusterId>) -> Self {
        self.after = Some(After { lineage, founds: true });
        self
    }

    /// For a node whose earlier incarnation stopped because another cluster succeeds its own
    /// ([`Stopped::Superseded`](super::Stopped::Superseded)): it joins that cluster, and creates none. `lineage` is the
    /// result of [`Node::lineage`]. By default a node has no former cluster.
    pub fn join_after(mut self, lineage: Vec<ClusterId>) -> Self {
        self.after = Some(After { lineage, founds: false });
        self
    }

    /// Drops packets, for tests that cut links.
    #[doc(hidden)]
    pub fn link_filter(mut self, filter: LinkFilter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Runs the node on a machine of a test.
    #[cfg(feature = "testing")]
    pub(crate) fn machine(mut self, machine: Machine) -> Self {
        self.machine = machine;
        self
    }

    /// Checks the settings and the directory, loads the directory, binds the sockets and starts to look for other
    /// nodes. With failover, a node that already belongs to a cluster loads its directory last, while it renews its
    /// place in the cluster. Call this within a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]: no node is running. The directory may have been created, or record the start.
    pub async fn start(self) -> Result<Node, StartError> {
        self.config.validate().map_err(StartError::Config)?;
        if let Some(problem) = self.bad_advertise {
            return Err(StartError::Config(vec![problem]));
        }
        let threads = Workers::start(self.config.threads, self.config.chains.chains).map_err(StartError::Threads)?;
        let started = threads.sockets().spawn(self.start_on(threads)).await;
        started.unwrap_or_else(|failed| match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(ended) => Err(StartError::Threads(io::Error::other(ended))),
        })
    }

    async fn start_on(self, threads: Workers) -> Result<Node, StartError> {
        let new = new_incarnation();
        let disk = lock(&self.config, &self.machine).await?;
        let identity = match (self.identity, &self.secret) {
            (Some(identity), _) => identity,
            (None, Some(secret)) => Identity::from_secret(secret, &name(&self.config, disk.as_ref(), new)?)?,
            (None, None) => return Err(StartError::NoIdentity),
        };
        let identity = self.also_trusted.iter().try_fold(identity, |all, secret| all.also_trust_secret(secret))?;
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_seed(random::number()));
        let dir = open(disk, &self.machine, &self.config, identity.name(), self.report).await?;
        if let (Some((dir, _)), Some(after)) = (&dir, &self.after) {
            dir.may_follow(&after.lineage)?;
        }
        let incarnation = dir.as_ref().map_or(new, |(_, begun)| begun.incarnation());
        let machine = self.machine.clone();
        let me = (MemberId { node: identity.node(), incarnation }, identity.name());
        let opened = Opened::new(&self.config, machine, me, store, self.after, threads.chains(), dir);
        let opened = opened.load().await?;
        let mut cluster = Cluster::builder()
            .cluster(self.config.cluster.clone())
            .identity(identity)
            .incarnation(incarnation)
            .durable(self.config.data.is_some())
            .transport(self.config.transport.clone())
            .mdns(self.config.discovery.mdns)
            .seeds(self.config.discovery.seeds.clone())
            .may_be_alone(
                self.config.expect == 1
                    && !self.config.existing
                    && self.config.discovery.seeds.is_empty()
                    && self.discovery.is_empty(),
            )
            .service(opened.service());
        if let Some(interface) = &self.config.discovery.interface {
            cluster = cluster.mdns_interfaces(Interfaces::Named(vec![interface.clone()]));
        }
        if let Some(name) = self.config.advertise_name.as_deref().and_then(|name| name.parse().ok()) {
            cluster = cluster.advertise_name(name);
        }
        if let Some(port) = self.config.discovery.mdns_port {
            cluster = cluster.mdns_port(port);
        }
        for source in self.discovery {
            cluster = cluster.shared_discovery(source);
        }
        if let Some(filter) = self.filter {
            cluster = cluster.filter(filter);
        }
        #[cfg(feature = "testing")]
        if let Some(network) = self.machine.network {
            cluster = cluster.network(network);
        }
        let cluster = cluster.start().await?;
        let (data, router) = opened.start(&cluster, random::wide())?;
        let kv = Kv::new(router).with_timeout(self.config.timeout);
        Ok(Node { inner: Arc::new(NodeInner { cluster, data, kv, _threads: threads }) })
    }
}

/// Locks the directory of a durable node.
async fn lock(config: &Config, machine: &Machine) -> Result<Option<NodeDisk>, StartError> {
    #[cfg(feature = "testing")]
    if let Some(disk) = machine.disk.clone() {
        return Ok(Some(NodeDisk::Simulated(disk)));
    }
    #[cfg(not(feature = "testing"))]
    let _ = machine;
    let Some(DataConfig { dir, .. }) = config.data.clone() else { return Ok(None) };
    let open = move || LockedDir::open(&dir).map_err(|error| DataDirError::of_directory(&dir, error));
    Ok(Some(NodeDisk::Directory(Arc::new(blocking(open).await?))))
}

/// Reads and checks the whole directory of a durable node, and records this start in it. `None`: the node has no
/// directory.
async fn open(
    disk: Option<NodeDisk>,
    machine: &Machine,
    config: &Config,
    name: &str,
    report: Option<Report>,
) -> Result<Option<(NodeDir, BegunStore)>, StartError> {
    let (Some(disk), Some(data)) = (disk, config.data.clone()) else { return Ok(None) };
    let (machine, config, name) = (machine.clone(), config.clone(), name.to_owned());
    let open = move || NodeDir::open(disk, &machine, &data, &config, &name, Reporter::new(report));
    Ok(Some(blocking(open).await?))
}

/// The node's name: the given one, otherwise the one in its directory, otherwise a random one. A directory with a
/// store, but without a name, is an error.
fn name(config: &Config, disk: Option<&NodeDisk>, new: Incarnation) -> Result<String, StartError> {
    match config.name.clone().or_else(|| disk?.name().map(str::to_owned)) {
        Some(name) => Ok(name),
        None if disk.is_some_and(NodeDisk::lacks_name) => Err(StartError::NoName),
        None => Ok(random_name(new)),
    }
}

/// The incarnation of a node without a directory. Such a node forgets everything at exit, so each start is the first of
/// a new store.
fn new_incarnation() -> Incarnation {
    Incarnation { store: random::wide(), starts: 1 }
}

fn random_name(incarnation: Incarnation) -> String {
    format!("node-{:016x}", (incarnation.store >> 64) as u64)
}
