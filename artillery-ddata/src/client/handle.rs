//! The handle to a client.

use std::{sync::Arc, time::Duration};

use artillery_core::{
    discovery::SeedError,
    error::{BindError, IdentityError},
    identity::Identity,
    transport::{Counters, Endpoint},
};

use super::{Candidates, Unreached, order::AdminError};
use crate::{
    Epoch, Error, Kv, NodeId, Routing,
    control::message::{AdminCommand, ArrangeError},
    message::request::{AdminOperation, ResponseAnswer},
    recipes::Leaving,
    rpc::router::Router,
    status::{NodeStatus, StatusError},
};

/// Access to a cluster from a process that isn't one of its nodes. Clones refer to the same client. It stops when the
/// last clone and the last handle made from it are dropped.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) router: Arc<Router>,
    pub(super) endpoint: Endpoint,
    pub(super) first: Arc<Routing>,
    pub(super) candidates: Candidates,
    pub(super) name: Arc<str>,
}

impl Client {
    /// The cluster's data.
    pub fn kv(&self) -> Kv {
        Kv::new(self.router.clone())
    }

    /// The chains, members and addresses that the client knows. They may be outdated.
    pub fn routing(&self) -> Arc<Routing> {
        self.router.known().unwrap_or_else(|| self.first.clone())
    }

    /// Asks the cluster for its chains, members and addresses. Calls made at the same time share one query; if no node
    /// answers it, all of these calls but one return the routing known before.
    ///
    /// # Errors
    /// [`Error::NotApplied`]: no node answered in time, the client is closed, or the call was made outside of a
    /// runtime.
    pub async fn refresh(&self, timeout: Duration) -> Result<Arc<Routing>, Error> {
        self.router.refresh_within(timeout).await
    }

    /// A node's status.
    ///
    /// # Errors
    /// [`StatusError`]: the node isn't known or doesn't answer in time, or its answer isn't a status.
    pub async fn node_status(&self, node: NodeId, timeout: Duration) -> Result<NodeStatus, StatusError> {
        let json = self.node_status_json(node, timeout).await?;
        serde_json::from_str(&json).map_err(|error| StatusError::Unreadable(error.to_string()))
    }

    /// A node's status as reported by the node: the JSON text of its HTTP `/status`. A newer node may report fields
    /// that [`node_status`](Self::node_status) ignores.
    ///
    /// # Errors
    /// [`Error::NotApplied`]: the node isn't known, wasn't reached, or gave no usable answer in time.
    /// [`Error::Refused`]: too many requests to the node are in flight.
    pub async fn node_status_json(&self, node: NodeId, timeout: Duration) -> Result<String, Error> {
        self.router.node_status_json(node, timeout).await
    }

    /// Sends an operator's command to one node, once. Returns the epoch that a reorder has created, `None` for the
    /// other commands. After [`AdminCommand::Leave`] it returns as soon as the node has accepted the command: the
    /// configuration shows when the node has left.
    ///
    /// # Errors
    /// [`AdminError`]. If its [outcome is unknown](AdminError::is_outcome_unknown), the command may have been executed:
    /// check the configuration.
    pub async fn arrange(
        &self,
        node: NodeId,
        wish: AdminCommand,
        timeout: Duration,
    ) -> Result<Option<Epoch>, AdminError<ArrangeError>> {
        match self.router.ask_node(node, AdminOperation::Arrange(wish), timeout).await? {
            ResponseAnswer::Arranged(outcome) => outcome.map_err(AdminError::from),
            _ => Err(AdminError::unusable(node)),
        }
    }

    /// The locations at which the client looks for nodes. Locations may be added and removed at any time.
    pub fn candidates(&self) -> &Candidates {
        &self.candidates
    }

    /// Traffic counters of the client's socket.
    pub fn traffic(&self) -> Counters {
        self.endpoint.counters()
    }

    /// Replaces the client's own certificate and the trusted ones by those of `identity`. The client keeps its
    /// [`name`](Self::name). [`Endpoint::set_identity`] explains how to replace a secret without downtime.
    ///
    /// # Errors
    /// [`IdentityError::OtherName`], [`IdentityError::Unusable`]: nothing has changed.
    pub fn set_identity(&self, identity: Identity) -> Result<(), IdentityError> {
        self.endpoint.set_identity(identity)
    }

    /// The name in the client's certificate.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Closes all connections and notifies the nodes. Calls in progress end as if their connections were lost, and are
    /// not retried. Waits at most one second in total for nodes that don't acknowledge this.
    ///
    /// Before that, calls that wait for a lock end, and their keys and those of dropped guards are deleted. This takes at
    /// most one second, too.
    pub async fn close(&self) {
        Leaving::close(&self.router).await;
        self.router.stop();
        self.endpoint.shutdown().await;
    }
}

/// Why a client couldn't connect. No read or write was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Neither a secret nor an identity was given.
    #[error("a secret or an identity is needed")]
    NoIdentity,
    /// A seed is neither an address nor a host name with a port.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// Neither seeds, nor candidates, nor a source were given.
    #[error("no seed given, so there is no node to contact")]
    NoSeeds,
    /// The secret or the certificates can't be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The socket can't be opened, or the settings are invalid.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No node was reached, none admitted this client, or none gave a usable answer; each address or name with its
    /// reason.
    #[error("no node was reached: {}", reasons(.0))]
    Unreachable(Vec<Unreached>),
    /// At least one node answered, but its cluster wasn't formed yet, or was replaced by another one (see
    /// [`even_if_succeeded`](crate::ClientBuilder::even_if_succeeded)). No node of a formed cluster answered.
    #[error("the cluster isn't formed yet")]
    NotFormed,
}

fn reasons(all: &[Unreached]) -> String {
    if all.is_empty() {
        return "no address is known".to_owned();
    }
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
