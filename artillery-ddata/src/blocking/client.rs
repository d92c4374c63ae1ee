//! A client for programs without a runtime.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use artillery_core::{config::TransportConfig, identity::Identity};

use super::{BlockingKv, runtime::within_runtime};
use crate::{
    Routing,
    client::{ClientError, Spread},
    driven::Driven,
};

/// A connection to a cluster for plain threads. One thread, in a small runtime of its own, drives its sockets; it ends
/// with the last of its clones and of the handles made from it.
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    runtime: Driven,
}

impl Client {
    /// Begins to describe a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder { inner: crate::Client::builder() }
    }

    /// The cluster's data.
    pub fn kv(&self) -> BlockingKv {
        BlockingKv::driven(self.client.kv(), self.runtime.clone())
    }

    /// Chains, members and addresses as they are known here now: perhaps old, never invented.
    pub fn routing(&self) -> Arc<Routing> {
        self.client.routing()
    }

    /// Closes all connections and tells the nodes. Calls under way end as if their connections were lost. Within a
    /// runtime it does nothing: there the connections end with the last handle.
    pub fn close(&self) {
        if !within_runtime() {
            self.runtime.handle().block_on(self.client.close());
        }
    }
}

/// A client for plain threads that is about to connect.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `connect` is called"]
pub struct ClientBuilder {
    inner: crate::ClientBuilder,
}

impl From<crate::ClientBuilder> for ClientBuilder {
    fn from(inner: crate::ClientBuilder) -> Self {
        Self { inner }
    }
}

impl ClientBuilder {
    /// The cluster's name (`artillery`); others are refused.
    pub fn cluster(self, name: impl Into<String>) -> Self {
        self.inner.cluster(name).into()
    }

    /// The cluster's secret.
    pub fn secret(self, secret: impl AsRef<[u8]>) -> Self {
        self.inner.secret(secret).into()
    }

    /// An identity, instead of one from a secret.
    pub fn identity(self, identity: Identity) -> Self {
        self.inner.identity(identity).into()
    }

    /// Adds an address at which a node may be found.
    pub fn seed(self, addr: SocketAddr) -> Self {
        self.inner.seed(addr).into()
    }

    /// Adds addresses at which nodes may be found.
    pub fn seeds(self, addrs: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.inner.seeds(addrs).into()
    }

    /// How it talks.
    pub fn transport(self, transport: TransportConfig) -> Self {
        self.inner.transport(transport).into()
    }

    /// Which member serves its reads ([`Spread::Sticky`]).
    pub fn spread(self, spread: Spread) -> Self {
        self.inner.spread(spread).into()
    }

    /// How long [`connect`](Self::connect) looks for a formed cluster (10 s).
    pub fn timeout(self, timeout: Duration) -> Self {
        self.inner.timeout(timeout).into()
    }

    /// Starts a thread, looks for the cluster, and learns its chains, members and addresses.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn connect(self) -> Result<Client, StartError> {
        if within_runtime() {
            return Err(StartError::WithinRuntime);
        }
        let runtime = Driven::start("artillery-client").map_err(StartError::Runtime)?;
        let client = runtime.handle().block_on(self.inner.connect())?;
        Ok(Client { client, runtime })
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Asked for within a runtime, which it would hold up: use [`Client`](crate::Client).
    #[error("a blocking client was asked for within a runtime")]
    WithinRuntime,
    /// The system gives no thread, or nothing to wait for sockets with.
    #[error("no thread and runtime of its own: {0}")]
    Runtime(#[source] io::Error),
    /// The cluster wasn't found, or doesn't let this client in.
    #[error(transparent)]
    Client(#[from] ClientError),
}
