use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc, time::Duration};

use artillery_core::{
    Incarnation,
    config::TransportConfig,
    discovery::{Discovery, Seed, SeedError},
    error::{ConnectError, Refusal},
    identity::Identity,
    internal::first_of,
    transport::{Endpoint, IncomingStream, LocalInfo, PeerInfo, PeerKind, Service},
};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Candidates, ClientError, Spread, Unreached};
use crate::{
    Client, Routing,
    rpc::SourceTasks,
    rpc::router::{LearnedRoutes, Router, Routes, ask_on, from_now},
};

const CANDIDATE_TIMEOUT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Builds and connects a [`Client`]. It needs a secret or an identity, and a way to find a node: seeds, a list of
/// candidates, or a source. Defaults are in parentheses.
#[derive(Clone)]
#[must_use = "a builder does nothing until `connect` is awaited"]
pub struct ClientBuilder {
    cluster: String,
    secret: Option<Vec<u8>>,
    identity: Option<Identity>,
    also_trusted: Vec<Vec<u8>>,
    candidates: Candidates,
    bad_seed: Option<SeedError>,
    discovery: Vec<Arc<dyn Discovery>>,
    waits_for_candidates: bool,
    even_if_succeeded: bool,
    transport: TransportConfig,
    spread: Spread,
    timeout: Duration,
}

impl Client {
    /// Starts to build a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            cluster: "artillery".to_owned(),
            secret: None,
            identity: None,
            also_trusted: Vec::new(),
            candidates: Candidates::new(),
            bad_seed: None,
            discovery: Vec::new(),
            waits_for_candidates: false,
            even_if_succeeded: false,
            transport: TransportConfig::default(),
            spread: Spread::default(),
            timeout: Duration::from_secs(10),
        }
    }

    /// The cluster's name (`artillery`). Nodes of a cluster with another name are refused.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = name.into();
        self
    }

    /// The cluster's secret (none).
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// Also trusts nodes that hold this secret (none). For the time in which one secret replaces another: see
    /// [`Client::set_identity`].
    pub fn also_trust_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.also_trusted.push(secret.as_ref().to_vec());
        self
    }

    /// An identity (none). It is used instead of the [`secret`](Self::secret), if both are given.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Adds the location of a node (none): an address, or text such as `db-1.example:7400` or `[::1]:7400`. A host name
    /// is resolved at each dial, for at most 5 s, and all its addresses are tried. Other text makes
    /// [`connect`](Self::connect) fail with [`ClientError::Seed`].
    pub fn seed<S: TryInto<Seed, Error: Into<SeedError>>>(mut self, seed: S) -> Self {
        match seed.try_into() {
            Ok(seed) => self.candidates.add(seed),
            // `connect` reports the first error.
            Err(error) => {
                self.bad_seed.get_or_insert(error.into());
            }
        }
        self
    }

    /// Adds locations of nodes (none).
    pub fn seeds<S: TryInto<Seed, Error: Into<SeedError>>>(self, seeds: impl IntoIterator<Item = S>) -> Self {
        seeds.into_iter().fold(self, Self::seed)
    }

    /// Adds a source of locations (none), which is used while the client or a handle made from it exists. The source
    /// runs on a thread of its own, so it may block or fail. With a source, [`connect`](Self::connect) keeps looking
    /// until its timeout, even if no node admits the client now.
    pub fn discovery(mut self, source: impl Discovery) -> Self {
        self.discovery.push(Arc::new(source));
        self
    }

    /// Sets a list that may grow while the client looks for the cluster (none). With it, [`connect`](Self::connect)
    /// keeps looking until its timeout, even if no listed node admits the client now. Seeds given before are added to
    /// the list.
    pub fn candidates(mut self, candidates: Candidates) -> Self {
        self.candidates.all().into_iter().for_each(|seed| candidates.add(seed));
        self.candidates = candidates;
        self.waits_for_candidates = true;
        self
    }

    /// Settings of the transport ([`TransportConfig::default`]). The socket must be able to reach the nodes: the
    /// default one reaches all addresses. The client never accepts a connection.
    pub fn transport(mut self, transport: TransportConfig) -> Self {
        self.transport = transport;
        self
    }

    /// Which member serves the client's reads ([`Spread::Sticky`]).
    pub fn spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// Also connects to a node that serves nothing because an operator replaced its cluster by another one, to inspect
    /// the node or to make it continue ([`Client::recover`]) (no: such a node counts as one whose cluster isn't
    /// formed).
    pub fn even_if_succeeded(mut self) -> Self {
        self.even_if_succeeded = true;
        self
    }

    /// How long [`connect`](Self::connect) looks for a formed cluster (10 s). It fails earlier if another attempt would
    /// fail like the last one at every location (the node refuses the client, the client doesn't trust the node, or the
    /// address can't be dialled), no node has reported an unformed cluster, and no location may be added.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Connects to the cluster, and queries its chains, members and addresses. The client's tasks run in the runtime in
    /// which this is awaited.
    ///
    /// # Errors
    /// [`ClientError`]: the settings can't be used, or no node of a formed cluster answered.
    pub async fn connect(self) -> Result<Client, ClientError> {
        let identity = match (&self.identity, &self.secret) {
            (Some(identity), _) => identity.clone(),
            (None, Some(secret)) => Identity::client_from_secret(secret)?,
            (None, None) => return Err(ClientError::NoIdentity),
        };
        let identity = self.also_trusted.iter().try_fold(identity, |all, secret| all.also_trust_secret(secret))?;
        if let Some(error) = self.bad_seed {
            return Err(ClientError::Seed(error));
        }
        if self.candidates.all().is_empty() && !self.waits() {
            return Err(ClientError::NoSeeds);
        }
        let local = LocalInfo::new(&self.cluster, Incarnation { store: 0, starts: 1 }, PeerKind::Client);
        let name = identity.name().into();
        let endpoint = Endpoint::bind(self.transport.clone(), identity, local, Arc::new(RefusesPeers))?;
        let sources = SourceTasks::begin(&self.discovery, &self.candidates);
        match self.find(&endpoint).await {
            Ok(routing) => {
                endpoint.set_cluster_id(routing.cluster);
                let first = Arc::new(routing);
                let routes = Routes::Asked(LearnedRoutes::new(first.clone(), self.candidates.clone(), sources));
                let router = Router::of_client(routes, endpoint.clone(), self.spread);
                Ok(Client { router, endpoint, first, candidates: self.candidates, name })
            }
            Err(error) => {
                endpoint.shutdown().await;
                Err(error)
            }
        }
    }

    /// Whether locations may be added while the client looks for the cluster.
    fn waits(&self) -> bool {
        self.waits_for_candidates || !self.discovery.is_empty()
    }

    /// Asks the candidates repeatedly until one knows the formed cluster, the time is over, or no further attempt can
    /// succeed. In each round the next candidate is asked when one fails, or after a short wait.
    async fn find(&self, endpoint: &Endpoint) -> Result<Routing, ClientError> {
        let deadline = from_now(self.timeout);
        let mut added = self.candidates.watch();
        let mut pause = FIRST_PAUSE;
        let mut unformed = false;
        let mut told = BTreeMap::new();
        loop {
            added.borrow_and_update();
            let asked = first_of(self.candidates.all(), |place| self.ask_place(endpoint, place, deadline));
            let failures: Vec<_> = match asked.await {
                Ok(routing) => return Ok(routing),
                Err(failures) => failures.into_iter().flat_map(|(_, why)| why).collect(),
            };
            unformed |= failures.iter().any(Option::is_none);
            let failures: Vec<_> = failures.into_iter().flatten().collect();
            let hopeless = !unformed && !self.waits() && failures.iter().all(Unreached::is_final);
            // The last attempt ends at the deadline. An earlier failure is more informative than that timeout.
            for failure in failures {
                let place = failure.place();
                if !failure.is_silence() || !told.contains_key(&place) {
                    told.insert(place, failure);
                }
            }
            if hopeless || Instant::now() >= deadline {
                let all = told.into_values().collect();
                return Err(if unformed { ClientError::NotFormed } else { ClientError::Unreachable(all) });
            }
            tokio::select! {
                _ = added.changed() => {}
                () = sleep_until(deadline.min(Instant::now() + pause)) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// Asks the node at each address of a location. `None` among the failures: a node answered, but showed no routing
    /// (see [`ask_on`]).
    async fn ask_place(
        &self,
        endpoint: &Endpoint,
        place: Seed,
        deadline: Instant,
    ) -> Result<Routing, Vec<Option<Unreached>>> {
        let found = timeout_at(deadline, place.resolve()).await;
        let addrs = match found {
            Ok(Ok(addrs)) => addrs,
            Ok(Err(reason)) => return Err(vec![Some(Unreached::Name { place, reason })]),
            Err(_) => return Err(vec![Some(Unreached::late(place))]),
        };
        let asked = first_of(addrs, |addr| ask(endpoint, addr, deadline, self.even_if_succeeded));
        asked.await.map_err(|failures| {
            let unreached = |(addr, reason)| Unreached::Addr { place: place.clone(), addr, reason };
            failures.into_iter().map(|(addr, why)| why.map(|reason| unreached((addr, reason)))).collect()
        })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("cluster", &self.cluster)
            .field("candidates", &self.candidates)
            .field("sources", &self.discovery.len())
            .finish_non_exhaustive()
    }
}

/// Asks the node at this address for its routing. `Err(None)`: it answered, but showed none (see [`ask_on`]).
async fn ask(
    endpoint: &Endpoint,
    addr: SocketAddr,
    deadline: Instant,
    anyway: bool,
) -> Result<Routing, Option<ConnectError>> {
    let until = deadline.min(Instant::now() + CANDIDATE_TIMEOUT);
    let connection = timeout_at(until, endpoint.connect(addr)).await.unwrap_or(Err(ConnectError::TimedOut));
    ask_on(&connection.map_err(Some)?, until, anyway).await.map_err(Some)?.ok_or(None)
}

struct RefusesPeers;

impl Service for RefusesPeers {
    fn admit(&self, _peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        Err(Refusal::Other("a client accepts no connections".to_owned()))
    }

    fn stream(&self, _peer: &Arc<PeerInfo>, _stream: IncomingStream) {}
}
