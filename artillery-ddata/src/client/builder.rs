//! Builds and connects a client.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use artillery_core::{
    Incarnation,
    config::TransportConfig,
    error::{ConnectError, Refusal},
    identity::Identity,
    internal::first_of,
    transport::{Endpoint, IncomingStream, LocalInfo, PeerInfo, PeerKind, Service},
};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Candidates, ClientError, Spread};
use crate::{
    Client, Routing,
    rpc::router::{LearnedRoutes, Router, Routes, ask_on, from_now},
};

/// How long one candidate may take to answer.
const CANDIDATE_TIMEOUT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A client that is about to connect.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `connect` is awaited"]
pub struct ClientBuilder {
    cluster: String,
    secret: Option<Vec<u8>>,
    identity: Option<Identity>,
    also_trusted: Vec<Vec<u8>>,
    candidates: Candidates,
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
            waits_for_candidates: false,
            even_if_succeeded: false,
            transport: TransportConfig::default(),
            spread: Spread::default(),
            timeout: Duration::from_secs(10),
        }
    }

    /// The cluster's name (default `artillery`); a cluster of another name is refused.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = name.into();
        self
    }

    /// The cluster's secret.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// Also trusts nodes that hold this secret, while one secret replaces another: see [`Client::set_identity`].
    pub fn also_trust_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.also_trusted.push(secret.as_ref().to_vec());
        self
    }

    /// An identity, instead of one made from a secret.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Adds an address at which a node may be found.
    pub fn seed(self, addr: SocketAddr) -> Self {
        self.candidates.add(addr);
        self
    }

    /// Adds addresses at which nodes may be found.
    pub fn seeds(self, addrs: impl IntoIterator<Item = SocketAddr>) -> Self {
        addrs.into_iter().for_each(|addr| self.candidates.add(addr));
        self
    }

    /// A list that may grow while the client looks for the cluster. With it, the client keeps looking until its
    /// timeout, even if no listed node admits it now. Seeds given before are added to the list.
    pub fn candidates(mut self, candidates: Candidates) -> Self {
        self.candidates.all().into_iter().for_each(|addr| candidates.add(addr));
        self.candidates = candidates;
        self.waits_for_candidates = true;
        self
    }

    /// Settings of the transport. The socket has to reach the nodes: by default it reaches all addresses, and it never accepts
    /// a connection.
    pub fn transport(mut self, transport: TransportConfig) -> Self {
        self.transport = transport;
        self
    }

    /// Which member serves the client's reads (default [`Spread::Sticky`]).
    pub fn spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// Also connects to a node that serves nothing, since an operator has given its cluster up for another one: to
    /// inspect it, and to make that node continue ([`Client::recover`]). By default a client keeps looking for the
    /// other cluster.
    pub fn even_if_succeeded(mut self) -> Self {
        self.even_if_succeeded = true;
        self
    }

    /// How long [`connect`](Self::connect) looks for a formed cluster (default 10 s).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Looks for the cluster, and learns its chains, members and addresses. The client's tasks run in the runtime in
    /// which this is awaited.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn connect(self) -> Result<Client, ClientError> {
        let identity = match (&self.identity, &self.secret) {
            (Some(identity), _) => identity.clone(),
            (None, Some(secret)) => Identity::client_from_secret(secret)?,
            (None, None) => return Err(ClientError::NoIdentity),
        };
        let identity = self.also_trusted.iter().try_fold(identity, |all, secret| all.also_trust_secret(secret))?;
        if self.candidates.all().is_empty() && !self.waits_for_candidates {
            return Err(ClientError::NoSeeds);
        }
        let local = LocalInfo::new(&self.cluster, Incarnation { store: 0, starts: 1 }, PeerKind::Client);
        let name = identity.name().into();
        let endpoint = Endpoint::bind(self.transport.clone(), identity, local, Arc::new(RefusesPeers))?;
        match self.find(&endpoint).await {
            Ok(routing) => {
                endpoint.set_cluster_id(routing.cluster);
                let first = Arc::new(routing);
                let routes = Routes::Asked(LearnedRoutes::new(first.clone(), self.candidates.clone()));
                let router = Router::of_client(routes, endpoint.clone(), self.spread);
                Ok(Client { router, endpoint, first, candidates: self.candidates, name })
            }
            Err(error) => {
                endpoint.shutdown().await;
                Err(error)
            }
        }
    }

    /// Asks the candidates in turn, without waiting long for a silent one, repeatedly, until one of them knows the formed cluster.
    async fn find(&self, endpoint: &Endpoint) -> Result<Routing, ClientError> {
        let deadline = from_now(self.timeout);
        let mut added = self.candidates.watch();
        let mut pause = FIRST_PAUSE;
        let mut unformed = false;
        let mut told = BTreeMap::new();
        loop {
            let addrs = added.borrow_and_update().clone();
            let asked = first_of(addrs, |addr| async move {
                match ask(endpoint, addr, deadline, self.even_if_succeeded).await {
                    Ok(Some(routing)) => Ok(routing),
                    Ok(None) => Err(None),
                    Err(error) => Err(Some(error)),
                }
            });
            let failures = match asked.await {
                Ok(routing) => return Ok(routing),
                Err(failures) => failures,
            };
            unformed |= failures.iter().any(|(_, why)| why.is_none());
            let failures: Vec<_> = failures.into_iter().filter_map(|(addr, why)| Some((addr, why?))).collect();
            let hopeless = !unformed && !self.waits_for_candidates && failures.iter().all(|(_, why)| is_final(why));
            // The last attempt ends at the deadline: what an earlier one was answered says more than that silence.
            for (addr, why) in failures {
                if why != ConnectError::TimedOut || !told.contains_key(&addr) {
                    told.insert(addr, why);
                }
            }
            if hopeless || Instant::now() >= deadline {
                let all = told.into_iter().collect();
                return Err(if unformed { ClientError::NotFormed } else { ClientError::Unreachable(all) });
            }
            tokio::select! {
                _ = added.changed() => {}
                () = sleep_until(deadline.min(Instant::now() + pause)) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }
}

async fn ask(
    endpoint: &Endpoint,
    addr: SocketAddr,
    deadline: Instant,
    anyway: bool,
) -> Result<Option<Routing>, ConnectError> {
    let until = deadline.min(Instant::now() + CANDIDATE_TIMEOUT);
    let connection = timeout_at(until, endpoint.connect(addr)).await.unwrap_or(Err(ConnectError::TimedOut))?;
    ask_on(&connection, until, anyway).await
}

/// Whether asking the same address again would fail in the same way.
fn is_final(error: &ConnectError) -> bool {
    match error {
        ConnectError::Untrusted(_) | ConnectError::BadAddress { .. } | ConnectError::Rejected(_) => true,
        ConnectError::Refused(refusal) => !matches!(refusal, Refusal::Busy | Refusal::TimedOut),
        _ => false,
    }
}

/// A client accepts no connections.
struct RefusesPeers;

impl Service for RefusesPeers {
    fn admit(&self, _peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        Err(Refusal::Other("a client takes nobody in".to_owned()))
    }

    fn stream(&self, _peer: &Arc<PeerInfo>, _stream: IncomingStream) {}
}
