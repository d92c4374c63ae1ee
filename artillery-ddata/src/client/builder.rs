//! How a client is made.

use std::{net::SocketAddr, time::Duration};

use artillery_core::{config::TransportConfig, identity::Identity};

use super::{Candidates, Client, ClientError};
use crate::Kv;

/// Which member serves a client's reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Spread {
    /// Always the same while it is reached; another one for each client.
    #[default]
    Sticky,
    /// One after the other.
    RoundRobin,
}

/// A client that is about to connect.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `connect` is awaited"]
pub struct ClientBuilder {
    cluster: String,
    secret: Option<Vec<u8>>,
    identity: Option<Identity>,
    candidates: Candidates,
    waits_for_candidates: bool,
    transport: TransportConfig,
    spread: Spread,
    timeout: Duration,
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            cluster: "artillery".to_owned(),
            secret: None,
            identity: None,
            candidates: Candidates::new(),
            waits_for_candidates: false,
            transport: TransportConfig::default(),
            spread: Spread::default(),
            timeout: Duration::from_secs(10),
        }
    }

    /// The cluster's name (`artillery`); others are refused.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = name.into();
        self
    }

    /// The cluster's secret.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// An identity, instead of one from a secret.
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

    /// A list that grows while the client looks for the cluster: it waits for it until its timeout, even if nobody
    /// who stands there now lets it in. Seeds given before are added to it.
    pub fn candidates(mut self, candidates: Candidates) -> Self {
        self.candidates.all().into_iter().for_each(|addr| candidates.add(addr));
        self.candidates = candidates;
        self.waits_for_candidates = true;
        self
    }

    /// How it talks.
    pub fn transport(mut self, transport: TransportConfig) -> Self {
        self.transport = transport;
        self
    }

    /// Which member serves its reads ([`Spread::Sticky`]).
    pub fn spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// How long [`connect`](Self::connect) looks for a formed cluster (10 s).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Looks for the cluster, and learns its chains, members and addresses.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn connect(self) -> Result<Client, ClientError> {
        let _: (Option<Kv>, _) = (None, &self);
        todo!()
    }
}
