use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    Cluster, ClusterInner, addresses,
    dialer::Dialer,
    driver::{MAX_INPUTS, MembershipDriver},
    hub::MemberHub,
    links::MembershipLinks,
    member::{self, MemberPrefix},
    record::DiscoveryRecord,
    router::ServiceRouter,
    solitude,
};
#[cfg(feature = "testing")]
use crate::transport::simulated::Network;
use crate::{
    clock,
    config::{SwimSettings, TransportConfig},
    discovery::{
        Announcement, Combined, ContainedDiscovery, Discovery, Interfaces, MDNS_PORT, MdnsDiscovery, MdnsSettings,
        Seed, SeedDiscovery, SeedError,
    },
    error::{IdentityError, PayloadError, StartError},
    id::{ClusterId, Incarnation},
    identity::Identity,
    membership::{LocalMember, Swim, SwimError},
    random,
    transport::{Endpoint, LocalInfo, PeerKind, Service, socket::LinkFilter},
};

/// Settings of a node. Only a secret or an identity is required. Defaults are in parentheses.
#[derive(Clone)]
#[must_use]
pub struct ClusterBuilder {
    cluster: String,
    name: Option<String>,
    secret: Option<Vec<u8>>,
    identity: Option<Identity>,
    payload: Bytes,
    incarnation: Option<Incarnation>,
    durable: bool,
    cluster_id: Option<ClusterId>,
    transport: TransportConfig,
    membership: SwimSettings,
    advertise_name: Option<Seed>,
    seeds: Vec<String>,
    mdns: bool,
    mdns_interfaces: Option<Interfaces>,
    mdns_port: u16,
    discovery: Vec<Arc<dyn Discovery>>,
    service: Option<Arc<dyn Service>>,
    filter: Option<LinkFilter>,
    #[cfg(feature = "testing")]
    network: Option<Network>,
    may_be_alone: bool,
}

impl ClusterBuilder {
    pub(super) fn new() -> Self {
        Self {
            cluster: "artillery".into(),
            name: None,
            secret: None,
            identity: None,
            payload: Bytes::new(),
            incarnation: None,
            durable: false,
            cluster_id: None,
            transport: TransportConfig::default(),
            membership: SwimSettings::default(),
            advertise_name: None,
            seeds: Vec::new(),
            mdns: true,
            mdns_interfaces: None,
            mdns_port: MDNS_PORT,
            discovery: Vec::new(),
            service: None,
            filter: None,
            #[cfg(feature = "testing")]
            network: None,
            may_be_alone: false,
        }
    }

    /// The cluster's name, 1 to 255 bytes (`artillery`). Nodes of other clusters are refused. With a name of more than
    /// 200 bytes, nodes do not find each other by multicast DNS.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = name.into();
        self
    }

    /// The node's stable name, used with [`ClusterBuilder::secret`] (a random name).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The secret shared by all nodes of the cluster: at least 16 random bytes (none).
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// The node's identity (none). If it is set, name and secret are ignored.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The payload that the node publishes, at most [`Member::MAX_PAYLOAD`](super::Member::MAX_PAYLOAD) bytes (empty).
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Whether the node keeps its data on disk (no). All nodes of a cluster must agree: others are refused.
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// The incarnation of this process (a new random one).
    pub fn incarnation(mut self, incarnation: Incarnation) -> Self {
        self.incarnation = Some(incarnation);
        self
    }

    /// The formation that the node already belongs to (none).
    pub fn cluster_id(mut self, id: Option<ClusterId>) -> Self {
        self.cluster_id = id;
        self
    }

    /// UDP address to listen on (`[::]:0`: all addresses of this machine, of both families).
    pub fn listen(mut self, addr: SocketAddr) -> Self {
        self.transport.listen = addr;
        self
    }

    /// The address that other nodes dial (the one listened on). An unspecified IP (`0.0.0.0`, `::`) means the addresses
    /// of this machine, and port 0 the port listened on.
    pub fn advertise(mut self, addr: SocketAddr) -> Self {
        self.transport.advertise = Some(addr);
        self
    }

    /// A host name of this node (none). The node resolves it every two seconds, and advertises its addresses once two
    /// successive answers agree. Until then, and while the name resolves only to addresses that others can't dial (such
    /// as loopback, although the node listens on others), the node advertises the addresses that it would advertise
    /// without a name. While lookups fail or return no address, the advertised addresses stay.
    pub fn advertise_name(mut self, name: Seed) -> Self {
        self.advertise_name = Some(name);
        self
    }

    /// Settings of the endpoint ([`TransportConfig::default`]). They replace those of earlier calls of
    /// [`ClusterBuilder::listen`] and [`ClusterBuilder::advertise`].
    pub fn transport(mut self, config: TransportConfig) -> Self {
        self.transport = config;
        self
    }

    /// Settings of the failure detector ([`SwimSettings::lan`]).
    pub fn membership(mut self, settings: SwimSettings) -> Self {
        self.membership = settings;
        self
    }

    /// Adds an address where a member may be found, as `HOST:PORT` (none). Duplicates are ignored. At most 1,024 seeds
    /// are dialled.
    pub fn seed(mut self, seed: impl Into<String>) -> Self {
        self.seeds.push(seed.into());
        self
    }

    /// Adds several seeds (none): see [`ClusterBuilder::seed`].
    pub fn seeds<S: Into<String>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Whether multicast DNS announces this node and searches for others (yes).
    pub fn mdns(mut self, on: bool) -> Self {
        self.mdns = on;
        self
    }

    /// Interfaces for multicast DNS (loopback if the node listens on loopback, else all). A node that was given an
    /// unspecified address to advertise, or none while it listens on all addresses, advertises the addresses of these
    /// interfaces.
    pub fn mdns_interfaces(mut self, interfaces: Interfaces) -> Self {
        self.mdns_interfaces = Some(interfaces);
        self
    }

    /// UDP port of multicast DNS (5353). Only nodes that use the same port find each other.
    pub fn mdns_port(mut self, port: u16) -> Self {
        self.mdns_port = port;
        self
    }

    /// Adds a source of addresses (none, apart from multicast DNS and seeds). It runs on a thread of its own, so it may
    /// block or fail.
    pub fn discovery(self, source: impl Discovery) -> Self {
        self.shared_discovery(Arc::new(source))
    }

    /// Like [`ClusterBuilder::discovery`], for a source that is shared with other builders or clients (none).
    pub fn shared_discovery(mut self, source: Arc<dyn Discovery>) -> Self {
        self.discovery.push(source);
        self
    }

    /// The service that receives peers' streams and calls (none): see [`Cluster::serve`].
    pub fn service(mut self, service: Arc<dyn Service>) -> Self {
        self.service = Some(service);
        self
    }

    /// Whether the node is meant to work alone (no). If not, and if it meets no other node within 10 s, it logs once
    /// its announcements, the announcements that it has received, and the state of each seed.
    pub fn may_be_alone(mut self, may: bool) -> Self {
        self.may_be_alone = may;
        self
    }

    /// A filter for every packet, for tests.
    #[doc(hidden)]
    pub fn filter(mut self, filter: LinkFilter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// A simulated network, used instead of a socket, for tests. The node listens at the network's address for its name.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn network(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    /// Checks all settings, binds the socket, and starts the search for other nodes. Requires a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]. Unavailable multicast DNS is logged and is no error.
    pub async fn start(self) -> Result<Cluster, StartError> {
        member::check(&self.payload)?;
        let seeds = read_seeds(&self.seeds)?;
        let identity = self.make_identity()?;
        let incarnation = self.incarnation.unwrap_or_else(new_incarnation);

        let record = Arc::new(DiscoveryRecord::new(seeds.iter().map(ToString::to_string)));
        let (inputs, received) = mpsc::channel(MAX_INPUTS);
        let router = Arc::new(ServiceRouter::new(inputs.clone(), self.service.clone(), Arc::clone(&record)));
        let endpoint = self.bind(&identity, incarnation, &router)?;
        let hub = Arc::new(MemberHub::default());
        let driver = MembershipDriver {
            swim: self.swim(&identity, &endpoint)?,
            links: MembershipLinks::new(endpoint.clone()),
            hub: Arc::clone(&hub),
            record: Arc::clone(&record),
            payload: self.payload.clone(),
            prefix: self.prefix(&endpoint),
            pending: BTreeMap::new(),
        };

        let looks = self.mdns || !seeds.is_empty() || !self.discovery.is_empty();
        let discovery = Arc::new(self.find(seeds, &record));
        let me = Announcement {
            cluster: self.cluster.clone(),
            node: endpoint.id().node,
            name: identity.name().to_owned(),
            addrs: endpoint.advertised_addrs(),
            by_interface: self.follows_interfaces(),
        };
        discovery.announce(&me);
        let candidates = discovery.candidates();
        let dialer = Dialer::new(endpoint.clone(), Arc::clone(&hub), Arc::clone(&record));
        let mut tasks = JoinSet::new();
        tasks.spawn(driver.run(received));
        tasks.spawn(addresses::announce_changes(endpoint.clone(), Arc::clone(&discovery), me, inputs.clone()));
        let follows = self.follows_interfaces().then(|| self.interfaces());
        match (self.advertise_name.clone(), follows) {
            (Some(name), follows) => drop(tasks.spawn(addresses::follow_name(endpoint.clone(), name, follows))),
            (None, Some(interfaces)) => drop(tasks.spawn(addresses::follow_interfaces(endpoint.clone(), interfaces))),
            (None, None) => {}
        }
        if !self.may_be_alone {
            let interfaces = self.mdns.then(|| self.interfaces());
            tasks.spawn(solitude::report(endpoint.clone(), Arc::clone(&record), interfaces));
        }
        tasks.spawn(async move {
            // Dropping the sources withdraws the announcement.
            let _announced = discovery;
            dialer.run(candidates).await;
            std::future::pending::<()>().await;
        });
        let name = identity.name().to_owned();
        let inner = ClusterInner {
            endpoint,
            name,
            cluster: self.cluster,
            hub,
            record,
            looks,
            router,
            inputs,
            tasks: Mutex::new(tasks),
        };
        Ok(Cluster { inner: Arc::new(inner) })
    }

    fn make_identity(&self) -> Result<Identity, StartError> {
        match (&self.identity, &self.secret) {
            (Some(identity), _) => Ok(identity.clone()),
            (None, Some(secret)) => {
                let name = self.name.clone().unwrap_or_else(random_name);
                Ok(Identity::from_secret(secret, &name)?)
            }
            (None, None) => Err(StartError::NoIdentity),
        }
    }

    /// Whether this machine's addresses are advertised, since no specific address was given.
    fn follows_interfaces(&self) -> bool {
        #[cfg(feature = "testing")]
        if self.network.is_some() {
            return false;
        }
        self.transport.advertise.unwrap_or(self.transport.listen).ip().is_unspecified()
    }

    fn bind(
        &self,
        identity: &Identity,
        incarnation: Incarnation,
        router: &Arc<ServiceRouter>,
    ) -> Result<Endpoint, StartError> {
        let kind = if self.durable { PeerKind::DurableNode } else { PeerKind::Node };
        let local = LocalInfo::new(&self.cluster, incarnation, kind).with_cluster_id(self.cluster_id);
        let config = self.transport.clone();
        let service = Arc::clone(router) as Arc<dyn Service>;
        #[cfg(feature = "testing")]
        if let Some(network) = &self.network {
            return Ok(network.endpoint_with(identity.name(), config, local, service));
        }
        let endpoint = match &self.filter {
            Some(filter) => Endpoint::bind_filtered(config, identity.clone(), local, service, Arc::clone(filter))?,
            None => Endpoint::bind(config, identity.clone(), local, service)?,
        };
        if self.follows_interfaces() {
            let (here, port) = (endpoint.local_addr(), endpoint.advertised_addr().port());
            match (addresses::advertisable(here, port, &self.interfaces()), self.interfaces()) {
                (addrs, Interfaces::Named(names)) if addrs.is_empty() => {
                    return Err(StartError::NoAdvertisableAddress { interfaces: names });
                }
                (addrs, _) if addrs.is_empty() => {
                    endpoint.set_advertised_addrs(vec![(Ipv4Addr::LOCALHOST, port).into()]);
                }
                (addrs, _) => endpoint.set_advertised_addrs(addrs),
            }
        }
        Ok(endpoint)
    }

    /// The prefix that this node advertises from the start. It lists the addresses if there are several, since SWIM
    /// itself carries only one.
    fn prefix(&self, endpoint: &Endpoint) -> MemberPrefix {
        let addrs = Some(endpoint.advertised_addrs()).filter(|addrs| addrs.len() > 1);
        MemberPrefix { cluster_id: self.cluster_id, addrs: addrs.unwrap_or_default() }
    }

    /// The interfaces for multicast DNS, and for the choice of addresses to advertise.
    fn interfaces(&self) -> Interfaces {
        self.mdns_interfaces.clone().unwrap_or_else(|| Interfaces::for_listener(self.transport.listen.ip()))
    }

    fn swim(&self, identity: &Identity, endpoint: &Endpoint) -> Result<Swim, StartError> {
        let local = LocalMember {
            id: endpoint.id(),
            name: identity.name().to_owned(),
            addr: endpoint.advertised_addr(),
            payload: member::wrap(&self.prefix(endpoint), &self.payload),
            started_at_ms: clock::unix_ms(),
        };
        let swim = Swim::new(local, self.membership.clone(), random::number());
        swim.map_err(|error| match error {
            SwimError::NameTooLong { .. } => IdentityError::BadName { name: identity.name().to_owned() }.into(),
            SwimError::PayloadTooLarge { len, limit } => PayloadError::TooLarge { len, limit }.into(),
            SwimError::Settings(problem) => StartError::Membership(problem),
        })
    }

    fn find(&self, seeds: Vec<Seed>, record: &DiscoveryRecord) -> Combined {
        let mut discovery = Combined::new().with(SeedDiscovery::new(seeds));
        for source in &self.discovery {
            discovery = discovery.with(ContainedDiscovery::new(Arc::clone(source)));
        }
        if self.mdns {
            let settings = MdnsSettings::new(self.cluster.clone()).interfaces(self.interfaces()).port(self.mdns_port);
            match MdnsDiscovery::new(settings) {
                Ok(mdns) => discovery = discovery.with(mdns),
                Err(error) => {
                    record.set_no_multicast(error.to_string());
                    tracing::warn!(%error, "nodes can be found by seeds only");
                }
            }
        }
        discovery
    }
}

/// Parses the seeds and removes duplicates (`DB:1` equals `db:1`). State is recorded once per seed, so a duplicate
/// would never leave its first state.
fn read_seeds(texts: &[String]) -> Result<Vec<Seed>, SeedError> {
    let mut known = BTreeSet::new();
    let mut seeds = texts.iter().map(|text| text.parse()).collect::<Result<Vec<Seed>, _>>()?;
    seeds.retain(|seed| known.insert(seed.clone()));
    Ok(seeds)
}

impl std::fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterBuilder")
            .field("cluster", &self.cluster)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn new_incarnation() -> Incarnation {
    Incarnation { store: random::wide(), starts: 1 }
}

fn random_name() -> String {
    let mut name = String::from("node-");
    let _ = write!(name, "{:016x}", random::number());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_count_once() {
        let texts = ["DB:1", "db:1", "[::1]:7400", "db:2", "[0:0::1]:7400", "Db:1"].map(String::from);
        let seeds: Vec<_> = read_seeds(&texts).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(seeds, ["db:1", "[::1]:7400", "db:2"]);
        assert!(read_seeds(&["db:1".into(), "db".into()]).is_err());
    }
}
