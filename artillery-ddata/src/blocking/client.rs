//! A blocking client, for programs without a runtime.

use std::{io, sync::Arc, time::Duration};

use artillery_core::{
    config::TransportConfig,
    discovery::{Discovery, Seed, SeedError},
    identity::Identity,
};

use super::{BlockingKv, runtime::within_runtime};
use crate::{
    Routing,
    client::{ClientError, Spread},
    driven::Driven,
};

/// Access to a cluster for plain threads. The client's own thread drives its sockets, in a small runtime. The thread
/// ends when the last clone of the client and the last [`BlockingKv`] made from it are dropped.
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    runtime: Driven,
}

impl Client {
    /// Starts to build a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder { inner: crate::Client::builder() }
    }

    /// The cluster's data.
    pub fn kv(&self) -> BlockingKv {
        BlockingKv::driven(self.client.kv(), self.runtime.clone())
    }

    /// The known chains, members and addresses. They may be outdated.
    pub fn routing(&self) -> Arc<Routing> {
        self.client.routing()
    }

    /// Closes all connections and notifies the nodes. Calls in progress end as if their connections were lost. Within a
    /// runtime this does nothing: there the connections close with the last handle.
    pub fn close(&self) {
        if !within_runtime() {
            self.runtime.handle().block_on(self.client.close());
        }
    }
}

/// Builds a blocking client.
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
    /// The cluster's name (`artillery`). Nodes of a cluster with another name are refused.
    pub fn cluster(self, name: impl Into<String>) -> Self {
        self.inner.cluster(name).into()
    }

    /// The cluster's secret (none). It isn't used if an [`identity`](Self::identity) is given.
    pub fn secret(self, secret: impl AsRef<[u8]>) -> Self {
        self.inner.secret(secret).into()
    }

    /// An identity, instead of one derived from a secret (none).
    pub fn identity(self, identity: Identity) -> Self {
        self.inner.identity(identity).into()
    }

    /// Adds the address of a node, or its host name with the port: see
    /// [`ClientBuilder::seed`](crate::ClientBuilder::seed).
    pub fn seed<S: TryInto<Seed, Error: Into<SeedError>>>(self, seed: S) -> Self {
        self.inner.seed(seed).into()
    }

    /// Adds addresses or host names of nodes.
    pub fn seeds<S: TryInto<Seed, Error: Into<SeedError>>>(self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.inner.seeds(seeds).into()
    }

    /// Adds a source of addresses: see [`ClientBuilder::discovery`](crate::ClientBuilder::discovery).
    pub fn discovery(self, source: impl Discovery) -> Self {
        self.inner.discovery(source).into()
    }

    /// Settings of the transport ([`TransportConfig::default`]).
    pub fn transport(self, transport: TransportConfig) -> Self {
        self.inner.transport(transport).into()
    }

    /// Which member serves the client's reads ([`Spread::Sticky`]).
    pub fn spread(self, spread: Spread) -> Self {
        self.inner.spread(spread).into()
    }

    /// How long [`connect`](Self::connect) looks for a formed cluster (10 s). It may fail earlier: see
    /// [`ClientBuilder::timeout`](crate::ClientBuilder::timeout).
    pub fn timeout(self, timeout: Duration) -> Self {
        self.inner.timeout(timeout).into()
    }

    /// Starts the client's thread, connects to the cluster, and learns its chains, members and addresses. Blocks for at
    /// most the [`timeout`](Self::timeout), and briefly longer to close connections after a failure.
    ///
    /// # Errors
    /// [`StartError`]: called within a runtime, no thread or runtime could be started, or the client couldn't connect.
    pub fn connect(self) -> Result<Client, StartError> {
        if within_runtime() {
            return Err(StartError::WithinRuntime);
        }
        let runtime = Driven::start("artillery-client").map_err(StartError::Runtime)?;
        let client = runtime.handle().block_on(self.inner.connect())?;
        Ok(Client { client, runtime })
    }
}

/// Why a client can't be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Called within a runtime, whose thread it would block: use [`Client`](crate::Client).
    #[error("a blocking client can't be created within a tokio runtime")]
    WithinRuntime,
    /// The operating system refused a thread, or the I/O driver of its runtime.
    #[error("couldn't start the client's thread and runtime: {0}")]
    Runtime(#[source] io::Error),
    /// The client couldn't connect.
    #[error(transparent)]
    Client(#[from] ClientError),
}
